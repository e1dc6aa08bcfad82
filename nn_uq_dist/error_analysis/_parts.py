"""Parts of the input, each with affine bounds of its own: tail probabilities, and how to split."""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._known_values import FloatArray
from nn_uq_dist.error_analysis._affine_bounds import AffineForms, Boxes, StandardNetwork
from nn_uq_dist.error_analysis._law_bounds import EPS
from nn_uq_dist.error_analysis._trimmed import enclosed, largest_probability

# Numbers of the arrays for the cuts of one portion of boxes.
_NEURONS_AT_ONCE = 2**14
_PAIRS_AT_ONCE = 2**17
# Where many parts add up, so may their errors, which parts that are decided do not have.
_TOLERANCES = (1e-12, 1e-7)


class Cover(NamedTuple):
    """Boxes that together are all values of the variables, each with K pairs of bounds.

    Attributes
    ----------
    boxes, mass
        The boxes and their probabilities, shape ``(P,)``: powers of two, hence exact.
    rows, const
        Lower bounds of the output and of its negative, shapes ``(P, K, 2, V)``, ``(P, K, 2)``; the
        first of K hold on the whole box.
    failure
        Probabilities that they do not hold, given the box, shape ``(P, K)``.
    shares
        Contributions of the variables to the distance of the bounds, shape ``(P, V)``.
    """

    boxes: Boxes
    mass: FloatArray
    rows: FloatArray
    const: FloatArray
    failure: FloatArray
    shares: FloatArray

    def forms(self, kind: int) -> AffineForms:
        """One of the K pairs of bounds."""
        return AffineForms(self.rows[:, kind], self.const[:, kind])

    def middle_gap(self, price: float) -> FloatArray:
        """Distance of the bounds at the center, plus what may fail at this price, ``(P,)``."""
        least = self.const + (self.rows @ self.boxes.center[:, None, :, None])[..., 0]
        distance: FloatArray = (self.failure / price - least.sum(axis=-1)).min(axis=-1)
        return distance


def cover_of(
    network: StandardNetwork,
    boxes: Boxes,
    mass: FloatArray,
    prices: Sequence[float],
    num_sweeps: int = 1,
) -> Cover:
    """Bounds on each box: certain ones, and others by the price of a unit of distance.

    Parameters
    ----------
    num_sweeps
        How often ranges are cut, each time with the influence of neurons that the last bounds say.
    """
    num_neurons = sum(map(len, network.biases))
    portion = max(1, _NEURONS_AT_ONCE // num_neurons)
    tolerance = _TOLERANCES[len(mass) > 1]
    found = []
    for start in range(0, len(mass), portion):
        some = boxes.take(slice(start, start + portion))
        certain = enclosed(network, some)
        kinds = [certain]
        for price in prices:
            kind = certain
            for _ in range(num_sweeps):
                kind = enclosed(network, some, price, kind.influence, tolerance)
            kinds.append(kind)
        rows, const = (np.stack([kind.forms[i] for kind in kinds], axis=1) for i in range(2))
        failure = np.stack([kind.failure for kind in kinds], axis=1)
        found.append(
            Cover(some, mass[start : start + portion], rows, const, failure, certain.shares)
        )
    return joined(found)


def split(network: StandardNetwork, cover: Cover, chosen: NDArray[np.intp], price: float) -> Cover:
    """The cover with some of its boxes halved across the variable with the largest share."""
    kept = np.ones(len(cover.mass), bool)
    kept[chosen] = False
    index = np.arange(len(chosen))
    axis = np.where(network.is_uniform, cover.shares[chosen], -1.0).argmax(axis=-1)
    middle, half = cover.boxes.take(chosen)
    moved = np.zeros_like(half)
    moved[index, axis] = half[index, axis] / 2
    half = np.tile(half - moved, (2, 1))
    boxes = Boxes(np.concatenate([middle - moved, middle + moved]), half)
    children = cover_of(network, boxes, np.tile(cover.mass[chosen] / 2, 2), [price])
    return joined(
        [jax.tree.map(lambda part: part[kept], cover), children] if any(kept) else [children]
    )


def joined(covers: Sequence[Cover]) -> Cover:
    """All boxes in one."""
    together: Cover = jax.tree.map(lambda *parts: np.concatenate(parts), *covers)
    return together


def tails(network: StandardNetwork, cover: Cover, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Upper bounds on the probabilities of ``g <= y`` and ``g >= y`` given each box, ``(P, Y)``."""
    least = cover.forms(0).smallest(cover.boxes)
    impossible = np.stack([y < least[:, :1], y > -least[:, 1:]], axis=1)
    # A normal variable may be outside of its range.
    normal = 1e-18 * np.count_nonzero(~network.is_uniform)
    found = np.where(impossible, normal, 1.0)
    box, point = np.nonzero(~impossible.any(axis=1))
    points = np.stack([y, -y])
    tolerance = _TOLERANCES[len(cover.mass) > 1]
    for start in range(0, len(box), _PAIRS_AT_ONCE):
        here = slice(start, start + _PAIRS_AT_ONCE)
        b, p = box[here], point[here]
        for kind in range(cover.const.shape[1]):
            forms = AffineForms(cover.rows[b, kind], cover.const[b, kind])
            at = points.T[p, :, None]
            pairs = largest_probability(network, cover.boxes.take(b), forms, at, tolerance)
            value = pairs[..., 0] + cover.failure[b, kind, None]
            found[b, :, p] = np.minimum(found[b, :, p], value * (1 + 4 * EPS))
    return found[:, 0], found[:, 1]


def tails_of(
    network: StandardNetwork, covers: tuple[Cover, ...], points: FloatArray
) -> list[FloatArray]:
    """Bounds on the tail probabilities of the whole input, the better of those of the covers."""
    sums = []
    for cover in covers:
        margin = 1 + (len(cover.mass) + 4) * EPS
        sums.append([cover.mass @ side * margin for side in tails(network, cover, points)])
    return [reduce(np.minimum, side, np.ones(())) for side in zip(*sums, strict=True)]


def largest_gap(network: StandardNetwork, covers: tuple[Cover, ...], points: FloatArray) -> float:
    """Largest distance of the bounds on the distribution function at points."""
    below, above = tails_of(network, covers, points)
    return float(np.max(below + above - 1))


def mean_bounds(network: StandardNetwork, cover: Cover) -> FloatArray:
    """Lower bounds on the means of the output and of its negative, shape ``(2,)``."""
    forms, (center, radius) = cover.forms(0), cover.boxes
    size = np.abs(forms.const) + (np.abs(forms.rows) @ (np.abs(center) + radius)[..., None])[..., 0]
    slack = (len(cover.mass) + center.shape[-1] + 8) * EPS * (cover.mass @ size)
    num_normal = np.count_nonzero(~network.is_uniform)
    if num_normal:
        # Outside of the range of the normal variables the bounds need not hold; output and bounds
        # grow no faster there than linearly.
        signal = network.sizes
        for weights, bias in zip(network.weights[1:], network.biases[1:], strict=True):
            signal = np.abs(weights) @ signal + np.abs(bias)
        largest = np.abs(network.output) @ signal + network.direct_size
        slack = slack + 1e-17 * num_normal**2 * (largest + cover.mass @ size)
    least: FloatArray = cover.mass @ forms.middle(cover.boxes) - slack
    return least
