"""Figures of output distributions, as ArviZ plot collections."""

from nn_uq_dist.plots._plot_joint import plot_joint as plot_joint
from nn_uq_dist.plots._plot_marginals import plot_marginals as plot_marginals
from nn_uq_dist.plots._plot_output_band import plot_output_band as plot_output_band
from nn_uq_dist.plots._plot_pit import plot_pit as plot_pit
from nn_uq_dist.plots._plot_sensitivity import plot_sensitivity as plot_sensitivity
from nn_uq_dist.plots._plot_tails import plot_tails as plot_tails

__all__ = [
    "plot_joint",
    "plot_marginals",
    "plot_output_band",
    "plot_pit",
    "plot_sensitivity",
    "plot_tails",
]
