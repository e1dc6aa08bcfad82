"""A linearization whose distributions have been corrected by paired draws."""

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray, evaluated_now
from nn_uq_dist.basics.pytree import entries, register_frozen
from nn_uq_dist.basics.row_algebra import in_squared_units, matvec
from nn_uq_dist.basics.summary_line import summary_line
from nn_uq_dist.distributions import (
    CorrectedMarginal,
    LinearizedJoint,
    MonotoneSpline,
    NoisyMarginal,
)
from nn_uq_dist.distributions.linear_image import output_noise
from nn_uq_dist.inputs import Input
from nn_uq_dist.linearization._linear_fit import LinearFit, linear_fit, usable_pairs
from nn_uq_dist.linearization._linear_model import LinearModel
from nn_uq_dist.linearization._linearized_input_posterior import (
    LinearizedInputPosterior,
    linearized_input_posterior,
)
from nn_uq_dist.sampling import PairedDraws, paired_statistics
from nn_uq_dist.sampling.flat_network import OutputNumbers, OutputStructure, by_names

# More equal draws than this share, and at least this number, indicate a point mass.
_POINT_MASS, _FEWEST_EQUAL = 0.01, 5
# Share of the draws within this many standard deviations that makes a narrow peak.
_PEAK, _NARROW = 0.1, 1e-3
# Log of the ratio of the outermost slope to the mean one, beyond which a tail follows no draws.
_BENT = 0.7
# Excess kurtosis, 0 for a normal distribution; above this value moments rest on a few draws.
_HEAVY = 10.0


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class CorrectedLinearization(LinearModel):
    r"""A linearization, corrected by the outputs of the network at some random inputs.

    Made by `Linearization.corrected` from paired draws. Output `j` has the distribution of
    :math:`T_j(l_j)`. Here :math:`l_j` is the linear output, whose distribution is exact, and
    :math:`T_j` maps its quantiles to those of the network; it is estimated from the differences of
    paired order statistics. The joint distribution is corrected in another way: see `joint`. The
    object is an immutable pytree, and may be passed to ``jit``.

    Traced pairs, as those of a model that makes the correction anew, are not mapped: then there are
    `joint`, draws and `input_posterior`; `transform` and what follows it below are ``None``.

    Attributes
    ----------
    pairs : PairedDraws
        What the correction was estimated from.
    transform : MonotoneSpline
        The maps, knots of shape ``batch_shape + (N_y, k)``.
    unexplained : Array, shape batch_shape + (N_y,)
        Share of the variance of the differences that a polynomial of the inputs does not explain; 1
        where none was used.
    own_scale : Array, shape batch_shape + (N_y,) or None
        Standard deviations of normal variables that are added to the linear outputs: in place of
        outputs without sensitivity, and small ones, in proportion to what no function of the linear
        output explains, so that no output of the network has density zero.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> network = lambda x: jnp.array([jnp.exp(x[0]) + x[1]])
    >>> lin = nuq.linearize(network, nuq.Input.box([0.0, 0.0], half_width=1.0))
    >>> pairs = nuq.paired_draws(network, lin, jax.random.key(0), 1000, progress=False)
    >>> distribution = lin.corrected(pairs).marginals()
    >>> print(f"{distribution.mean[0]:.2f} {lin.mean[0]:.2f}")  # sinh(1) = 1.1752
    1.18 1.00
    """

    pairs: PairedDraws
    transform: MonotoneSpline | None = None
    unexplained: Array | None = None
    own_scale: Array | None = None

    def __repr__(self) -> str:
        return summary_line(self)

    @property
    def linearization(self) -> Any:
        """The `Linearization`, that of the pairs."""
        return self.pairs.linearization

    @property
    def input(self) -> Input:  # type: ignore[override]  # a field of the other models
        """Distribution of the random input."""
        return self.linearization.input

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch."""
        return self.linearization.batch_shape

    @property
    def num_outputs(self) -> int:
        """Number of outputs ``N_y``."""
        return self.linearization.num_outputs

    @property
    def output_structure(self) -> OutputStructure | None:  # type: ignore[override]
        """Structure of what the network returns if that is not a vector."""
        return self.linearization.output_structure

    def select(self, outputs: int | str | Sequence[int | str]) -> "CorrectedLinearization":
        """Return the model of some outputs, as `Linearization.select`."""
        linearization = self.linearization.select(outputs)
        rows = np.array(checks.as_indices(outputs, self.num_outputs, "outputs", self.output_names))
        draws = {name: getattr(self.pairs, name)[..., rows] for name in ("network", "linear")}
        pairs = dataclasses.replace(self.pairs, linearization=linearization, **draws)
        transform = jax.tree.map(lambda knots: knots[..., rows, :], self.transform)
        of_outputs = self.unexplained, self.own_scale
        chosen = jax.tree.map(lambda array: array[..., rows], of_outputs)
        return CorrectedLinearization(pairs, transform, *chosen)

    @property
    def mean(self) -> Array:
        """Means of the corrected distributions, shape ``batch_shape + (N_y,)``."""
        return self.marginals().mean

    @property
    def variance(self) -> Array:
        """Variances of the corrected distributions, shape ``batch_shape + (N_y,)``."""
        return self.marginals().variance

    @property
    def covariance(self) -> Array:
        """Covariance of the outputs, ``batch_shape + (N_y, N_y)``; NaN where it has no number.

        From the variances of the corrected distributions and the correlation of the network's
        outputs, estimated with control variates: `paired_statistics` has its standard errors. Where
        there are too few pairs for that, it is the plain one. It is not necessarily positive
        definite. With traced values the correlation is that of the linearization.
        """
        scale, matrix = self._spread()
        return in_squared_units(matrix, scale)

    def _spread(self) -> tuple[Array, Array]:
        scale, matrix = self.marginals().standard_deviation, self._own_correlation
        # A constant output has no correlation, and the width of its distribution is arbitrary.
        is_constant = jnp.isnan(jnp.diagonal(matrix, axis1=-2, axis2=-1))
        either = is_constant[..., None] | is_constant[..., None, :]
        return jnp.where(is_constant, 0, scale), jnp.where(either, 0, matrix)

    @property
    def _own_correlation(self) -> Array:
        """Correlation of the network's outputs, or of those of the linearization if traced."""
        if not checks.is_concrete(self):
            return self.linearization.image(self.own_scale).correlation
        # Known numbers, also while a function that uses them is traced.
        with evaluated_now():
            matrix = paired_statistics(self.pairs).correlation_matrix
            if np.isnan(matrix).any():
                network = np.asarray(usable_pairs(self.pairs)[0], np.float64)
                # From the first draw on: equal draws are zero, not a rounding of their mean.
                network = (network - network[0]).reshape(len(network), *matrix.shape[:-1])
                with np.errstate(invalid="ignore"):
                    rows = (network - network.mean(axis=0)) / network.std(axis=0)
                plain = np.einsum("n...i,n...j->...ij", rows, rows) / len(rows)
                matrix = np.where(np.isnan(matrix), plain, matrix)
            return jnp.asarray(matrix, jnp.result_type(self._map.images))

    def marginals(
        self, noise_scale: OutputNumbers | None = None, noise_covariance: ArrayLike | None = None
    ) -> CorrectedMarginal | NoisyMarginal:
        """Return the distributions of the single outputs, batch shape ``batch_shape + (N_y,)``.

        Noise is a convolution: the maps are those of the outputs without noise, and the result is a
        smooth function of its scale.

        Parameters
        ----------
        noise_scale, noise_covariance
            As for `Linearization.marginals`.

        Raises
        ------
        TypeError
            If the pairs were traced when the correction was made.
        """
        distribution = self._without_noise
        scale = by_names("noise_scale", noise_scale, self.output_structure)
        noise = output_noise(scale, noise_covariance, distribution.batch_shape, distribution.mean)
        if noise is None:
            return distribution
        return NoisyMarginal(distribution, noise.standard_deviation)

    @property
    def _map(self) -> MonotoneSpline:
        if self.transform is None:
            raise TypeError(
                "pairs must hold numbers for marginals, moments and remarks, got traced "
                "ones; call corrected outside of jit, or take corrected.joint(...) inside a model"
            )
        return self.transform

    @cached_property
    def _without_noise(self) -> CorrectedMarginal:
        """The corrected distributions, made once, as they keep what noise needs."""
        transform = self._map
        with evaluated_now(self):
            linear = self.linearization.marginals(self.own_scale)
            return CorrectedMarginal(linear, *transform.parameters)

    def joint(
        self, noise_scale: OutputNumbers | None = None, noise_covariance: ArrayLike | None = None
    ) -> LinearizedJoint:
        """Return the joint distribution of the linear function nearest to the network.

        Means and Jacobian of the linearization are moved by a regression of what it leaves of the
        network on the inputs of the pairs, and the covariance of what is left then is added to the
        noise. So its marginals are not those of `marginals`, which follow the network more closely:
        take those for questions about single outputs, and this as the likelihood of several, also
        made anew inside a model that infers parameters of the input distribution.

        Parameters
        ----------
        noise_scale, noise_covariance
            As for `Linearization.joint`.
        """
        fit, moved = self._nearest
        if fit.noise is None:
            return moved.joint(noise_scale, noise_covariance)
        share = fit.normal_share(moved.image().standard_deviation)
        image = moved.image(noise_scale, noise_covariance).with_normal_share(share)
        return LinearizedJoint.of_image(moved.loc, image.plus(fit.noise))

    def input_posterior(
        self,
        y: OutputNumbers,
        noise_scale: OutputNumbers | None = None,
        noise_covariance: ArrayLike | None = None,
    ) -> LinearizedInputPosterior:
        """Return the distribution of the inputs given outputs, under the linear model of `joint`.

        Parameters and errors are those of `Linearization.input_posterior`. Where a few pairs are
        far from the linear model, `joint` makes its edges softer, and its log density differs from
        `log_evidence` here by up to .1.
        """
        fit, moved = self._nearest
        return linearized_input_posterior(moved, y, noise_scale, noise_covariance, fit.noise)

    @property
    def _nearest(self) -> tuple[LinearFit, Any]:
        """The linear fit, and the model moved by it."""
        fit = linear_fit(self.pairs)
        return fit, self.linearization.moved(fit.shift, fit.slopes)

    def sample_pairs(self, key: Array, sample_shape: tuple[int, ...] = ()) -> tuple[Array, Array]:
        """Draw inputs, and the outputs of the linear model of `joint` for them, its noise included.

        Means, standard deviations and correlations are those of the network, to the accuracy of the
        pairs. Draws of `gaussian_copula` have the distributions of `marginals` as well.
        """
        fit, moved = self._nearest
        key_inputs, key_noise = jax.random.split(checks.as_key("key", key))
        inputs, outputs = moved.sample_pairs(key_inputs, sample_shape)
        if fit.noise is not None:
            columns = jnp.asarray(fit.noise.normal_weights, outputs.dtype)
            shape = (*outputs.shape[:-1], columns.shape[-1])
            outputs = outputs + matvec(columns, jax.random.normal(key_noise, shape, outputs.dtype))
        return inputs, outputs

    def __getitem__(self, index: Any) -> "CorrectedLinearization":
        """Return the model at some entries of the batch, indexed as a NumPy array of that shape."""
        maps = (self.transform, self.unexplained, self.own_scale)
        return CorrectedLinearization(self.pairs[index], *entries(maps, self.batch_shape, index))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on what the distribution of each output cannot represent; empty if none."""
        slopes: FloatArray = np.asarray(self._map.parameters[2])
        network = np.asarray(self.pairs.network, np.float64).reshape(self.pairs.num_samples, -1)
        bend = np.log(slopes[..., [0, -1]] / slopes.mean(axis=-1, keepdims=True))
        # As wide as the network's where it stands in, else less than the linear output.
        sd = np.asarray(self.linearization.image().standard_deviation)
        stands_in = np.zeros_like(sd) if self.own_scale is None else np.asarray(self.own_scale) > sd
        rows = zip(network.T, bend.reshape(-1, 2), stands_in.ravel(), strict=True)
        return tuple("; ".join(_remarks_on(*row)) for row in rows)


def _remarks_on(draws: Any, bend: Any, stands_in: bool) -> list[str]:
    remarks = []
    finite = np.sort(draws[np.isfinite(draws)])
    if finite.size < draws.size:
        remarks.append(
            f"{1 - finite.size / draws.size:.2g} of the draws are NaN or infinite: the "
            f"distribution is that of the finite outputs"
        )
    if finite[0] == finite[-1]:
        return [
            *remarks,
            "all draws are equal: a constant has no density, and its distribution is arbitrary",
        ]
    values, counts = np.unique(finite, return_counts=True)
    share = counts.max() / finite.size
    some = max(1, round(_PEAK * finite.size))
    if share > _POINT_MASS and counts.max() >= _FEWEST_EQUAL:
        value = values[counts.argmax()]
        remarks.append(
            f"point mass: {share:.0%} of the draws are {value:.4g}, which a density cannot "
            f"represent; the distribution puts about that probability into a narrow peak"
        )
    elif np.min(finite[some:] - finite[:-some]) < _NARROW * finite.std():
        remarks.append(
            f"narrow peak: {_PEAK:.0%} of the draws lie within {_NARROW:g} standard deviations, "
            f"where the density is arbitrary"
        )
    if stands_in:
        remarks.append(
            "sensitivity at the mean zero or lost in rounding: a normal distribution stands in for "
            "the linear one"
        )
    for end, name, log_ratio in ((finite[0], "below", bend[0]), (finite[-1], "above", bend[1])):
        if abs(log_ratio) > _BENT:
            remarks.append(f"tail extrapolated {name} {end:.4g}, where there is no draw")
    kurtosis = np.mean((finite - finite.mean()) ** 4) / finite.var() ** 2 - 3
    if kurtosis > _HEAVY:
        remarks.append(
            f"heavy tail: excess kurtosis {kurtosis:.2g}; sd and tails rest on a few draws"
        )
    return remarks
