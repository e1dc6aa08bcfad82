"""A linearization whose laws have been corrected by paired draws."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.basics._summary_line import summary_line
from nn_uq_dist.distributions import (
    CorrectedJoint,
    CorrectedMarginal,
    GaussianCopulaJoint,
    MonotoneSpline,
)
from nn_uq_dist.linearization._correction import controls, correction
from nn_uq_dist.linearization._joint_correlation import joint_correlation
from nn_uq_dist.linearization._remarks import remarks
from nn_uq_dist.linearization._usable_pairs import (
    constant_outputs,
    require_pairs,
    stand_in,
    usable_pairs,
)
from nn_uq_dist.paired_samples import Band, controlled_band
from nn_uq_dist.sampling import PairedDraws, PairedStatistics, paired_statistics

_BAND_POINTS = 99


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class CorrectedLinearization:
    r"""Laws of the outputs of a network: those of its linearization, moved by increasing maps.

    Made by `Linearization.corrected` from paired draws. Output `j` has the law of :math:`T_j(l_j)`.
    Here :math:`l_j` is the linear output, whose law is exact, and :math:`T_j` maps its quantiles to
    those of the network; it is estimated from the differences of paired order statistics. The
    object is an immutable pytree.

    Attributes
    ----------
    linearization
        The `Linearization` or `PartwiseLinearization`.
    pairs : PairedDraws
        What the correction was estimated from.
    transform : MonotoneSpline
        The maps, knots of shape ``batch_shape + (N_y, k)``.
    scores : Array, shape (m,)
        Mean normal score of each probability bin.
    shift : Array, shape batch_shape + (N_y, m)
        Averages over the bins of the network's quantile function minus that of the linear law, with
        control variates, not smoothed.
    standard_error : Array, shape batch_shape + (N_y, m)
        Standard error of the shift.
    unexplained : Array, shape batch_shape + (N_y,)
        Share of the variance of the differences that a polynomial of the inputs does not explain; 1
        where none was used.
    flattened : Array, shape batch_shape + (N_y,)
        Share of the knots at which the estimated map would decrease.
    own_scale : Array, shape batch_shape + (N_y,) or None
        Standard deviations of normal laws that stand in for outputs without sensitivity.
    num_surface_draws : int or None
        As passed to `Linearization.corrected`; `with_noise` uses the same number.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> net = lambda x: jnp.array([jnp.exp(x[0]) + x[1]])
    >>> lin = nuq.linearize(net, nuq.InputLaw([0.0, 0.0], half_width=1.0))
    >>> pairs = nuq.paired_draws(net, lin, jax.random.key(0), 1000, progress=False)
    >>> law = lin.corrected(pairs).marginals()
    >>> print(f"{law.mean[0]:.2f} {lin.mean[0]:.2f}")  # sinh(1) = 1.1752
    1.18 1.00
    """

    linearization: Any
    pairs: PairedDraws
    transform: MonotoneSpline
    scores: Array
    shift: Array
    standard_error: Array
    unexplained: Array
    flattened: Array
    own_scale: Array | None
    num_surface_draws: int | None = dataclasses.field(default=None, metadata={"static": True})

    def __repr__(self) -> str:
        return summary_line(self)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch."""
        shape: tuple[int, ...] = self.linearization.batch_shape
        return shape

    @property
    def num_outputs(self) -> int:
        """Number of outputs ``N_y``."""
        return int(self.linearization.num_outputs)

    @property
    def mean(self) -> Array:
        """Means of the corrected laws, shape ``batch_shape + (N_y,)``."""
        return self.marginals().mean

    @property
    def variance(self) -> Array:
        """Variances of the corrected laws, shape ``batch_shape + (N_y,)``."""
        return self.marginals().variance

    @property
    def correlation(self) -> Array:
        """Correlation of the network's outputs with control variates, ``(N_y, N_y)``.

        Its standard errors are in ``self.statistics.correlation``.

        Raises
        ------
        TypeError
            If values are traced, as for `statistics`.
        """
        dtype = jnp.result_type(self.transform.images)
        return jnp.asarray(self.statistics.correlation.value, dtype)

    @property
    def covariance(self) -> Array:
        """Covariance of the outputs, ``(N_y, N_y)``, from `correlation` and the laws' variances."""
        sd = jnp.sqrt(self.variance)
        return self.correlation * sd[:, None] * sd

    @property
    def statistics(self) -> PairedStatistics:
        """Moments and quantiles of the network's outputs with control variates, and their errors.

        Unlike the corrected laws, they are not smoothed.
        """
        return paired_statistics(self.pairs)

    def unravel(self, values: ArrayLike) -> Any:
        """Return values ``(..., N_y)`` as the network's outputs: see `Linearization.unravel`."""
        return self.linearization.unravel(values)

    def with_noise(self, noise_scale: ArrayLike | None) -> "CorrectedLinearization":
        """Return the laws of outputs with noise, estimated anew from pairs with the same noise.

        Noise added after a map differs from noise added before it. So both members of each pair get
        the noise, and the map is estimated from the noisy pairs.

        Parameters
        ----------
        noise_scale
            Standard deviation of independent normal noise; broadcasts against ``(N_y,)``. ``None``
            for no noise.
        """
        if noise_scale is None:
            return self
        key = jax.random.fold_in(self.pairs.key, 2**32 - 2)
        noisy = self.pairs.plus_noise(noise_scale, key)
        return correct(self.linearization, noisy, self.num_surface_draws)

    def marginals(self, noise_scale: ArrayLike | None = None) -> CorrectedMarginal:
        """Return the laws of the single outputs, batch shape ``batch_shape + (N_y,)``.

        Parameters
        ----------
        noise_scale
            See `with_noise`.
        """
        if noise_scale is not None:
            return self.with_noise(noise_scale).marginals()
        linear = self.linearization.marginals(self._noise)
        return CorrectedMarginal(linear, *self.transform.parameters)

    def joint(
        self,
        noise_scale: ArrayLike | None = None,
        correlation: Literal["nataf", "linear"] = "nataf",
        min_eigenvalue: ArrayLike | None = 1e-4,
    ) -> GaussianCopulaJoint:
        """Return the corrected laws, coupled by a Gaussian copula.

        With ``correlation="nataf"`` the copula matches the network's correlations, estimated with
        control variates. For a batch of means, with traced values and with ``"linear"`` it is the
        copula of the linearization.

        Parameters
        ----------
        noise_scale
            See `with_noise`.
        correlation, min_eigenvalue
            As in `Linearization.joint`.
        """
        if noise_scale is not None:
            return self.with_noise(noise_scale).joint(None, correlation, min_eigenvalue)
        if correlation == "nataf" and not self.batch_shape and _checks.is_concrete(self):
            marginals = self.marginals()
            fit = joint_correlation(marginals, self.correlation, correlation, min_eigenvalue)
            return GaussianCopulaJoint(marginals, fit.matrix)
        linear = self.linearization.joint(self._noise, correlation, min_eigenvalue)
        marginals = CorrectedMarginal(linear.marginals, *self.transform.parameters)
        return GaussianCopulaJoint(marginals, linear.correlation_matrix)

    def linear_joint(self, noise_scale: ArrayLike | None = None) -> CorrectedJoint:
        """Return the joint law of the linear outputs, each transformed by its map.

        Parameters
        ----------
        noise_scale
            See `with_noise`.
        """
        if noise_scale is not None:
            return self.with_noise(noise_scale).linear_joint()
        linear = self.linearization.linear_joint(self._noise)
        return CorrectedJoint(linear, *self.transform.parameters)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of the linear model, mapped: shape ``sample_shape + batch_shape + (N_y,)``.

        Parameters
        ----------
        key
            A JAX random key.
        sample_shape
            Shape of independent draws, in front of the batch shape.
        """
        key_inputs, key_noise = jax.random.split(key)
        linear = self.linearization.sample(key_inputs, sample_shape)
        if self._noise is not None:
            linear = linear + self._noise * jax.random.normal(key_noise, linear.shape)
        return self.transform(linear)

    def band(self, level: float = 0.95) -> Band:
        """Return bands that each hold a network distribution function with a given probability.

        Parameters
        ----------
        level
            Probability that the distribution function of an output lies in its band everywhere.

        Returns
        -------
        Band
            At 99 points of each output, arrays of shape ``(99, ..., N_y)``. It is centered on the
            controlled estimate, not on the corrected law, which is smoother. For quasi-random
            pairs it is wider than it needs to be.

        Raises
        ------
        TypeError
            If values are traced.
        ValueError
            If `level` is not in (0, 1).
        """
        if not 0 < level < 1:
            raise ValueError(
                f"level must be in (0, 1), got {level!r}; pass a fraction such as 0.95"
            )
        if not _checks.is_concrete(self):
            raise TypeError("band needs known values, got traced ones; call it outside jit")
        network, linear, inputs = usable_pairs(self.pairs)
        law = self.marginals()
        found = controls(
            self.linearization, self.pairs, network, linear, inputs, self.num_surface_draws
        )
        levels = (np.arange(_BAND_POINTS) + 0.5) / _BAND_POINTS
        column = levels.reshape(-1, *(1,) * len(law.batch_shape))
        points = np.asarray(law.icdf(jnp.asarray(column, jnp.result_type(law.mean))), np.float64)
        known = np.asarray(law.base.cdf(jnp.asarray(points)), np.float64)
        points, known = points.reshape(_BAND_POINTS, -1), known.reshape(_BAND_POINTS, -1)
        if found.many is not None:
            of_control, of_linear = (_shares(part, points) for part in found.many)
            known = known + of_control - of_linear
        seed = np.asarray(jax.random.key_data(jax.random.fold_in(self.pairs.key, 2**32 - 3)))
        rng = np.random.default_rng(seed.tolist())
        band = controlled_band(
            np.asarray(network, np.float64), np.asarray(found.at_pairs), points, known, level, rng
        )
        shape = (_BAND_POINTS, *law.batch_shape)
        parts = (band.points, band.estimate, band.lower, band.upper)
        points, estimate, lower, upper = (part.reshape(shape) for part in parts)
        return Band(points, estimate, lower, upper, level)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on what the law of each output cannot represent; empty if nothing was found."""
        network, _, _ = usable_pairs(self.pairs)
        own_scale = None if self.own_scale is None else np.asarray(self.own_scale).reshape(-1)
        return remarks(np.asarray(network), np.asarray(self.flattened).reshape(-1), own_scale)

    @property
    def _noise(self) -> ArrayLike | None:
        """Noise of the linear law: that of the pairs, and `own_scale`."""
        noise: ArrayLike | None = self.pairs.noise_scale
        if self.own_scale is None:
            return noise
        return self.own_scale if noise is None else jnp.hypot(self.own_scale, jnp.asarray(noise))


