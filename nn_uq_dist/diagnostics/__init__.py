"""Tables that show how far the distributions of outputs are from those of the network.

Each question has a module: the distributions alone (`_table`), single outputs against draws
(`_summary`), their joint distribution (`_joint_summary`), which input matters (`_sensitivity`),
export to ArviZ (`_export`). Thresholds of verdicts are in `_verdict`. What draws are compared with,
and what figures show, is evaluated in `output_functions`, through the contract
`nn_uq_dist.distributions.OutputDistribution`.
"""

from nn_uq_dist.diagnostics._export import to_datatree as to_datatree
from nn_uq_dist.diagnostics._joint_summary import JointSummary as JointSummary
from nn_uq_dist.diagnostics._joint_summary import joint_summary as joint_summary
from nn_uq_dist.diagnostics._sensitivity import sensitivity as sensitivity
from nn_uq_dist.diagnostics._sensitivity import uncertainty_budget as uncertainty_budget
from nn_uq_dist.diagnostics._summary import summary as summary
from nn_uq_dist.diagnostics._table import table as table
