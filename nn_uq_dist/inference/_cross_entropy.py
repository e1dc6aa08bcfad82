r"""A mixture of normal laws for the failing runs, by the cross-entropy method.

All draws are kept with weights over all mixtures that were drawn from, so nothing is wasted and no
weight is large where one of them has been (A. Owen and Y. Zhou, J. Am. Stat. Assoc. 95 (2000)).
Levels: a mixture is fitted to the runs that are nearest to the limits, and drawn from; then to the
nearest of all runs so far, until enough of them fail (R. Y. Rubinstein and D. P. Kroese, The
Cross-Entropy Method (2004)). Where failing runs are few for the number of variables, part of the
mixture is fitted to slopes of the output instead, which are less noisy.
"""

import math

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._known_values import FloatArray as Array
from nn_uq_dist.inference._limit_state import BeyondLimits
from nn_uq_dist.inference._normal_mixture import Normal, NormalMixture, fit_mixture
from nn_uq_dist.inference._standard_space import StandardSpace
from nn_uq_dist.inference._weighted_draws import effective, far_apart, log_sum

# Effective draws to which a level is fitted, as a share of the draws of a level.
_ELITE_SHARE = 0.04
_ENOUGH_SHARE = 0.1
# Near draws of which one becomes a start of a tangent, and the share of the first level.
_NEAR_DRAWS, _EARLY_SHARE = 8, 0.5
_NEAREST_DRAWS = 20.0  # while too few runs fail
_MOST_PARTS = 4, 5  # of a level, and of a refit
_MOST_FITTED = 6000  # draws that a mixture is fitted to
_PRIOR_SHARE = 0.05
_BALANCE_STEPS, _BALANCE_SHARE = 30, 0.65
_GUARD_SHARE = 0.4
_LEAST_FAILING = 10
# Of how many draws slopes shall be the mean, and the share of what is fitted to them. They are not
# needed where there are so many effective draws for each variable.
_SLOPES_COUNTED, _SLOPES_SHARE = 40.0, 0.4
_ENOUGH_FOR_MEAN = 20
_FLATTER = np.linspace(1.0, 0.0, 21).tolist()


