"""Everything that figures import from the diagnostics, in one place."""

from nn_uq_dist.diagnostics._arguments import MINIMUM_DRAWS as MINIMUM_DRAWS
from nn_uq_dist.diagnostics._arguments import Marginals as Marginals
from nn_uq_dist.diagnostics._arguments import as_draws as as_draws
from nn_uq_dist.diagnostics._arguments import as_input_names as as_input_names
from nn_uq_dist.diagnostics._arguments import as_joint_law as as_joint_law
from nn_uq_dist.diagnostics._arguments import as_marginals as as_marginals
from nn_uq_dist.diagnostics._arguments import as_output_names as as_output_names
from nn_uq_dist.diagnostics._arguments import require_extra as require_extra
from nn_uq_dist.diagnostics._arguments import unbatched as unbatched
from nn_uq_dist.diagnostics._estimates import sample_correlation as sample_correlation
from nn_uq_dist.diagnostics._law_functions import LawFunctions as LawFunctions
from nn_uq_dist.diagnostics._prepared import complete_rows as complete_rows
from nn_uq_dist.diagnostics._prepared import finite_draws as finite_draws
from nn_uq_dist.diagnostics._sensitivity import first_order_indices as first_order_indices
from nn_uq_dist.diagnostics._tails import Tails as Tails
