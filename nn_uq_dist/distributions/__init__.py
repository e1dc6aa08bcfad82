"""NumPyro distributions of the outputs of a network."""

from nn_uq_dist.distributions._corrected_marginal import CorrectedMarginal as CorrectedMarginal
from nn_uq_dist.distributions._gaussian_copula_conditional import (
    GaussianCopulaConditional as GaussianCopulaConditional,
)
from nn_uq_dist.distributions._gaussian_copula_joint import (
    GaussianCopulaJoint as GaussianCopulaJoint,
)
from nn_uq_dist.distributions._linearized_conditional import (
    LinearizedConditional as LinearizedConditional,
)
from nn_uq_dist.distributions._linearized_joint import LinearizedJoint as LinearizedJoint
from nn_uq_dist.distributions._linearized_marginal import LinearizedMarginal as LinearizedMarginal
from nn_uq_dist.distributions._monotone_spline import MonotoneSpline as MonotoneSpline
from nn_uq_dist.distributions._noisy_marginal import NoisyMarginal as NoisyMarginal
from nn_uq_dist.distributions._normal_score_transform import (
    NormalScoreTransform as NormalScoreTransform,
)
from nn_uq_dist.gaussian_copula._clipped_correlation import (
    clipped_correlation as clipped_correlation,
)
from nn_uq_dist.gaussian_copula._nataf import NatafCorrelation as NatafCorrelation
from nn_uq_dist.gaussian_copula._nataf import nataf_correlation as nataf_correlation
