"""Networks linearized at the mean of a random input, and the laws of their outputs.

Read `_linearization.py` first: `Linearization` holds value, Jacobian and input law; its moments and
laws come from its `image`. `_linearize.py` makes one from a network, `_joint_correlation.py`
couples its outputs by a copula. `_joint_density_grid.py` computes the joint density by which the
copula is judged, from the functions in `_characteristic_function.py`.
"""

from nn_uq_dist.linearization._corrected_linearization import (
    CorrectedLinearization as CorrectedLinearization,
)
from nn_uq_dist.linearization._joint_correlation import JointCorrelation as JointCorrelation
from nn_uq_dist.linearization._joint_density_grid import JointDensityGrid as JointDensityGrid
from nn_uq_dist.linearization._linearization import Linearization as Linearization
from nn_uq_dist.linearization._linearize import linearize as linearize
