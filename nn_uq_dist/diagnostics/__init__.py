"""Tables that say how far the laws of outputs are from a network's own.

By question, a module each: single outputs (`_outputs`, a row in `_output_row`), their joint law
(`_joint`, `_joint_tables`), which input matters (`_sensitivity`), which outputs need a second look
(`_flags`), export to ArviZ (`_export`). They share what statistics are (`_estimates`, `_distances`,
`_log_scores`, `_energy`) and when a difference counts (`_verdict`). Laws are asked for numbers in
`_law_functions`, `_quantiles` and `_tails` only, by the contract `nn_uq_dist.laws.OutputLaw`;
`_prepared` holds the draws, sorted and placed under the laws once.
"""

from nn_uq_dist.diagnostics._export import to_datatree as to_datatree
from nn_uq_dist.diagnostics._flags import flag_outputs as flag_outputs
from nn_uq_dist.diagnostics._joint import JointSummary as JointSummary
from nn_uq_dist.diagnostics._joint import joint_summary as joint_summary
from nn_uq_dist.diagnostics._outputs import summary as summary
from nn_uq_dist.diagnostics._sensitivity import sensitivity as sensitivity

__all__ = [
    "JointSummary",
    "flag_outputs",
    "joint_summary",
    "sensitivity",
    "summary",
    "to_datatree",
]
