"""Numerics of joint laws: uniforms on a box, mapped by a matrix, plus normal noise."""

from nn_uq_dist.box_gaussian._evidence import log_evidence as log_evidence
from nn_uq_dist.box_gaussian._evidence import (
    log_evidence_of_shared_law as log_evidence_of_shared_law,
)
from nn_uq_dist.box_gaussian._input_draws import input_draws as input_draws
from nn_uq_dist.box_gaussian._moments import Moments as Moments
from nn_uq_dist.box_gaussian._moments import conditional_moments as conditional_moments
from nn_uq_dist.box_gaussian._moments import posterior_moments as posterior_moments
from nn_uq_dist.box_gaussian._normals_given_outputs import (
    normals_given_outputs as normals_given_outputs,
)
from nn_uq_dist.box_gaussian._rosenblatt import conditional_scores as conditional_scores
from nn_uq_dist.box_gaussian._second_order import second_order as second_order
