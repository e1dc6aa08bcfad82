"""Tables that say how far a linearized law is from the network's own."""

from nn_uq_dist.diagnostics._datatree import to_datatree as to_datatree
from nn_uq_dist.diagnostics._flags import flag_outputs as flag_outputs
from nn_uq_dist.diagnostics._joint_summary import JointSummary as JointSummary
from nn_uq_dist.diagnostics._joint_summary import joint_summary as joint_summary
from nn_uq_dist.diagnostics._sensitivity import sensitivity as sensitivity
from nn_uq_dist.diagnostics._summary import summary as summary

__all__ = [
    "JointSummary",
    "flag_outputs",
    "joint_summary",
    "sensitivity",
    "summary",
    "to_datatree",
]
