"""The contracts of laws of outputs and of joint laws, and any NumPyro distribution as one."""

from nn_uq_dist.laws._adapted_law import AdaptedLaw as AdaptedLaw
from nn_uq_dist.laws._adapted_law import as_output_law as as_output_law
from nn_uq_dist.laws._batch_entries import batch_entries as batch_entries
from nn_uq_dist.laws._joint_law import JointLaw as JointLaw
from nn_uq_dist.laws._output_law import OutputLaw as OutputLaw
