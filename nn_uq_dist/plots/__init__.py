"""Figures of output distributions in Matplotlib, a function each.

Each takes the model or distribution first and draws second, draws on the axes `ax` if they are
given, and returns the Matplotlib figure. Without `ax` it makes a figure by ``pyplot.subplots``, so
``pyplot.show()`` shows it; in a notebook a semicolon behind the call avoids a second copy. With
`ax` pyplot is not touched. No style is changed.
"""

from nn_uq_dist.plots._plot_band import plot_band as plot_band
from nn_uq_dist.plots._plot_joint import plot_joint as plot_joint
from nn_uq_dist.plots._plot_outputs import plot_calibration as plot_calibration
from nn_uq_dist.plots._plot_outputs import plot_marginals as plot_marginals
from nn_uq_dist.plots._plot_outputs import plot_tails as plot_tails
from nn_uq_dist.plots._plot_sensitivity import plot_sensitivity as plot_sensitivity
