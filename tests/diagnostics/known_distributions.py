"""Distributions whose draws the diagnostics are tested with, and their sorted draws."""

import numpy as np
import scipy.stats

LAWS = {
    "normal": scipy.stats.norm(3, 0.5),
    "uniform": scipy.stats.uniform(-1, 2),
    "skewed": scipy.stats.beta(2, 6),
}


def sample(distribution, shape, seed=0):
    return np.sort(distribution.rvs(size=shape, random_state=np.random.default_rng(seed)), axis=-1)