class Pool:
    """Draws in standard space, what is kept of their outputs, and all that they were drawn from."""

    def __init__(
        self,
        space: StandardSpace,
        question: BeyondLimits,
        rng: np.random.Generator,
        most_slopes: int,
    ) -> None:
        self.space, self.question, self.rng = space, question, rng
        self.most_slopes = most_slopes
        self.z = np.zeros((0, space.num_variables))
        self.log_sum = np.zeros(0)  # of numbers times densities
        self.mixtures: list[tuple[NormalMixture, int]] = []
        self.kept = np.zeros((0, 0))

    def draw(self, mixture: NormalMixture, count: int) -> None:
        """Add draws of a mixture."""
        z = mixture.draw(self.rng, count)
        kept = self.space.run(z)[1]
        before = np.logaddexp(self.log_sum, mixture.log_density(self.z) + math.log(count))
        self.mixtures.append((mixture, count))
        new = log_sum(np.stack([m.log_density(z) + math.log(n) for m, n in self.mixtures]))
        self.log_sum = np.concatenate([before, new])
        self.z = np.concatenate([self.z, z])
        self.kept = np.concatenate([self.kept, kept]) if self.kept.size else kept

    @property
    def log_weights(self) -> Array:
        """Log of the ratio of the standard normal density to that of all mixtures together."""
        return math.log(max(len(self.z), 1)) - 0.5 * self._squares - self.log_sum

    @property
    def _squares(self) -> Array:
        return np.sum(self.z**2, axis=1)

    def values(self) -> Array:
        """How near the draws are to failing."""
        return self.question.values(self.kept)

    def search(self, start: NormalMixture, size: int, most_levels: int) -> None:
        """Draw from mixtures nearer and nearer to the limits, until enough runs fail."""
        mixture = start
        for _ in range(most_levels):
            self.draw(mixture, size)
            if self.effective_failing() >= _ENOUGH_SHARE * size:
                return
            mixture = self.nearest(max(_ELITE_SHARE * size, 5))

    def fails(self) -> NDArray[np.bool_]:
        """Which draws fail, ``(n, limits)``."""
        return self.question.fails(self.kept)

    @property
    def probability(self) -> tuple[Array, Array]:
        """Estimate for each limit, and its standard error."""
        terms = np.exp(self.log_weights)[:, None] * self.fails()
        return terms.mean(axis=0), terms.std(axis=0) / np.sqrt(len(terms))

    def shortest_failing(self) -> Array:
        """For each target the failing draw nearest to the origin, if there is one."""
        fails = self.fails()[:, list(self.question.targets)]
        squares = np.where(fails, self._squares[:, None], np.inf)
        return self.z[squares.argmin(axis=0)[fails.any(axis=0)]]

    def starts(self, number: int) -> Array:
        """Zero, and draws far apart: half near the limits, half the better of the first level.

        Later levels may all be in one of several regions.
        """
        values, (_, first) = self.values(), self.mixtures[0]
        order = np.argsort(-values, kind="stable")[: _NEAR_DRAWS * number]
        early = np.argsort(-values[:first], kind="stable")[: int(_EARLY_SHARE * first)]
        chosen = []
        for rows, most in ((order, number - number // 2), (early, number // 2)):
            if most:
                near = self.z[rows]
                chosen.append(near[far_apart(near, np.ones(len(near)), most, self.rng)])
        return np.concatenate([np.zeros((1, self.z.shape[1])), *chosen])

    def effective_failing(self) -> float:
        """Effective number of the draws that fail."""
        logs = self.log_weights[self.values() > 0]
        return effective(_weights(logs)) if len(logs) else 0.0

    def nearest(self, wanted: float, *, not_failing: bool = False) -> NormalMixture:
        """Mixture fitted to the draws nearest to the limits, of an effective number.

        Of those that do not fail if so asked: what fails near them may be a small region that no
        draw has hit, next to a larger one.
        """
        values = self.values()
        if not_failing:
            values = np.where(values > 0, -np.inf, values)
        order = np.argsort(-values, kind="stable")
        weights = _weights(self.log_weights[order])
        sizes = np.cumsum(weights) ** 2 / np.maximum(np.cumsum(weights**2), 1e-300)
        enough = (sizes >= wanted) & (values[order] <= 0)
        number = int(np.argmax(enough)) + 1 if enough.any() else len(order)
        return self._fitted(order[:number], _MOST_PARTS[0])

    def refit(self) -> NormalMixture:
        """Mixture fitted to the failing runs of each target, with wider copies and the prior."""
        fails, parts = self.fails(), []
        for target in self.question.targets:
            failing = np.flatnonzero(fails[:, target])
            if len(failing) >= _LEAST_FAILING:
                mixture = self._fitted(failing, _MOST_PARTS[1])
                whole = self._fitted(failing, 1).components[0]
                weights = _weights(self.log_weights[failing])
                square = float(weights @ self._squares[failing] / weights.sum())
                around = Normal.standard(self.z.shape[1], square / self.z.shape[1])
                guarded = mixture.guarded(whole, around, _GUARD_SHARE)
                parts.append(self._with_slopes(guarded, failing))
        if not parts:
            return self.nearest(_NEAREST_DRAWS)
        return NormalMixture.joined(parts, [1 / len(parts)] * len(parts))

    def _with_slopes(self, mixture: NormalMixture, failing: NDArray[np.intp]) -> NormalMixture:
        """Add laws fitted by slopes, where draws are few for the number of variables."""
        weights = _weights(self.log_weights[failing])
        enough = _ENOUGH_FOR_MEAN * self.z.shape[1]
        if effective(weights) > enough:
            return mixture
        heaviest = failing[np.argsort(-weights, kind="stable")[: self.most_slopes]]
        z, logs = self.z[heaviest], self.log_weights[heaviest]
        _, slopes = self.space.slopes(self.question.output, z)
        if not np.isfinite(slopes).all() or not slopes.any():
            return mixture
        # Few heavy draws would be followed too closely: weights are flattened until enough count.
        least = min(_SLOPES_COUNTED, len(z) / 2)
        flat = (_weights(power * logs) for power in _FLATTER)
        weights = next(w for w in flat if effective(w) >= least)
        law = Normal.fit_slopes(z, weights, self.question.sign * slopes)
        laws = NormalMixture.even(law, Normal.around(law.mean))
        return NormalMixture.joined([mixture, laws], [1 - _SLOPES_SHARE, _SLOPES_SHARE])

    def balanced(self, mixture: NormalMixture) -> NormalMixture:
        """The mixture with shares for less variance, as far as the failing draws tell.

        The second moment of the weights is convex in the shares (H. Y. He and A. B. Owen 2014); a
        part of the shares stays, as the draws do not show all that may fail.
        """
        fails = self.fails()[:, list(self.question.targets)]
        failing = fails.any(axis=1)
        if not failing.any():
            return mixture
        weights = _weights(self.log_weights[failing])[:, None] * fails[failing]
        # Relative to the probability of each target.
        sizes = weights.sum(axis=0)
        weights = (weights / np.where(sizes > 0, sizes, 1)).sum(axis=1)
        squares = self._squares[failing]
        fixed = mixture.shares / mixture.shares.sum()
        densities = np.exp(mixture.log_densities(self.z[failing]) + 0.5 * squares) / fixed[:, None]
        shares = fixed
        for _ in range(_BALANCE_STEPS):
            ratio = densities @ (weights / (shares @ densities) ** 2)
            shares = shares * np.sqrt(ratio)
            shares = shares / shares.sum()
        kept = (1 - _BALANCE_SHARE) * fixed + _BALANCE_SHARE * shares
        return NormalMixture(mixture.components, kept)

    def _fitted(self, chosen: NDArray[np.intp], most: int) -> NormalMixture:
        if len(chosen) > _MOST_FITTED:
            chosen = self.rng.choice(chosen, _MOST_FITTED, replace=False)
        # No weight is zero: a draw that weighs nothing still has a place.
        weights = np.maximum(_weights(self.log_weights[chosen]), 1e-300)
        return fit_mixture(self.z[chosen], weights, self.rng, most)


def _weights(logs: Array) -> Array:
    """Weights, the largest of them one."""
    return np.exp(logs - logs.max())


def with_prior(mixture: NormalMixture | None, d: int, share: float = _PRIOR_SHARE) -> NormalMixture:
    """A share of draws of the input's own law, first; all of them if there is no mixture."""
    prior = NormalMixture.even(Normal.standard(d))
    if mixture is None:
        return prior
    return NormalMixture.joined([prior, mixture], [share, 1 - share])


def wide_start(d: int) -> NormalMixture:
    """The input's own law, and wider ones: what is far out in few variables is seen at once."""
    components = [Normal.standard(d, variance) for variance in (1.0, 2.25, 6.25)]
    return NormalMixture(tuple(components), np.array([0.6, 0.2, 0.2]))
