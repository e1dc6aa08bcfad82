"""Networks replaced by linear functions of a random input, and the distributions of their outputs.

Read `_linear_model.py` first: `LinearModel` says what tables, figures and models ask for. There are
two: `Linearization` holds value, Jacobian and input distribution, and `jacobians.py` makes one
from a network; `CorrectedLinearization` adds what `_correction.py` estimates from paired draws, and
`_linear_fit.py` for the joint distribution. `_linearized_input_posterior.py` has the distribution
of the inputs given outputs.
"""

from nn_uq_dist.linearization._corrected_linearization import (
    CorrectedLinearization as CorrectedLinearization,
)
from nn_uq_dist.linearization._linear_model import CopulaCorrelation as CopulaCorrelation
from nn_uq_dist.linearization._linear_model import LinearModel as LinearModel
from nn_uq_dist.linearization._linearized_input_posterior import (
    LinearizedInputPosterior as LinearizedInputPosterior,
)
from nn_uq_dist.linearization._linearized_network import Linearization as Linearization
from nn_uq_dist.linearization.jacobians import linearize as linearize
