"""Distributions of the outputs of a neural network with a random input, for NumPyro.

`linearize` takes a network and an input (`Input`, or a NumPyro distribution) and returns a
`Linearization`: its `marginals`, `joint` and `gaussian_copula` are NumPyro distributions. Pairs of
linear and true outputs, `paired_draws`, correct them and judge them: `Linearization.corrected`,
`paired_statistics`, `win_probabilities`, `diagnostics.summary` and `plots`. Of the network itself
are `monte_carlo`, `failure_probability`, `input_posterior`, `sobol_indices`, and for leaky-ReLU
networks `certified`.
"""

from nn_uq_dist import diagnostics as diagnostics
from nn_uq_dist import distributions as distributions
from nn_uq_dist import error_analysis as error_analysis
from nn_uq_dist import inputs as inputs
from nn_uq_dist import linearization as linearization
from nn_uq_dist import plots as plots
from nn_uq_dist import sampling as sampling
from nn_uq_dist.distributions import GaussianCopulaJoint as GaussianCopulaJoint
from nn_uq_dist.distributions import LinearizedJoint as LinearizedJoint
from nn_uq_dist.distributions import LinearizedMarginal as LinearizedMarginal
from nn_uq_dist.error_analysis import LeakyReLUNetwork as LeakyReLUNetwork
from nn_uq_dist.error_analysis import certified as certified
from nn_uq_dist.inference import failure_probability as failure_probability
from nn_uq_dist.inference import input_posterior as input_posterior
from nn_uq_dist.inference import sobol_indices as sobol_indices
from nn_uq_dist.inputs import Input as Input
from nn_uq_dist.linearization import Linearization as Linearization
from nn_uq_dist.linearization import linearize as linearize
from nn_uq_dist.sampling import monte_carlo as monte_carlo
from nn_uq_dist.sampling import paired_draws as paired_draws
from nn_uq_dist.sampling import paired_statistics as paired_statistics
from nn_uq_dist.sampling import win_probabilities as win_probabilities

# Importable, but only the other packages need them.
_NUMERICS = frozenset({"basics", "box_gaussian", "uniform_sum", "paired_samples"})


def __dir__() -> list[str]:
    return sorted(set(globals()) - _NUMERICS)
