"""The exact joint density of two or three outputs of a linearized network, on a grid."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.fft
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._known_values import FloatArray, in_float64
from nn_uq_dist.basics._summary_line import summary_line

# A sum of uniforms and normals is sub-Gaussian with its own variance, as sinh(s)/s <= exp(s^2/6):
# beyond 8 standard deviations each output has less than 2 exp(-32) = 3e-14 of its mass.
_STANDARD_DEVIATIONS = 8.0
# Cells between the support and the edge of the grid: the smoothing never exceeds 1.94 cells.
_MARGIN = 12
_POINTS_PER_CALL = 2**16
_CF_AT_THE_EDGE = 1e-8
MAXIMUM_POINTS = 2**25
MINIMUM_POINTS_PER_AXIS = 32
_NARROWEST_CELLS = 2.0


@dataclasses.dataclass(frozen=True, eq=False)
class JointDensityGrid:
    r"""The joint density of `d` outputs at the points of a regular grid.

    Made by `Linearization.joint_density_grid`. All arrays are NumPy arrays in float64, whatever
    the precision of JAX. The grid holds all of the law but 1e-13 of its mass: the sum of
    `density` times `cell_volume` is 1, and sums over one axis times its `spacing` are marginals.

    Attributes
    ----------
    points : tuple of numpy.ndarray
        Coordinates of the grid along each output, `d` arrays of shape ``(num_points,)``.
    density : numpy.ndarray
        Density at the points, shape ``(num_points,) * d``, axes in the order of `points`.
    resolution : numpy.ndarray
        Standard deviation of the normal smoothing along each output, shape ``(d,)``, in the units
        of that output: `density` is that of the outputs plus normal noise of these scales. Zero
        where the law is smooth on the grid by itself.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist import InputLaw, Linearization
    >>> lin = Linearization(jnp.zeros(2), [[1.0, 1.0], [1.0, -1.0]], InputLaw(jnp.zeros(2), 1.0))
    >>> grid = lin.joint_density_grid(num_points=128)
    >>> round(float(grid.density.sum() * grid.cell_volume), 6)
    1.0
    """

    points: tuple[FloatArray, ...]
    density: FloatArray
    resolution: FloatArray

    def __repr__(self) -> str:
        return summary_line(self)

    @property
    def spacing(self) -> FloatArray:
        """Distance of neighboring points along each output, shape ``(d,)``."""
        return np.array([(x[-1] - x[0]) / (len(x) - 1) for x in self.points])

    @property
    def cell_volume(self) -> float:
        """Volume of the cell around each point, for sums over the grid."""
        return float(np.prod(self.spacing))

    def total_variation(self, log_prob: Callable[[Any], ArrayLike]) -> float:
        r"""Total variation distance to another law with a density, between 0 and 1.

        It is :math:`\int (p - q)_+ = \frac12 \int |p - q|`, summed over the grid; the first form
        also holds for a `q` that reaches beyond the grid. `q` is smoothed by `resolution`, as
        `density` is. This lowers the distance, in proportion to the size of a cell where densities
        jump (two or three inputs, no normal part): double `num_points` until the value settles.

        Parameters
        ----------
        log_prob
            Log density of the other law, such as that of a NumPyro distribution with ``event_shape
            (d,)``: it maps points of shape ``(..., d)`` to shape ``(...)``, ``-inf`` outside the
            support.

        Raises
        ------
        TypeError
            If `log_prob` is a distribution.
        ValueError
            If `log_prob` returns another shape, NaN or ``+inf``.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> import numpyro.distributions as dist
        >>> from nn_uq_dist import InputLaw, Linearization
        >>> law = InputLaw(jnp.zeros(2), scale_tril=jnp.eye(2))
        >>> grid = Linearization(jnp.zeros(2), [[2.0, 0.0], [1.0, 1.0]], law).joint_density_grid()
        >>> other = dist.MultivariateNormal(jnp.zeros(2), jnp.array([[4.0, 2.0], [2.0, 2.0]]))
        >>> grid.total_variation(other.log_prob) < 1e-4
        True
        """
        if isinstance(log_prob, Distribution):  # which can be called, but does not compute this
            raise TypeError(
                f"log_prob must be a function, got the distribution {type(log_prob).__name__}; "
                "pass its method log_prob"
            )
        other = _density_at(log_prob, self.points)
        if self.resolution.any():
            at = frequencies(other.shape, self.spacing)
            spectrum = scipy.fft.rfftn(other)
            spectrum *= normal_factor(at, np.diag(self.resolution**2))
            other = scipy.fft.irfftn(spectrum, s=other.shape)
        excess = np.maximum(self.density - other, 0)
        return float(excess.sum() * self.cell_volume)


def joint_density_grid(
    linearization: Any,
    indices: Sequence[int] | None,
    num_points: int,
    noise_scale: ArrayLike | None,
    noise_covariance: ArrayLike | None,
) -> JointDensityGrid:
    r"""Return the joint density of outputs on a grid, from its characteristic function.

    The law of :math:`m + W U + B N + \sigma \odot N'`, centered at :math:`m`, has the real
    characteristic function

    .. math:: \prod_k \frac{\sin x_k}{x_k}\,
        \exp\Bigl(-\tfrac12 |B^T \omega|^2 - \tfrac12 \sum_j \sigma_j^2 \omega_j^2\Bigr),
        \qquad x_k = (W^T \omega)_k,

    and its inverse Fourier transform on a box that holds the law is a sum over a lattice of
    frequencies (Poisson summation), computed by FFT in float64. With few inputs this function
    decays slowly, and cutting it off at the highest frequency of the grid would ring at the edges
    of the support. There it is damped to 1e-8 by the smallest normal smoothing that does so, the
    ``resolution`` of the result: 1.6 cells for two inputs, less for more, zero for smooth laws.

    Parameters are those of `Linearization.joint_density_grid`.
    """
    if not _checks.is_concrete(linearization, noise_scale, noise_covariance):
        raise TypeError(
            "linearization must hold known values, got traced ones; call it outside jit and vmap"
        )
    if linearization.batch_shape:
        raise ValueError(
            f"linearization must have batch shape (), got {linearization.batch_shape}; pass one "
            f"entry, linearization[i]"
        )
    outputs = two_or_three_outputs(indices, linearization.num_outputs)
    num_points = points_per_axis(num_points, len(outputs))
    exact = in_float64(linearization)
    noise_scale = 0.0 if noise_scale is None else noise_scale
    image = exact.image(noise_scale, noise_covariance)
    if image.shape != linearization.loc.shape:
        raise ValueError(
            f"noise_scale must have shape () or ({linearization.num_outputs},), got shape "
            f"{np.shape(noise_scale)}; pass one standard deviation per output"
        )
    image = image.take(outputs)
    # At least as many columns as rows: each output has a column of its own for the noise.
    root = np.asarray(image.root)
    _checks.require_finite("the Jacobian times the scales of the input", root)
    require_full_rank(root, outputs, float(jnp.finfo(linearization.jacobian.dtype).eps))
    weights, covariance = np.asarray(image.weights), np.asarray(image.normal_covariance)

    reach = _STANDARD_DEVIATIONS * np.sqrt(np.diagonal(covariance))
    half_range = np.minimum(
        np.abs(weights).sum(axis=-1) + reach, _STANDARD_DEVIATIONS * np.linalg.norm(root, axis=-1)
    )
    # An odd number of cells, centered on the mean, fills the range: its ends lie halfway between
    # two points, so no point falls on a jump of the density there.
    margin = _MARGIN + (0.5 if num_points % 2 == 0 else 0.0)
    spacing = 2 * half_range / (num_points - 2 * margin)
    require_resolved(root / spacing[:, None], outputs, num_points, margin)

    resolution = needed_smoothing(weights, covariance, spacing, num_points)
    shape = (num_points,) * len(outputs)
    at = frequencies(shape, spacing)
    spectrum = normal_factor(at, covariance + np.diag(resolution**2))
    for factor in uniform_factors(at, weights):
        spectrum *= factor
    density = scipy.fft.irfftn(spectrum, s=shape, overwrite_x=True)
    density = np.fft.fftshift(np.maximum(density, 0)) / np.prod(spacing)
    steps = np.arange(num_points) - num_points // 2
    loc = np.asarray(exact.loc)[list(outputs)]
    points = tuple(m + h * steps for m, h in zip(loc, spacing, strict=True))
    return JointDensityGrid(points, density, resolution)


def _density_at(log_prob: Callable[[Any], ArrayLike], points: tuple[FloatArray, ...]) -> FloatArray:
    first, *others = points
    layers = max(1, _POINTS_PER_CALL // math.prod(len(x) for x in others))
    parts = []
    for start in range(0, len(first), layers):
        axes = (first[start : start + layers], *others)
        block = jnp.asarray(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1))
        values = np.asarray(log_prob(block), np.float64)
        if values.shape != block.shape[:-1]:
            raise ValueError(
                f"log_prob must map points of shape {block.shape} to shape {block.shape[:-1]}, got "
                f"{values.shape}; pass that of a law with event_shape ({block.shape[-1]},)"
            )
        bad = np.isnan(values) | (values == np.inf)
        if bad.any():
            raise ValueError(
                f"log_prob must be finite or -inf, got {values[bad][0]} at the point "
                f"{block[_checks.first_index(bad)].tolist()}; return -inf outside the support"
            )
        parts.append(np.exp(values))
    return np.concatenate(parts)


def frequencies(shape: tuple[int, ...], spacing: FloatArray) -> list[FloatArray]:
    """Cycles per unit along each axis of a real FFT, shaped to broadcast against each other."""
    axes = [scipy.fft.fftfreq(n, h) for n, h in zip(shape, spacing, strict=True)]
    axes[-1] = scipy.fft.rfftfreq(shape[-1], spacing[-1])
    return list(np.meshgrid(*axes, indexing="ij", sparse=True))


def normal_factor(at: list[FloatArray], covariance: FloatArray) -> Any:
    """Characteristic function of a centered normal law with this covariance matrix."""
    rows = [_inner(row, at) for row in covariance]
    return np.exp(-2 * np.pi**2 * sum(f * r for f, r in zip(at, rows, strict=True)))


def uniform_factors(at: list[FloatArray], columns: FloatArray) -> Any:
    """Characteristic function of each column times a uniform variable on (-1, 1), one by one."""
    for column in columns.T[np.any(columns != 0, axis=0)]:
        # sinc(x) = sin(pi x)/(pi x), so it includes the factor pi of the angular frequency.
        yield np.sinc(2 * _inner(column, at))


def needed_smoothing(
    columns: FloatArray, covariance: FloatArray, spacing: FloatArray, num_points: int
) -> FloatArray:
    """Smoothing that brings the characteristic function to 1e-8 at the highest frequencies.

    Parameters
    ----------
    columns
        Of the uniforms, shape ``(d, n)``.
    covariance
        Of the normal part, shape ``(d, d)``.
    spacing, num_points
        Of the grid along each axis.

    Returns
    -------
    FloatArray
        Standard deviation of independent normal noise along each axis, shape ``(d,)``.
    """
    resolution = np.zeros(len(spacing))
    for axis, step in enumerate(spacing):
        axes = [scipy.fft.fftfreq(num_points, h) for h in spacing]
        axes[axis] = np.array([0.5 / step])
        face = list(np.meshgrid(*axes, indexing="ij", sparse=True))
        # |sin x / x| <= min(1, 1/|x|), which, unlike the left side, never grows along a ray from
        # the origin: its maximum over the faces bounds everything that the grid leaves out.
        bound = normal_factor(face, covariance)
        for column in columns.T:
            bound = bound / np.maximum(1, np.abs(2 * np.pi * _inner(column, face)))
        excess = max(float(np.max(bound)) / _CF_AT_THE_EDGE, 1.0)
        resolution[axis] = step * math.sqrt(2 * math.log(excess)) / np.pi
    return resolution


def _inner(vector: FloatArray, at: list[FloatArray]) -> Any:
    return sum(v * f for v, f in zip(vector, at, strict=True))


def two_or_three_outputs(indices: Sequence[int] | None, num_outputs: int) -> tuple[int, ...]:
    """Return the numbers of the outputs, from 0, in the order of the axes of the result."""
    given = range(num_outputs) if indices is None else indices
    count = 1 if np.ndim(given) == 0 else len(given)
    if count not in {2, 3}:
        raise ValueError(
            f"indices must name 2 or 3 outputs, got {count}; pass indices=(i, j) for two of "
            f"many, take marginals() for one (a LinearizedMarginal) or joint() for all"
        )
    return _checks.as_indices(given, num_outputs)


def points_per_axis(num_points: int, num_axes: int) -> int:
    """Return the points along each axis as an integer, checked for a grid with this many axes."""
    num_points = _checks.positive_int("num_points", num_points)
    largest = int(MAXIMUM_POINTS ** (1 / num_axes))
    if not MINIMUM_POINTS_PER_AXIS <= num_points <= largest:
        raise ValueError(
            f"num_points must be between {MINIMUM_POINTS_PER_AXIS} and {largest} for {num_axes} "
            f"outputs (2**25 points in all), got {num_points}; pass 256, or fewer outputs"
        )
    return num_points


def require_full_rank(root: FloatArray, outputs: Sequence[int], eps: float) -> None:
    """Raise ``ValueError`` if an output is constant or a linear function of the others.

    Parameters
    ----------
    root
        Factor of the covariance, shape ``(d, m)`` with ``m >= d``.
    outputs
        Names of the rows, for the message.
    eps
        Relative rounding error of the entries.
    """
    remedy = "there is no joint density; pass noise_scale > 0 or other outputs"
    norm = np.linalg.norm(root, axis=-1, keepdims=True)
    if not norm.all():
        constant = outputs[int(np.argmin(norm))]
        raise ValueError(
            f"every output must vary with the input, got constant output {constant}: {remedy}"
        )
    rows = root / norm
    for size in range(2, len(outputs) + 1):
        for subset in itertools.combinations(range(len(outputs)), size):
            # The smallest singular value: about the root of 1 - |correlation| for two outputs,
            # it moves by eps when the Jacobian is rounded.
            if np.linalg.norm(rows[list(subset)], ord=-2) <= 100 * eps:
                named = " and ".join(str(outputs[i]) for i in subset)
                raise ValueError(
                    f"outputs must be linearly independent, got linearly dependent outputs "
                    f"{named}: {remedy}"
                )


def require_resolved(
    root_in_cells: FloatArray, outputs: Sequence[int], num_points: int, margin: float
) -> None:
    """Raise ``ValueError`` if the law is narrower than two cells in some direction.

    Parameters
    ----------
    root_in_cells
        Factor of the covariance in units of the cells, shape ``(d, m)`` with ``m >= d``.
    outputs
        Names of the rows, for the message.
    num_points, margin
        Points along each axis, and the number of free cells at each end.
    """
    narrowest = float(np.linalg.norm(root_in_cells, ord=-2))  # the smallest singular value
    if narrowest >= _NARROWEST_CELLS:
        return
    filled = num_points - 2 * margin
    # Half a cell more at each end if the number of points is even.
    needed = math.ceil(filled * _NARROWEST_CELLS / narrowest + 2 * math.floor(margin) + 1)
    remedy = f"pass num_points={needed}"
    if needed ** len(outputs) > MAXIMUM_POINTS:
        remedy = f"{needed} points per output are too many: pass noise_scale > 0 or other outputs"
    raise ValueError(
        f"the grid must resolve the law of outputs {tuple(outputs)}, got a smallest standard "
        f"deviation of {narrowest:.3g} cells in some direction, at least {_NARROWEST_CELLS:g} "
        f"expected; {remedy}"
    )
