"""`clipped_correlation`: references, derivatives, transformations, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist.distributions.correlation_matrices import clipped_correlation

pytestmark = pytest.mark.slow

FLOOR = 1e-4
EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}


def gram(rows):
    rows = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return with_unit_diagonal(rows @ rows.T)


def with_unit_diagonal(matrix):
    upper = np.triu(matrix, 1)
    return upper + upper.T + np.eye(len(matrix))


def make_cases(size=31):
    rng = np.random.default_rng(0)
    cases = {f"rank {k}": gram(rng.normal(size=(size, k))) for k in (1, 2, 10)}
    cases["equal columns"] = np.ones((size, size))
    noise = 1e-3 * rng.normal(size=(size, size))
    cases["indefinite"] = with_unit_diagonal(cases["rank 2"] + noise)
    cases["random entries"] = with_unit_diagonal(rng.uniform(-1, 1, (size, size)))
    cases["large entries"] = with_unit_diagonal(rng.uniform(-10, 10, (size, size)))
    cases["all -1"] = with_unit_diagonal(-np.ones((size, size)))
    return cases


CASES = make_cases()


def clipped(matrix, floor):
    """Eigenvalues clipped at the floor; what is above it is rescaled to a unit diagonal."""
    values, vectors = np.linalg.eigh(matrix)
    above = (vectors * np.maximum(values - floor, 0)) @ vectors.T
    scale = np.sqrt(np.diag(above) / (1 - floor))
    return with_unit_diagonal(above / np.outer(scale, scale)) if values[0] < floor else matrix


def repaired(matrix, floor=FLOOR):
    return np.asarray(clipped_correlation(jnp.asarray(matrix, float), floor))


def assert_correlation(matrix, floor, precision):
    assert matrix.dtype == precision
    assert (matrix == np.swapaxes(matrix, -1, -2)).all()
    assert (np.diagonal(matrix, axis1=-2, axis2=-1) == 1).all()
    values = np.linalg.eigvalsh(matrix.astype(float))
    slack = 8 * EPSILON[precision] * np.maximum(values[..., -1], matrix.shape[-1] ** 0.5)
    assert (values[..., 0] >= floor - slack).all()


def symmetric_direction(seed, size):
    return with_unit_diagonal(np.random.default_rng(seed).normal(size=(size, size))) - np.eye(size)


@pytest.mark.parametrize("floor", [FLOOR, 0.05])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_spectral_decomposition(precision, name, floor):
    actual = repaired(CASES[name], floor)
    assert_correlation(actual, floor, precision)
    atol = {"float32": 1e-5, "float64": 1e-11}[precision]
    np.testing.assert_allclose(actual, clipped(CASES[name], floor), rtol=0, atol=atol)


@pytest.mark.parametrize("floor", [0, 1e-4, 0.5])
def test_a_matrix_that_qualifies_is_unchanged(precision, floor):
    rng = np.random.default_rng(1)
    for size in (1, 31):
        matrix = jnp.asarray((1 - floor) * gram(rng.normal(size=(size, 3 * size))), float)
        matrix = matrix.at[jnp.arange(size), jnp.arange(size)].set(1)
        np.testing.assert_array_equal(clipped_correlation(matrix, floor), matrix)
    for name in ("rank 1", "rank 2", "equal columns") if floor == 0 else ():  # singular
        np.testing.assert_array_equal(repaired(CASES[name], 0), jnp.asarray(CASES[name], float))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", [*CASES, "qualifies"])
def test_derivatives_match_finite_differences(name):
    rng = np.random.default_rng(2)
    matrix = CASES.get(name, gram(rng.normal(size=(31, 90))))
    floor, floor_dot, step = 1e-2, 0.3, 1e-6
    direction, weights = symmetric_direction(3, 31), rng.normal(size=(31, 31))
    plus = repaired(matrix + step * direction, floor + step * floor_dot)
    minus = repaired(matrix - step * direction, floor - step * floor_dot)
    expected = (plus - minus) / (2 * step)
    _, forward = jax.jvp(clipped_correlation, (matrix, floor), (direction, floor_dot))
    np.testing.assert_allclose(forward, expected, rtol=0, atol=1e-4)
    assert (forward == forward.T).all()
    assert (jnp.diagonal(forward) == 0).all()

    gradient, floor_gradient = jax.grad(
        lambda m, f: jnp.vdot(weights, clipped_correlation(m, f)), argnums=(0, 1)
    )(matrix, floor)
    reverse = jnp.vdot(gradient, direction) + floor_gradient * floor_dot
    np.testing.assert_allclose(reverse, jnp.vdot(weights, forward), rtol=1e-9, atol=1e-10)
    assert (gradient == gradient.T).all()
    assert (jnp.diagonal(gradient) == 0).all()


@pytest.mark.usefixtures("x64")
def test_second_derivative_is_zero_or_nan():
    direction = symmetric_direction(6, 5)

    def entry(t, matrix):
        return clipped_correlation(matrix + t * direction)[0, 1]

    second = jax.jacfwd(jax.jacrev(entry))
    assert second(0.0, np.eye(5)) == 0
    assert np.isnan(second(0.0, np.ones((5, 5))))


def test_transformations_agree_with_eager(precision):
    batch = jnp.asarray([CASES[k][:5, :5] for k in ("rank 2", "random entries", "all -1")], float)
    atol = 500 * EPSILON[precision]
    floors = jnp.linspace(0.01, 0.5, len(batch))
    eager = jnp.stack([clipped_correlation(m, f) for m, f in zip(batch, floors, strict=True)])
    mapped = jax.jit(jax.vmap(clipped_correlation))(batch, floors)
    np.testing.assert_allclose(mapped, eager, rtol=0, atol=atol)
    # Beside a matrix that qualifies.
    stacked = clipped_correlation(jnp.stack([jnp.eye(5), *batch])[None], floors[0])
    np.testing.assert_allclose(stacked[0, :2], [jnp.eye(5), eager[0]], rtol=0, atol=atol)
    assert clipped_correlation(jnp.zeros((0, 4, 4))).shape == (0, 4, 4)


def test_invalid_traced_values_give_nan(precision):
    compiled = jax.jit(clipped_correlation)
    good = jnp.asarray(CASES["random entries"], float)
    batch = jnp.stack([good.at[3, 4].set(jnp.nan), good.at[4, 3].set(jnp.inf), good])
    result = np.asarray(compiled(batch, 1e-3))
    assert np.isnan(result[:2]).all()
    np.testing.assert_allclose(result[2], repaired(good, 1e-3), atol=1e-5)
    for floor in (-0.1, 1.0, jnp.nan):
        assert np.isnan(compiled(good, floor)).all()
    gradient = jax.jit(jax.grad(lambda m: clipped_correlation(m)[0, 1]))
    assert np.isnan(gradient(batch[0])).any()
    # Asymmetry and diagonal do not matter.
    rng = np.random.default_rng(9)
    skew = jnp.asarray(np.triu(rng.normal(size=good.shape), 1), float)
    changed = good + skew - skew.T + jnp.diag(jnp.asarray(rng.normal(size=31), float))
    np.testing.assert_allclose(compiled(changed, 1e-3), repaired(good, 1e-3), rtol=0, atol=1e-5)


def test_other_dtypes_are_promoted():
    assert clipped_correlation(jnp.eye(3, dtype=jnp.float16)).dtype == jnp.float32
