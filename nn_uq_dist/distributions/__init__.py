"""NumPyro distributions of the outputs of a network."""

from nn_uq_dist.distributions._marginal import LinearizedMarginal as LinearizedMarginal
