"""Parts of the input, each with affine bounds of its own: tail probabilities, and how to split."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.error_analysis._affine_bounds import AffineForms, Boxes, StandardNetwork
from nn_uq_dist.error_analysis._float64_network import EPS
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

    @property
    def range(self) -> tuple[float, float]:
        """What the output lies between, wherever the variables are in their ranges."""
        least = self.forms(0).smallest(self.boxes).min(axis=0)
        return float(least[0]), float(-least[1])

    def middle_gap(self, price: float) -> FloatArray:
        """Distance of the bounds at the center, plus what may fail at this price, ``(P,)``."""
        least = self.const + (self.rows @ self.boxes.center[:, None, :, None])[..., 0]
        distance: FloatArray = (self.failure / price - least.sum(axis=-1)).min(axis=-1)
        return distance


# For the whole input, and for its parts if there are any.
type Covers = tuple[Cover, ...]


def cover_of(
    network: StandardNetwork, boxes: Boxes, mass: FloatArray, prices: Sequence[float]
) -> Cover:
    """Bounds on each box: certain ones, and for each price of a unit of distance.

    Ranges are cut for each price with the influence of neurons that the bounds before say.
    """
    portion = max(1, _NEURONS_AT_ONCE // sum(map(len, network.biases)))
    found = []
    for start in range(0, len(mass), portion):
        some = boxes.take(slice(start, start + portion))
        kinds = [enclosed(network, some)]
        for price in prices:
            kinds.append(enclosed(network, some, price, kinds[-1].influence))
        rows, const = (np.stack([kind.forms[i] for kind in kinds], axis=1) for i in range(2))
        failure = np.stack([kind.failure for kind in kinds], axis=1)
        own = mass[start : start + portion]
        found.append(Cover(some, own, rows, const, failure, kinds[0].shares))
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
        b, p = (index[start : start + _PAIRS_AT_ONCE] for index in (box, point))
        for kind in range(cover.const.shape[1]):
            forms = AffineForms(cover.rows[b, kind], cover.const[b, kind])
            at = points.T[p, :, None]
            pairs = largest_probability(network, cover.boxes.take(b), forms, at, tolerance)
            value = pairs[..., 0] + cover.failure[b, kind, None]
            found[b, :, p] = np.minimum(found[b, :, p], value * (1 + 4 * EPS))
    return found[:, 0], found[:, 1]


def tails_of(network: StandardNetwork, covers: Covers, points: FloatArray) -> list[FloatArray]:
    """`tails` of the whole input, at points of any shape: the better of those of the covers."""
    sums = []
    for cover in covers:
        margin = 1 + (len(cover.mass) + 4) * EPS
        sums.append([cover.mass @ side * margin for side in tails(network, cover, points.ravel())])
    sides = zip(*sums, strict=True)
    return [np.min(side, axis=0, initial=1).reshape(points.shape) for side in sides]


def largest_gap(network: StandardNetwork, covers: Covers, points: FloatArray) -> float:
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
