"""How far a leaky-ReLU network is from its linearization: flips of its neurons, certain bounds.

Read `_leaky_relu_network.py` and `_flips.py` first: the network, and which neurons can change their
sign, without which it is its linearization. `_read_layers.py` reads the weights from any function.

`_certified.py` is the entrance to guaranteed bounds on the distribution function, all in NumPy's
float64: affine bounds (`_affine_bounds.py`), their distributions (`_distribution_bounds.py`), and
parts of the input, with tighter bounds that may fail with a small probability (`_cover.py`).
"""

from nn_uq_dist.error_analysis._certified import CertifiedDistribution as CertifiedDistribution
from nn_uq_dist.error_analysis._certified import certified as certified
from nn_uq_dist.error_analysis._flips import flip_probabilities as flip_probabilities
from nn_uq_dist.error_analysis._flips import is_exact_on_support as is_exact_on_support
from nn_uq_dist.error_analysis._leaky_relu_network import LeakyReLUNetwork as LeakyReLUNetwork
