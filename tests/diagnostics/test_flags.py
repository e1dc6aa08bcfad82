"""Flags of outputs: each on a law where it is expected, and none where nothing is wrong."""

import sys

import numpy as np
import pytest

from nn_uq_dist import InputLaw, Linearization
from nn_uq_dist.diagnostics._flags import flag_outputs, standard_deviations

pytestmark = pytest.mark.viz

BOX = InputLaw(np.zeros(2), 1.0)


def flags(jacobian, law=BOX, **options):
    jacobian = np.asarray(jacobian)
    return flag_outputs(Linearization(np.zeros(len(jacobian)), jacobian, law), **options)


def test_nothing_is_flagged_where_nothing_is_wrong():
    table = flags([[1.0, 1.0], [0.5, -0.7], [2.0, 3.0]])
    assert not table[["constant", "negligible_variance"]].any(axis=None)
    assert (table[["dominated_by", "remark"]] == "").all(axis=None)
    np.testing.assert_allclose(table["sd"], np.sqrt([2 / 3, 0.74 / 3, 13 / 3]), rtol=1e-6)


def test_noise_between_outputs_that_vary_is_negligible():
    # The paper's 16th output: sd 3e-7 beside 0.9.
    jacobian = np.ones((31, 2))
    jacobian[15] = 4e-7
    names = [f"y_{j + 1}" for j in range(31)]
    table = flags(jacobian, output_names=names)
    assert table.index[table["negligible_variance"]].tolist() == ["y_16"]
    words = "variance negligible: sd 3.3e-07, its neighbors' sd 8.2e-01"
    assert table.loc["y_16", "remark"].startswith(words)


def test_threshold_is_a_ratio_of_variances():
    for ratio, flagged in [(0.9e-3, True), (1.1e-3, False)]:
        table = flags(np.array([[1.0, 1.0], [ratio, ratio], [1.0, 1.0]]), negligible=1e-6)
        assert table["negligible_variance"].tolist() == [False, flagged, False]


def test_neighbors_are_the_adjacent_outputs_and_the_median():
    # A run of two: the inner one has a neighbor that varies; the median flags a run of three.
    scales = np.array([1, 1, 1, 1e-9, 1e-9, 1e-9, 1, 1, 1.0])
    table = flags(scales[:, None] * np.ones(2))
    np.testing.assert_array_equal(table["negligible_variance"], scales < 1)
    # Most are tiny and the median with them, but the one next to a large output is beside it.
    scales = np.array([1e-9, 1e-9, 1e-9, 1e-9, 1.0])
    table = flags(scales[:, None] * np.ones(2))
    assert table["negligible_variance"].tolist() == [False, False, False, True, False]


def test_a_single_output_has_no_neighbors():
    assert not flags([[1e-20, 1e-20]])["negligible_variance"].any()


def test_constant_outputs_are_constant_and_nothing_else():
    table = flags([[0.0, 0.0], [1.0, 1.0], [0.0, 5.0]], InputLaw(np.zeros(2), [1.0, 0.0]))
    assert table["constant"].tolist() == [True, False, True]
    assert not table["negligible_variance"].any()
    assert table["dominated_by"].tolist() == ["", "f[0]", ""]
    assert table["remark"].iloc[0] == "does not depend on the input: no density"


def test_dominating_input_is_named():
    for weight, dominated in [(4.0, ""), (4.5, "tide")]:
        # 16/17 is 0.94, 20.25/21.25 is 0.953.
        table = flags([[1.0, weight]], input_names=["wind", "tide"])
        assert table["dominated_by"].item() == dominated
        assert table["remark"].item() == (dominated and "tide explains 95% of the variance")
        strict = flags([[1.0, weight]], input_names=["wind", "tide"], dominated=0.99)
        assert strict["dominated_by"].item() == ""


def test_standard_deviations_do_not_underflow():
    tril = np.array([[0.5, 0.0], [0.4, 0.3]])
    law = InputLaw(np.zeros(2), [1.0, 0.3], tril)
    jacobian = np.array([[1.0, -2.0], [1e-30, 3e-30]])
    covariance = np.diag([1 / 3, 0.03]) + tril @ tril.T
    scaled = jacobian / [[1], [1e-30]]
    expected = np.sqrt(np.diag(scaled @ covariance @ scaled.T)) * [1, 1e-30]
    found = standard_deviations(Linearization(np.zeros(2), jacobian, law))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


WRONG = [
    ({"negligible": 0.0}, ValueError, r"negligible must lie in \(0, 1\), got 0.0"),
    ({"dominated": 1.0}, ValueError, r"dominated must lie in \(0, 1\), got 1.0"),
    ({"output_names": ["a"]}, ValueError, "one name per output, 2, got 1"),
    ({"input_names": ["a", "a"]}, ValueError, "input_names must differ, got a more than once"),
]


def test_wrong_arguments_are_named():
    for wrong, error, message in WRONG:
        with pytest.raises(error, match=message):
            flags(np.ones((2, 2)), **wrong)


def test_wrong_type_and_missing_pandas_are_named(monkeypatch):
    with pytest.raises(
        TypeError, match="linearization must be a Linearization or another LinearModel, got list"
    ):
        flag_outputs([])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"nn_uq_dist\[viz\]"):
        flags(np.ones((2, 2)))
