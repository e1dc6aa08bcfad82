"""The joint density on a grid: closed forms, moments, Monte Carlo, total variation, errors."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nn_uq_dist import InputLaw, Linearization

joint_density_grid = Linearization.joint_density_grid


def random_linearization(num_outputs, num_inputs, seed=0, law=InputLaw, **scales):
    rng = np.random.default_rng(seed)
    jacobian = rng.normal(size=(num_outputs, num_inputs))
    return Linearization(
        rng.normal(size=num_outputs), jacobian, law(np.zeros(num_inputs), **scales)
    )


def offsets(grid, lin, outputs):
    """Grid points minus the mean, shape (num_points,) * d + (d,)."""
    mesh = np.meshgrid(*grid.points, indexing="ij")
    return np.stack(mesh, axis=-1) - np.asarray(lin.loc, np.float64)[list(outputs)]


def f64(array):
    return np.asarray(array, np.float64)


def uniform_plus_normal(x, half_width, scale):
    upper, lower = (
        stats.norm.cdf((x + half_width) / scale),
        stats.norm.cdf((x - half_width) / scale),
    )
    return (upper - lower) / (2 * half_width)


@pytest.mark.parametrize(
    ("num_outputs", "num_points", "precision"),
    [(2, 128, "float32"), (2, 255, "float64"), (3, 128, "float64")],
    indirect=["precision"],
)
def test_as_many_uniforms_as_outputs_give_a_parallelepiped(precision, num_outputs, num_points):
    jacobian = np.array([[2.0, 0.5, 0.3], [-0.4, 1.0, 0.2], [0.1, -0.3, 0.5]])
    half_width = np.array([0.3, 2.0, 1.0])[:num_outputs]
    jacobian = jacobian[:num_outputs, :num_outputs]
    lin = Linearization(np.arange(num_outputs), jacobian, InputLaw(half_width, half_width))
    grid = joint_density_grid(lin, num_points=num_points)
    inverse = np.linalg.inv(f64(lin.jacobian) * f64(lin.input.half_width))
    uniform = np.abs(offsets(grid, lin, range(num_outputs)) @ inverse.T)
    # Standard deviation of the smoothing in the coordinates in which the law is a cube.
    blur = np.linalg.norm(inverse * grid.resolution, axis=-1)
    inside = (uniform < 1 - 6 * blur).all(axis=-1)
    outside = (uniform > 1 + 6 * blur).any(axis=-1)
    assert inside.any()
    assert outside.any()
    height = abs(np.linalg.det(inverse)) / 2**num_outputs
    np.testing.assert_allclose(grid.density[inside], height, rtol=1e-6)
    np.testing.assert_allclose(grid.density[outside], 0, atol=1e-6 * height)
    assert (grid.density >= 0).all()
    assert (grid.resolution > 0).all()
    assert (grid.resolution < 1.8 * grid.spacing).all()


@pytest.mark.parametrize(("num_outputs", "normal"), [(2, None), (3, 0.05), (2, 0.5)])
def test_independent_outputs_give_the_product_of_their_densities(x64, num_outputs, normal):
    half_width, slopes = np.array([1.0, 0.5, 2.0])[:num_outputs], np.array([2.0, -1.0, 0.3])
    noise = np.array([0.2, 0.0, 0.01])[:num_outputs]
    slopes = slopes[:num_outputs]
    factor = None if normal is None else normal * np.eye(num_outputs)
    law = InputLaw(np.zeros(num_outputs), half_width, factor)
    lin = Linearization(np.ones(num_outputs), np.diag(slopes), law)
    grid = joint_density_grid(lin, num_points=100, noise_scale=noise)
    expected = np.ones(())
    for j, x in enumerate(grid.points):
        scale = math.hypot(noise[j], slopes[j] * (normal or 0), grid.resolution[j])
        one = uniform_plus_normal(x - 1, abs(slopes[j]) * half_width[j], scale)
        expected = expected[..., None] * one
    np.testing.assert_allclose(grid.density, expected, atol=1e-7 * expected.max())


@pytest.mark.parametrize(
    ("num_outputs", "noise", "precision"),
    [(2, None, "float32"), (3, 0.7, "float64")],
    indirect=["precision"],
)
def test_normal_inputs_give_the_normal_density(precision, num_outputs, noise):
    factor = np.eye(4) + np.tril(np.random.default_rng(1).uniform(-0.5, 0.5, size=(4, 4)))
    lin = random_linearization(num_outputs, 4, seed=1, scale_tril=factor)
    grid = joint_density_grid(lin, num_points=160 if num_outputs == 3 else 256, noise_scale=noise)
    root = f64(lin.jacobian) @ f64(lin.input.scale_tril)
    covariance = root @ root.T + (noise or 0) ** 2 * np.eye(num_outputs)
    law = stats.multivariate_normal(np.zeros(num_outputs), covariance)
    expected = law.pdf(offsets(grid, lin, range(num_outputs)))
    assert (grid.resolution == 0).all()
    np.testing.assert_allclose(grid.density, expected, atol=1e-7 * expected.max())


def irwin_hall(x, n):
    """Density of a sum of n uniforms on [-1, 1]."""
    y = (x + n) / 2
    terms = [(-1) ** k * math.comb(n, k) * np.maximum(y - k, 0) ** (n - 1) for k in range(n + 1)]
    return sum(terms) / (2 * math.factorial(n - 1))


@pytest.mark.parametrize(("num_outputs", "axis"), [(2, 0), (3, 1)])
def test_sums_over_the_other_axes_are_marginal_densities(x64, num_outputs, axis):
    jacobian = np.random.default_rng(2).normal(size=(num_outputs, 8))
    jacobian[axis] = 0.25
    lin = Linearization(np.ones(num_outputs), jacobian, InputLaw(np.zeros(8), 2.0))
    grid = joint_density_grid(lin, num_points=160)
    others = tuple(j for j in range(num_outputs) if j != axis)
    marginal = grid.density.sum(axis=others) * np.prod(grid.spacing[list(others)])
    # The seventh-degree spline is smooth across the few nodes of the smoothing.
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    x = grid.points[axis] - 1
    smoothed = 2 * irwin_hall(2 * (x[:, None] + grid.resolution[axis] * nodes), 8)
    expected = smoothed @ weights / weights.sum()
    np.testing.assert_allclose(marginal, expected, atol=1e-7 * expected.max())


def test_draws_of_the_law_pass_a_chi_square_test():
    num_outputs = 3
    rng = np.random.default_rng(3)
    factor = np.tril(rng.uniform(0.1, 0.3, (5, 5)))
    half_width = np.array([1.0, 0.5, 0.0, 2.0, 0.3])
    noise = np.array([0.4, 0.0, 0.3])[:num_outputs]
    lin = random_linearization(num_outputs, 5, half_width=half_width, scale_tril=factor)
    grid = joint_density_grid(lin, num_points=128, noise_scale=noise)
    draws = rng.uniform(-1, 1, (400_000, 5)) * half_width + rng.normal(size=(400_000, 5)) @ factor.T
    draws = f64(lin.loc) + draws @ f64(lin.jacobian).T
    draws += noise * rng.normal(size=draws.shape)

    width = 8  # cells per bin
    edges = [x[::width] - h / 2 for x, h in zip(grid.points, grid.spacing, strict=True)]
    edges = [np.append(e, e[-1] + width * h) for e, h in zip(edges, grid.spacing, strict=True)]
    observed, _ = np.histogramdd(draws, edges)
    assert observed.sum() == len(draws)
    blocks = grid.density.reshape((128 // width, width) * num_outputs)
    expected = blocks.sum(axis=tuple(range(1, 2 * num_outputs, 2)))
    expected *= grid.cell_volume * len(draws)
    common = expected > 20
    assert common.sum() > 30
    cells = [np.append(a[common], a[~common].sum()) for a in (observed, expected)]
    statistic = np.sum((cells[0] - cells[1]) ** 2 / cells[1])
    # A right density fails with probability 1e-6.
    assert statistic < stats.chi2.isf(1e-6, common.sum())


@given(
    seed=st.integers(0, 2**31),
    num_inputs=st.integers(2, 9),
    num_points=st.integers(128, 300),
    box=st.booleans(),
    normal=st.floats(0, 1),
    noise=st.sampled_from([0.0, 1e-3, 0.5]),
)
@settings(max_examples=40, deadline=None)
def test_mass_and_moments_are_the_closed_forms(seed, num_inputs, num_points, box, normal, noise):
    rng = np.random.default_rng(seed)
    # Orthogonal rows, then a moderate correlation.
    rows = np.linalg.qr(rng.normal(size=(num_inputs, 2)))[0].T
    jacobian = np.array([[1.0, 0.0], [1.0, 1.0]]) @ rows * 10 ** rng.uniform(-5, 5, (2, 1))
    half_width = rng.uniform(0.5, 1, num_inputs) if box else None
    factor = (normal if box else 1.0) * np.eye(num_inputs)
    lin = Linearization([3.0, -4.0], jacobian, InputLaw(np.zeros(num_inputs), half_width, factor))
    sizes = np.linalg.norm(f64(lin.jacobian), axis=-1)
    grid = joint_density_grid(lin, num_points=num_points, noise_scale=noise * sizes)
    inner = f64(factor) @ factor.T + (np.diag(half_width**2) / 3 if box else 0)
    covariance = f64(lin.jacobian) @ inner @ f64(lin.jacobian).T
    covariance += np.diag((noise * sizes) ** 2 + grid.resolution**2)

    weights = grid.density * grid.cell_volume
    assert weights.sum() == pytest.approx(1, abs=1e-6)
    deviation = offsets(grid, lin, (0, 1)) / sizes
    np.testing.assert_allclose(np.einsum("xy,xyj->j", weights, deviation), 0, atol=1e-5)
    moments = np.einsum("xy,xyi,xyj->ij", weights, deviation, deviation)
    np.testing.assert_allclose(moments, covariance / np.outer(sizes, sizes), atol=1e-5)


def test_indices_choose_and_order_the_axes():
    lin = random_linearization(5, 6, half_width=1.0)
    noise = np.array([0.0, 5.0, 0.1, 5.0, 0.2])
    grid = joint_density_grid(lin, (0, 2, 4), 64, noise)
    assert grid.density.shape == (64, 64, 64)
    for order in itertools.permutations(range(3)):
        indices = [(0, 2, 4)[i] for i in order]
        other = joint_density_grid(lin, indices, 64, noise)
        np.testing.assert_allclose(other.resolution, grid.resolution[list(order)], rtol=1e-9)
        for j, i in enumerate(order):
            np.testing.assert_array_equal(other.points[j], grid.points[i])
        np.testing.assert_allclose(
            other.density, grid.density.transpose(order), atol=1e-9 * grid.density.max()
        )


@pytest.mark.parametrize(
    ("num_points", "precision"), [(128, "float32"), (129, "float64")], indirect=["precision"]
)
def test_points_are_regular_hold_the_mean_and_are_in_float64(precision, num_points):
    lin = Linearization([1e5 + 0.1, -3.0], [[1e-3, 0.0], [0.0, 2.0]], InputLaw([0.0, 0.0], 1.0))
    grid = joint_density_grid(lin, num_points=num_points)
    for j, x in enumerate(grid.points):
        assert x.dtype == grid.density.dtype == grid.resolution.dtype == np.float64
        assert x.shape == (num_points,)
        np.testing.assert_allclose(np.diff(x), grid.spacing[j], rtol=1e-5)
        assert f64(lin.loc)[j] in x
    assert grid.cell_volume == pytest.approx(np.prod(grid.spacing))
    assert grid.density.sum() * grid.cell_volume == pytest.approx(1, abs=1e-6)
    assert grid.density.max() == pytest.approx(1 / (4 * 2e-3), rel=1e-6)


def test_many_inputs_do_not_widen_the_grid_beyond_eight_standard_deviations():
    lin = random_linearization(2, 400, half_width=1.0)
    grid = joint_density_grid(lin, num_points=200)
    reach = [x[-1] - m for x, m in zip(grid.points, f64(lin.loc), strict=True)]
    assert (reach / np.sqrt(f64(lin.variance)) < 10).all()
    # By the Berry-Esseen effect of 400 uniforms: excess kurtosis of about -1.2/400 * 1.8.
    law = stats.multivariate_normal(f64(lin.loc), f64(lin.covariance))
    normal = law.pdf(offsets(grid, lin, (0, 1)) + f64(lin.loc))
    np.testing.assert_allclose(grid.density, normal, atol=0.01 * normal.max())


@pytest.mark.parametrize(
    ("num_outputs", "shift", "precision"),
    [(2, 0.0, "float32"), (2, 0.3, "float64"), (3, 2.0, "float32")],
    indirect=["precision"],
)
def test_total_variation_of_two_normals(precision, num_outputs, shift):
    law = InputLaw(np.zeros(num_outputs), scale_tril=np.eye(num_outputs))
    grid = joint_density_grid(
        Linearization(np.zeros(num_outputs), np.eye(num_outputs), law),
        num_points=256 if num_outputs == 2 else 80,
    )

    def log_prob(y):
        return jax.scipy.stats.norm.logpdf(y.at[..., 0].add(-shift)).sum(axis=-1)

    exact = 2 * stats.norm.cdf(shift / 2) - 1
    # Euler and Maclaurin: where the slope of max(p - q, 0) jumps by k, the sum is off by h^2 k/12.
    error = grid.spacing[0] ** 2 * shift * stats.norm.pdf(shift / 2) / 12
    assert grid.total_variation(log_prob) == pytest.approx(exact, abs=1e-6 + error)


def log_uniform(low, high):
    volume = np.log(np.prod(np.subtract(high, low)))

    def log_prob(y):
        inside = ((y > jnp.asarray(low)) & (y < jnp.asarray(high))).all(axis=-1)
        return jnp.where(inside, -volume, -jnp.inf)

    return log_prob


def test_total_variation_of_two_boxes():
    grid = joint_density_grid(
        Linearization([0.0, 0.0], np.diag([1.0, 2.0]), InputLaw([0.0, 0.0], 1.0)), num_points=512
    )
    # Points beyond the grid fold back onto it only where the density is zero.
    for low, high, exact, error in (
        ((-1, -2), (1, 2), 0.0, 1e-4),  # the law itself
        ((0, -2), (2, 2), 0.5, 0.005),
        ((-4, -8), (4, 8), 15 / 16, 0.005),  # mostly outside the grid
        ((3, 3), (4, 4), 1.0, 0.005),
    ):
        assert grid.total_variation(log_uniform(low, high)) == pytest.approx(exact, abs=error)


def test_smoothing_by_the_resolution_shrinks_with_the_cells():
    lin = random_linearization(2, 3, half_width=1.0)
    coarse, fine = (joint_density_grid(lin, num_points=n) for n in (128, 512))
    assert (fine.resolution < coarse.resolution / 3.5).all()
    assert (fine.resolution > 0).all()


def test_noise_gives_dependent_outputs_a_density():
    lin = Linearization([0.0, 0.0, 1.0], [[1.0], [-2.0], [0.0]], InputLaw([0.0], 1.0))
    grid = joint_density_grid(lin, (0, 1), noise_scale=[0.1, 0.2, 0.0])
    # Along u the point (u, -2u) carries the mass; noise is normal around it.
    u, weight = np.polynomial.legendre.leggauss(200)
    x, y = (
        stats.norm.pdf((p[:, None] - s * u) / n) / n
        for p, s, n in zip(grid.points, (1, -2), (0.1, 0.2), strict=True)
    )
    expected = (x * weight / 2) @ y.T
    assert (grid.resolution == 0).all()
    np.testing.assert_allclose(grid.density, expected, atol=1e-6 * expected.max())
    constant = joint_density_grid(lin, (2, 0), noise_scale=0.1)
    np.testing.assert_allclose(
        constant.density.sum(axis=1) * constant.spacing[1],
        stats.norm.pdf(constant.points[0], 1, 0.1),
        atol=1e-6,
    )


def collinear(angle):
    return Linearization([0.0, 0.0], [[1.0, 0.0], [1.0, angle]], InputLaw([0.0, 0.0], 1.0))


@pytest.mark.parametrize("num_outputs", [2, 3])
def test_the_number_of_points_in_the_message_is_enough(num_outputs):
    jacobian = np.array([[1.0, 0, 0], [1.0, 0.02 if num_outputs == 2 else 0.3, 0], [0, 0, 1.0]])
    lin = Linearization(np.zeros(num_outputs), jacobian[:num_outputs], InputLaw(np.zeros(3), 1.0))
    with pytest.raises(ValueError, match=r"2 expected; pass num_points=\d+$") as caught:
        joint_density_grid(lin, num_points=40)
    needed = int(str(caught.value).rsplit("=", maxsplit=1)[-1])
    grid = joint_density_grid(lin, num_points=needed)
    assert grid.density.sum() * grid.cell_volume == pytest.approx(1, abs=1e-6)
    with pytest.raises(ValueError, match="smallest standard deviation"):
        joint_density_grid(lin, num_points=needed - 4)


LIN = random_linearization(4, 3, half_width=1.0)
BOX = InputLaw(np.zeros(3), 1.0)
DEPENDENT = [[1.0, 2.0, 0.0], [0.0, 1.0, 1.0], [-2.0, -4.0, 0.0], [1.0, 3.0, 1.0], [0.0] * 3]
RANK_2 = Linearization(np.zeros(5), DEPENDENT, BOX)
GRID = joint_density_grid(LIN, (0, 1), 64)
ERRORS = {
    "one": (lambda: joint_density_grid(LIN, (1,)), ValueError, r"got 1; .* marginals\(\) for one"),
    "all of four": (lambda: joint_density_grid(LIN), ValueError, r"got 4; .* joint\(\) for all"),
    "repeated": (lambda: joint_density_grid(LIN, (1, 1)), ValueError, "distinct, got 1 twice"),
    "unknown": (
        lambda: joint_density_grid(LIN, (1, 4)),
        ValueError,
        "unknown index 4; .* 0 to 3",
    ),
    "batch": (
        lambda: joint_density_grid(Linearization(np.zeros((5, 2)), np.eye(2, 3), BOX)),
        ValueError,
        r"batch shape \(\), got \(5,\); pass one entry, linearization",
    ),
    "traced": (
        lambda: jax.jit(lambda loc: joint_density_grid(Linearization(loc, np.eye(2, 3), BOX)))(
            jnp.zeros(2)
        ),
        TypeError,
        "known values, got traced ones; call it outside jit",
    ),
    "few points": (
        lambda: joint_density_grid(LIN, (0, 1), 31),
        ValueError,
        "between 32 and 5792 for 2 outputs .* got 31",
    ),
    "many points": (
        lambda: joint_density_grid(LIN, (0, 1, 2), 323),
        ValueError,
        "between 32 and 322 for 3 outputs .* got 323",
    ),
    "noise batch": (
        lambda: joint_density_grid(LIN, (0, 1), noise_scale=np.ones((2, 1))),
        ValueError,
        r"noise_scale must have shape \(\) or \(4,\), got shape \(2, 1\)",
    ),
    "proportional": (
        lambda: joint_density_grid(RANK_2, (2, 1, 0)),
        ValueError,
        "linearly dependent outputs 2 and 0: there is no joint density; pass noise_scale > 0",
    ),
    "coplanar": (
        lambda: joint_density_grid(RANK_2, (0, 1, 3)),
        ValueError,
        "linearly dependent outputs 0 and 1 and 3:",
    ),
    "constant": (
        lambda: joint_density_grid(RANK_2, (0, 4)),
        ValueError,
        "got constant output 4: there is no joint density; pass noise_scale > 0",
    ),
    "nearly collinear": (
        lambda: joint_density_grid(collinear(0.01), num_points=256),
        ValueError,
        r"law of outputs \(0, 1\), got a smallest standard deviation of \S+ cells .* num_points=",
    ),
    "too collinear": (
        lambda: joint_density_grid(collinear(1e-4)),
        ValueError,
        "points per output are too many: pass noise_scale > 0 or other outputs",
    ),
    "not finite": (
        lambda: joint_density_grid(
            jax.tree.map(lambda leaf: leaf * jnp.nan, random_linearization(2, 3, half_width=1.0))
        ),
        ValueError,
        "the Jacobian times the scales of the input must be finite, got nan",
    ),
    "a distribution": (
        lambda: GRID.total_variation(dist.Normal()),
        TypeError,
        "log_prob must be a function, got the distribution Normal; pass its method log_prob",
    ),
    "log_prob shape": (
        lambda: GRID.total_variation(lambda y: -(y**2)),
        ValueError,
        r"map points of shape \(64, 64, 2\) to shape \(64, 64\), got \(64, 64, 2\)",
    ),
    "traced noise": (
        lambda: jax.jit(lambda s: joint_density_grid(LIN, (0, 1), noise_scale=s).density)(1.0),
        TypeError,
        "got traced ones",
    ),
    "log_prob infinite": (
        lambda: GRID.total_variation(lambda y: jnp.full(y.shape[:-1], jnp.inf)),
        ValueError,
        "log_prob must be finite or -inf, got inf at the point",
    ),
    "log_prob nan": (
        lambda: GRID.total_variation(lambda y: jnp.full(y.shape[:-1], jnp.nan)),
        ValueError,
        r"log_prob must be finite or -inf, got nan at the point \[-",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, kind, message = ERRORS[case]
    with pytest.raises(kind, match=message):
        call()


def test_dependence_is_found_in_a_rounded_jacobian(precision):
    row = np.random.default_rng(5).normal(size=50)
    jacobian = np.stack([row / 3, row**2, row * 0.7])
    lin = Linearization(np.zeros(3), jacobian, InputLaw(np.zeros(50), 0.1))
    with pytest.raises(ValueError, match="linearly dependent"):
        joint_density_grid(lin, (2, 0))
    assert joint_density_grid(lin, (0, 1)).density.shape == (256, 256)
