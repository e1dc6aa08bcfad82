"""Distributions of the outputs of a neural network with a random input, for NumPyro."""

from nn_uq_dist import diagnostics as diagnostics
from nn_uq_dist import error_analysis as error_analysis
from nn_uq_dist import linear_combination as linear_combination
from nn_uq_dist import plots as plots
from nn_uq_dist._input_law import InputLaw as InputLaw
from nn_uq_dist._joint_correlation import JointCorrelation as JointCorrelation
from nn_uq_dist._joint_density_grid import JointDensityGrid as JointDensityGrid
from nn_uq_dist._leaky_relu_network import LeakyReLUNetwork as LeakyReLUNetwork
from nn_uq_dist._linearization import Linearization as Linearization
from nn_uq_dist._linearize import linearize as linearize
from nn_uq_dist._monte_carlo import monte_carlo as monte_carlo
from nn_uq_dist._monte_carlo_statistics import MonteCarloStatistics as MonteCarloStatistics
from nn_uq_dist._streaming import monte_carlo_statistics as monte_carlo_statistics
from nn_uq_dist.distributions import GaussianCopulaConditional as GaussianCopulaConditional
from nn_uq_dist.distributions import GaussianCopulaJoint as GaussianCopulaJoint
from nn_uq_dist.distributions import LinearizedMarginal as LinearizedMarginal
from nn_uq_dist.distributions import NatafCorrelation as NatafCorrelation
from nn_uq_dist.distributions import NormalScoreTransform as NormalScoreTransform
from nn_uq_dist.distributions import nataf_correlation as nataf_correlation
from nn_uq_dist.distributions import nearest_correlation as nearest_correlation
