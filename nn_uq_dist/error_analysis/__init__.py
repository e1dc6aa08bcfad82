"""How far a leaky-ReLU network is from its linearization: exact errors, flips, certain bounds.

Read `_leaky_relu_network.py` and `_linearization_error.py` first: the network, the identity for its
error on which everything else is based, and which neurons can flip. `_read_layers.py` reads the
weights from any function.

`_certified.py` is the entrance to guaranteed bounds on the distribution function, all in NumPy's
float64: affine bounds (`_affine_bounds.py`), their distributions (`_distribution_bounds.py`), and
parts of the input, with tighter bounds that may fail with a small probability (`_cover.py`).
"""

from nn_uq_dist.error_analysis._certified import CertifiedDistribution as CertifiedDistribution
from nn_uq_dist.error_analysis._certified import certified as certified
from nn_uq_dist.error_analysis._leaky_relu_network import LeakyReLUNetwork as LeakyReLUNetwork
from nn_uq_dist.error_analysis._linearization_error import flip_probabilities as flip_probabilities
from nn_uq_dist.error_analysis._linearization_error import (
    is_exact_on_support as is_exact_on_support,
)
from nn_uq_dist.error_analysis._linearization_error import (
    layer_contributions as layer_contributions,
)
from nn_uq_dist.error_analysis._linearization_error import total_error as total_error
