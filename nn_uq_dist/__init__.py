"""Distributions of the outputs of a neural network with a random input, for NumPyro."""

from nn_uq_dist import diagnostics as diagnostics
from nn_uq_dist import error_analysis as error_analysis
from nn_uq_dist import inputs as inputs
from nn_uq_dist import laws as laws
from nn_uq_dist import linear_combination as linear_combination
from nn_uq_dist import plots as plots
from nn_uq_dist.distributions import GaussianCopulaConditional as GaussianCopulaConditional
from nn_uq_dist.distributions import GaussianCopulaJoint as GaussianCopulaJoint
from nn_uq_dist.distributions import LinearizedConditional as LinearizedConditional
from nn_uq_dist.distributions import LinearizedJoint as LinearizedJoint
from nn_uq_dist.distributions import LinearizedMarginal as LinearizedMarginal
from nn_uq_dist.distributions import NatafCorrelation as NatafCorrelation
from nn_uq_dist.distributions import NormalScoreTransform as NormalScoreTransform
from nn_uq_dist.distributions import nataf_correlation as nataf_correlation
from nn_uq_dist.distributions import nearest_correlation as nearest_correlation
from nn_uq_dist.error_analysis import LeakyReLUNetwork as LeakyReLUNetwork
from nn_uq_dist.inputs import InputLaw as InputLaw
from nn_uq_dist.linearization import JointCorrelation as JointCorrelation
from nn_uq_dist.linearization import JointDensityGrid as JointDensityGrid
from nn_uq_dist.linearization import Linearization as Linearization
from nn_uq_dist.linearization import linearize as linearize
from nn_uq_dist.sampling import MonteCarloStatistics as MonteCarloStatistics
from nn_uq_dist.sampling import monte_carlo as monte_carlo
from nn_uq_dist.sampling import monte_carlo_statistics as monte_carlo_statistics
