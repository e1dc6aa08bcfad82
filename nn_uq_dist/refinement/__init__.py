"""Laws of outputs that are closer to the network than its linearization at one point.

Read `_parts.py` first: `linearize_parts` splits the law of the input into parts and linearizes the
network at the center of each. `_part_choice.py` decides which variables are split and how often,
`_part_centers.py` makes the parts, with `_normal_parts.py` for normal variables.
`_partwise_linearization.py` holds the result and makes the laws of the outputs.
"""

from nn_uq_dist.refinement._parts import linearize_parts as linearize_parts
from nn_uq_dist.refinement._partwise_linearization import (
    PartwiseLinearization as PartwiseLinearization,
)