def correct(
    linearization: Any, pairs: Any, num_surface_draws: int | None = None
) -> CorrectedLinearization:
    """Estimate the maps: see `Linearization.corrected`."""
    require_pairs(linearization, pairs)
    if num_surface_draws is not None and num_surface_draws != 0:
        num_surface_draws = _checks.positive_int("num_surface_draws", num_surface_draws)
    if not _checks.is_concrete(linearization, pairs):
        return _estimate(linearization, pairs, num_surface_draws)
    # Known pairs are corrected at once, even if a function under `jit` closes over them.
    with jax.ensure_compile_time_eval():
        return _estimate(linearization, pairs, num_surface_draws)


def _estimate(
    linearization: Any, pairs: PairedDraws, num_surface_draws: int | None
) -> CorrectedLinearization:
    network, linear, inputs = usable_pairs(pairs)
    noise, own_scale = pairs.noise_scale, None
    constant = constant_outputs(linearization, noise)
    if constant is not None:
        own_scale, linear = stand_in(linearization, pairs, network, linear, constant)
        noise = own_scale if noise is None else jnp.hypot(own_scale, jnp.asarray(noise))
    law = linearization.marginals(noise)
    found = controls(linearization, pairs, network, linear, inputs, num_surface_draws)
    dtype = jnp.result_type(law.mean)
    result = correction(law, network, found, pairs.num_randomizations, dtype)
    unexplained = jnp.asarray(found.unexplained, dtype).reshape(law.batch_shape)
    return CorrectedLinearization(
        linearization,
        pairs,
        result.transform,
        result.scores,
        result.shift,
        result.standard_error,
        unexplained,
        result.flattened,
        own_scale,
        num_surface_draws,
    )


def _shares(draws: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Shares of the draws at or below the points."""
    columns = zip(np.sort(draws, axis=0).T, points.T, strict=True)
    found = [np.searchsorted(column, at, side="right") / column.size for column, at in columns]
    return np.stack(found, axis=1)
