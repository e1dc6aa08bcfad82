"""NumPyro distributions of the outputs of a network, their contracts, and the Gaussian copula.

`OutputDistribution` and `JointDistribution` say what every distribution of one output, and of
several, has; NumPyro's are adapted by `as_output_distribution`. A copula asks three questions, in
this order: which covariance do outputs have, given the correlation of their normal scores
(``_nataf``, by Mehler's formula); which correlation of the scores gives a desired one
(`nataf_correlation`); which valid correlation matrix is near, if that one is indefinite
(`clipped_correlation`).
"""

from nn_uq_dist.distributions._adapted_distribution import (
    AdaptedDistribution as AdaptedDistribution,
)
from nn_uq_dist.distributions._adapted_distribution import (
    as_output_distribution as as_output_distribution,
)
from nn_uq_dist.distributions._axes import batch_entries as batch_entries
from nn_uq_dist.distributions._contract_joint import JointDistribution as JointDistribution
from nn_uq_dist.distributions._contract_output import OutputDistribution as OutputDistribution
from nn_uq_dist.distributions._corrected_marginal import CorrectedMarginal as CorrectedMarginal
from nn_uq_dist.distributions._gaussian_copula import GaussianCopulaJoint as GaussianCopulaJoint
from nn_uq_dist.distributions._linearized_conditional import (
    LinearizedConditional as LinearizedConditional,
)
from nn_uq_dist.distributions._linearized_joint import InputReparam as InputReparam
from nn_uq_dist.distributions._linearized_joint import LinearizedJoint as LinearizedJoint
from nn_uq_dist.distributions._linearized_marginal import LinearizedMarginal as LinearizedMarginal
from nn_uq_dist.distributions._nataf import NatafCorrelation as NatafCorrelation
from nn_uq_dist.distributions._nataf import nataf_by_kurtosis as nataf_by_kurtosis
from nn_uq_dist.distributions._nataf import nataf_correlation as nataf_correlation
from nn_uq_dist.distributions._noisy_marginal import NoisyMarginal as NoisyMarginal
from nn_uq_dist.distributions._transforms import MonotoneSpline as MonotoneSpline
from nn_uq_dist.distributions._transforms import NormalScoreTransform as NormalScoreTransform
from nn_uq_dist.distributions.correlation_matrices import clipped_correlation as clipped_correlation
from nn_uq_dist.distributions.linear_image import LinearImage as LinearImage
