"""How far a leaky-ReLU network is from its linearization: exact errors, flips, certain bounds.

Read `_leaky_relu_network.py` and `_error.py` first: the network, and the identity for its error on
which everything else is based. `_read_layers.py` reads the weights from any function. `_flips.py`
determines which neurons can flip. What is certain is computed in NumPy's float64
(`_float64_network.py`).

`_certified.py` is the entrance to guaranteed bounds on the distribution function: affine bounds
(`_affine_bounds.py`), tight ones that may fail with a small probability (`_trimmed.py`), the
distributions of both (`_distribution_bounds.py`), and parts of the input (`_cover.py`).
"""

from nn_uq_dist.error_analysis._certified import certified as certified
from nn_uq_dist.error_analysis._certified_distribution import (
    CertifiedDistribution as CertifiedDistribution,
)
from nn_uq_dist.error_analysis._error import layer_contributions as layer_contributions
from nn_uq_dist.error_analysis._error import total_error as total_error
from nn_uq_dist.error_analysis._flips import flip_probabilities as flip_probabilities
from nn_uq_dist.error_analysis._flips import is_exact_on_support as is_exact_on_support
from nn_uq_dist.error_analysis._leaky_relu_network import LeakyReLUNetwork as LeakyReLUNetwork
