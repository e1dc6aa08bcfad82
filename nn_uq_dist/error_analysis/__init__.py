"""How far a leaky-ReLU network is from its linearization: exact errors, bounds, flips."""

from nn_uq_dist.error_analysis._bounds import deterministic_bound as deterministic_bound
from nn_uq_dist.error_analysis._bounds import probabilistic_bound as probabilistic_bound
from nn_uq_dist.error_analysis._error import last_layer_residual as last_layer_residual
from nn_uq_dist.error_analysis._error import layer_contributions as layer_contributions
from nn_uq_dist.error_analysis._error import total_error as total_error
from nn_uq_dist.error_analysis._flips import flip_probabilities as flip_probabilities
from nn_uq_dist.error_analysis._flips import is_exact_on_support as is_exact_on_support

__all__ = [
    "deterministic_bound",
    "flip_probabilities",
    "is_exact_on_support",
    "last_layer_residual",
    "layer_contributions",
    "probabilistic_bound",
    "total_error",
]
