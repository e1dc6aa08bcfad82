"""Laws of random inputs, and the laws of linear maps of them.

An input is a mean and independent terms, uniform or normal variables times a matrix; all that is
computed with them is in `_terms.py`. `_abstract_input_law.py` is the contract that everything
downstream asks: read it first. The laws only say which terms they have: `InputLaw` (a box, a
Gaussian part or both), `GaussianInput`, `KnownInput`, `InputSum` and `InputBlocks`. `MappedInput`
wraps one of them where the network takes another shape, a structure or a transform.
`_distribution_law.py` converts one distribution, by a family registered with
`register_input_family` (`_numpyro_families.py` has those of NumPyro) or by its transforms,
`_as_input_law.py` structures of them. `_linear_image.py` has the columns of independent random
variables that linear outputs are made of. `_flat_network.py` makes any network one between vectors.
"""

from nn_uq_dist.inputs import _numpyro_families as _numpyro_families
from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw as AbstractInputLaw
from nn_uq_dist.inputs._as_input_law import as_input_law as as_input_law
from nn_uq_dist.inputs._distribution_law import register_input_family as register_input_family
from nn_uq_dist.inputs._input_blocks import InputBlocks as InputBlocks
from nn_uq_dist.inputs._input_law import GaussianInput as GaussianInput
from nn_uq_dist.inputs._input_law import InputLaw as InputLaw
from nn_uq_dist.inputs._input_law import KnownInput as KnownInput
from nn_uq_dist.inputs._input_sum import InputSum as InputSum
from nn_uq_dist.inputs._input_sum import trapezoidal as trapezoidal
from nn_uq_dist.inputs._input_sum import triangular as triangular
from nn_uq_dist.inputs._linear_image import LinearImage as LinearImage
from nn_uq_dist.inputs._mapped_input import MappedInput as MappedInput
from nn_uq_dist.inputs._terms import InputTerm as InputTerm
