"""Random inputs.

An input is data: a mean, independent terms, which are uniform or normal variables times a matrix,
and a map to what the network takes. Read `_random_vector.py` first, then `_input.py`, which makes
inputs and sends them through the map; `_data_sheet_shapes.py` makes those of certificates.
All that is computed with terms is in `terms.py`, and the map in `input_map.py`. `from_numpyro.py`
makes inputs of distributions and of structures of them: by a family registered with
`register_input_family` (`_numpyro_families.py` has those of NumPyro) or by transforms.
"""

from nn_uq_dist.inputs._input import Input as Input
from nn_uq_dist.inputs._numpyro_families import register_input_family as register_input_family
from nn_uq_dist.inputs.from_numpyro import as_input as as_input
from nn_uq_dist.inputs.terms import InputTerm as InputTerm
