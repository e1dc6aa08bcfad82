"""Labels along an axis of outputs or inputs do not run into each other."""

import numpy as np

from nn_uq_dist.plots.parts._shapes import MOST_CHARACTERS, position_ticks


def test_few_regular_positions_are_all_labeled():
    left, right, (ticks, labels) = position_ticks(np.arange(12.0), list("JFMAMJJASOND"))
    assert labels == list("JFMAMJJASOND")
    np.testing.assert_allclose(ticks, np.arange(12))
    assert left < 0
    assert right > 11


def test_crowded_labels_are_left_out():
    positions = -np.cos(np.pi * np.arange(31) / 30)
    names = [f"g{j}" for j in range(1, 32)]
    _, _, (ticks, labels) = position_ticks(positions, names)
    assert labels[0] == "g1"
    assert [names[int(np.argmin(abs(positions - tick)))] for tick in ticks] == labels
    characters = np.diff(ticks) / 2 * MOST_CHARACTERS  # the axis is two units long
    assert characters.min() >= 4.99  # three letters and a gap
    assert len(labels) > 10
