"""The contracts of distributions of outputs, and any NumPyro distribution as one of them."""

from nn_uq_dist.distributions import AdaptedLaw as AdaptedLaw
from nn_uq_dist.distributions import JointLaw as JointLaw
from nn_uq_dist.distributions import OutputLaw as OutputLaw
from nn_uq_dist.distributions import as_output_law as as_output_law
from nn_uq_dist.distributions import batch_entries as batch_entries
