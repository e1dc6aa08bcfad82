"""Random distributions with a normal part from 1e-7 to 1e-1 of the half-width, or none, and
points."""

import numpy as np

MOST_WEIGHTS = 60


class RandomDistributions:
    """Distributions padded with zero weights to one shape, so that all share a compiled program.

    Attributes
    ----------
    weights : ndarray, shape (num_distributions, 60)
        1 to 60 weights: equal, geometric, normal, one or two dominating, over five decades.
    normal_scale, half_width : ndarray, shape (num_distributions,)
        The scale is zero for one distribution in ten.
    points : ndarray, shape (num_distributions, 12)
        Two between center and edge, four at distances from 1e-8 to 1 half-width from the edge, four
        within six scales of the edge on either side, two within twelve standard deviations.
    """

    def __init__(self, num_distributions, seed, dtype):
        rng = np.random.default_rng(seed)
        weights = np.stack([_weights(rng) for _ in range(num_distributions)]).astype(dtype)
        # Points are found in double precision for the weights as they are in the type.
        width = np.abs(weights.astype(np.float64)).sum(-1)
        bounded = rng.uniform(size=num_distributions) < 0.1
        scale = np.where(bounded, 0.0, width * 10 ** rng.uniform(-7, -1, num_distributions)).astype(
            dtype
        )
        self.weights, self.normal_scale, self.half_width = weights, scale, width
        self.points = _points(rng, weights.astype(np.float64), scale.astype(np.float64), dtype)


def _weights(rng):
    count = int(np.exp(rng.uniform(0, np.log(MOST_WEIGHTS + 1))))
    index = np.arange(count)
    small = 10 ** rng.uniform(-6, -1)
    patterns = (
        lambda: np.ones(count),
        lambda: rng.uniform(0.05, 0.98) ** index,
        lambda: rng.normal(size=count),
        lambda: np.where(index < 1, 1.0, small * rng.normal(size=count)),
        lambda: np.where(index < 2, 1.0, small * rng.uniform(size=count)),
        lambda: 10 ** rng.uniform(-5, 0, size=count),
    )
    weights = patterns[rng.integers(len(patterns))]() * rng.choice([-1, 1], size=count)
    weights *= 10 ** rng.uniform(-1, 1) / np.abs(weights).sum()
    return np.pad(weights, (0, MOST_WEIGHTS - count))


def _points(rng, weights, scale, dtype):
    width = np.abs(weights).sum(-1)[:, None]
    deviation = np.sqrt((weights**2).sum(-1) / 3 + scale**2)[:, None]
    scale, num_distributions = scale[:, None], len(weights)
    points = [
        width * rng.uniform(0, 1, (num_distributions, 2)),
        width * (1 - 10 ** rng.uniform(-8, 0, (num_distributions, 4))),
        width + scale * rng.uniform(-6, 6, (num_distributions, 4)),
        deviation * rng.uniform(0, 12, (num_distributions, 2)),
    ]
    farthest = np.where(scale > 0, width + 6 * scale, width * (1 - 4 * np.finfo(dtype).eps))
    return np.clip(np.concatenate(points, axis=1), 0, farthest).astype(dtype)
