"""Figures of output distributions, as ArviZ plot collections."""

from nn_uq_dist.plots._marginals import plot_marginals as plot_marginals

__all__ = ["plot_marginals"]
