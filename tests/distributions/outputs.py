"""Three linearized outputs and increasing maps of them, which several test modules share."""

import numpy as np

from nn_uq_dist import LinearizedMarginal
from nn_uq_dist.distributions import CorrectedMarginal

WEIGHTS = np.array([[1.0, 0.6, 0.3], [0.5, 0.5, 0.1], [2.0, 0.1, 0.1]])
LOC = np.array([0.0, 3.0, -1.0])
KNOTS = LOC[:, None] + np.array([-1.5, -0.5, 0.2, 1.0, 1.7])
IMAGES = KNOTS + np.array([0.2, -0.1, 0.3, 0.9, 2.0])
# Normal scores from one tail to the other.
SCORES = np.array([-5.0, -2.5, -1.0, 0.0, 0.7, 2.0, 4.5])


def corrected(normal_scale=None, loc=LOC, images=IMAGES):
    return CorrectedMarginal(LinearizedMarginal(loc, WEIGHTS, normal_scale), KNOTS, images)
