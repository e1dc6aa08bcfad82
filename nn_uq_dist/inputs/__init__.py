"""Laws of random inputs, and the laws of linear maps of them; no networks.

`_abstract_input_law.py` is the contract that everything downstream asks: read it first. `InputLaw`
(a box, a Gaussian part or both) and `InputSum` fulfill it. `_families.py` is the door for NumPyro
distributions: `register_input_family` adds a family, `_numpyro_families.py` holds those that are
there. `_linear_image.py` has the columns of independent random variables that linear outputs are
made of, with moments from `_image_algebra.py`.
"""

from nn_uq_dist.inputs import _numpyro_families as _numpyro_families
from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw as AbstractInputLaw
from nn_uq_dist.inputs._families import as_input_law as as_input_law
from nn_uq_dist.inputs._families import register_input_family as register_input_family
from nn_uq_dist.inputs._input_law import InputLaw as InputLaw
from nn_uq_dist.inputs._input_sum import InputSum as InputSum
from nn_uq_dist.inputs._linear_image import LinearImage as LinearImage
