"""Numerics of joint distributions: uniforms on a box, mapped by a matrix, plus normal noise."""

from nn_uq_dist.box_gaussian._given_outputs import NormalsGivenOutputs as NormalsGivenOutputs
from nn_uq_dist.box_gaussian._given_outputs import input_draws as input_draws
from nn_uq_dist.box_gaussian._given_outputs import normals_given_outputs as normals_given_outputs
from nn_uq_dist.box_gaussian._given_outputs import rosenblatt_scores as rosenblatt_scores
from nn_uq_dist.box_gaussian._log_density import corrected_log_evidence as corrected_log_evidence
from nn_uq_dist.box_gaussian._log_density import log_evidence as log_evidence
from nn_uq_dist.box_gaussian._log_density import second_order as second_order
from nn_uq_dist.box_gaussian._moments import Moments as Moments
from nn_uq_dist.box_gaussian._moments import OwnDensity as OwnDensity
from nn_uq_dist.box_gaussian._moments import by_own_density as by_own_density
from nn_uq_dist.box_gaussian._moments import moments_given_outputs as moments_given_outputs
from nn_uq_dist.box_gaussian._moments import posterior_moments as posterior_moments
from nn_uq_dist.box_gaussian._moments import regression as regression
from nn_uq_dist.box_gaussian._moments import uniform_moments as uniform_moments
