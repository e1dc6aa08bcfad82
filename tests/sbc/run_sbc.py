"""Simulation-based calibration of errors-in-variables regression.

For each of many data sets, beta (half-width of the input error) and sigma (noise of the outputs)
are drawn from the prior, data are simulated, and the posterior is sampled by NUTS. If the posterior
is right, the rank of the truth among independent posterior draws is uniform (Talts et al. 2018,
arXiv:1804.06788). Regimes, by what the data come from:

- exact: the linear model, one output for each observation, so that nothing is approximated;
- network: a network some of whose neurons change their sign within the box, one output;
- 12-of-12, 6-of-3: the linear model, so many outputs of so many inputs for each observation. The
  likelihood is the joint distribution, `Linearization.joint`, whose density is an
  approximation (expectation propagation); with ``-copula``, the Gaussian copula (not for 6 of 3,
  where its chains may not move).

Run with ``python -m tests.sbc.run_sbc`` or ``make sbc``.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import scipy.stats
from numpyro.infer import NUTS, init_to_value
from tqdm import tqdm

import nn_uq_dist as nuq
from tests.benchmarks._command_line import options

HIDDEN = 16
BETA, SIGMA = 0.3, 0.1  # prior medians
WARMUP, DRAWS = 200, 100
PARAMETERS = ("beta", "sigma")
BLUE, VERMILION, GRAY = "#0072B2", "#D55E00", "#D9D9D9"


class Regime(NamedTuple):
    """Sizes of the data, their source and the likelihood."""

    title: str
    observations: int
    inputs: int
    outputs: int
    thinning: int  # thinned draws of NUTS are nearly independent
    linear: bool  # whether the data come from the linear model
    likelihood: str  # marginals, joint or copula


REGIMES = {
    "exact": Regime("one output, linear model", 40, 8, 1, 4, True, "marginals"),
    "network": Regime("one output, network", 40, 8, 1, 4, False, "marginals"),
    "12-of-12": Regime("12 outputs of 12 inputs", 10, 12, 12, 2, True, "joint"),
    "12-of-12-copula": Regime("the same, copula", 10, 12, 12, 2, True, "copula"),
    "6-of-3": Regime("6 outputs of 3 inputs", 20, 3, 6, 2, True, "joint"),
}


def prior():
    """The distributions of beta and sigma."""
    return {
        "beta": dist.LogNormal(jnp.log(BETA), 0.7),
        "sigma": dist.LogNormal(jnp.log(SIGMA), 0.7),
    }


def make_network(inputs, outputs):
    """One hidden layer."""
    keys = jax.random.split(jax.random.key(0), 3)
    return nuq.LeakyReLUNetwork(
        [jax.random.normal(keys[0], (HIDDEN, inputs)) * (2 / inputs) ** 0.5],
        [0.5 * jax.random.normal(keys[1], (HIDDEN,))],
        jax.random.normal(keys[2], (outputs, HIDDEN)) * (2 / HIDDEN) ** 0.5,
    )


def model(linear, y, likelihood):
    """Errors-in-variables regression, the input error integrated out."""
    beta, sigma = (numpyro.sample(name, distribution) for name, distribution in prior().items())
    distribution = nuq.Linearization(
        linear.loc, linear.jacobian, nuq.Input.box(linear.input.mean, half_width=beta)
    )
    if likelihood == "marginals":
        outputs = distribution.marginals(noise_scale=sigma).to_event(1)
    elif likelihood == "copula":
        outputs = distribution.gaussian_copula(noise_scale=sigma)
    else:
        outputs = distribution.joint(noise_scale=sigma)
    with numpyro.plate("observations", len(y)):
        numpyro.sample("y", outputs, obs=y)


def simulate(key, regime):
    """Draw the truth, measured inputs and outputs of one data set."""
    net = make_network(regime.inputs, regime.outputs)
    keys = jax.random.split(key, 5)
    truth = {
        name: distribution.sample(k)
        for (name, distribution), k in zip(prior().items(), keys[:2], strict=True)
    }
    x = jax.random.normal(keys[2], (regime.observations, regime.inputs))
    linear = nuq.linearize(net, nuq.Input.box(x, half_width=truth["beta"]))
    if regime.linear:
        outputs = linear.sample(keys[3])
    else:
        outputs = jax.vmap(net)(linear.input.sample(keys[3]))
    return truth, linear, outputs + truth["sigma"] * jax.random.normal(keys[4], outputs.shape)


def rank(key, regime):
    """Simulate one data set, sample its posterior, and return the ranks of the truth in it."""
    data_key, chain_key = jax.random.split(key)
    truth, linear, y = simulate(data_key, regime)
    data = linear, y, regime.likelihood
    # The truth is a draw from the posterior: no chain has to find the way there. Copulas of nearly
    # dependent outputs have none in float32 from far out.
    start = init_to_value(values=truth)
    kernel = NUTS(model, init_strategy=start, dense_mass=True, target_accept_prob=0.98)
    state = kernel.init(chain_key, WARMUP, None, data, {})

    def step(state, _):
        state = kernel.sample(state, data, {})
        return state, (state.z, state.diverging)

    _, (draws, diverging) = jax.lax.scan(step, state, length=WARMUP + regime.thinning * DRAWS)
    # NUTS works with the logarithms of positive variables, which have the same ranks.
    ranks = {
        name: jnp.sum(draws[name][WARMUP :: regime.thinning] < jnp.log(truth[name]))
        for name in PARAMETERS
    }
    return {**ranks, "divergences": jnp.sum(diverging[WARMUP:])}


def run(key, regime, num_datasets):
    """Ranks and numbers of divergences of all data sets.

    One after the other: under ``vmap`` each would pay for the methods that any distribution might
    need.
    """
    compiled = jax.jit(rank, static_argnums=1)
    keys = jax.random.split(key, num_datasets)
    found = [jax.block_until_ready(compiled(k, REGIMES[regime])) for k in tqdm(keys, desc=regime)]
    return {name: np.array([one[name] for one in found]) for name in found[0]}


def smallest_tail(counts, num_datasets):
    """How improbable the empirical distribution function is at its most improbable point.

    At each point the number of data sets of a lower rank is binomial; the smallest two-sided tail
    probability over the points is the statistic (T. Sailynoja, P.-C. Buerkner and A. Vehtari 2022,
    Statistics and Computing 32:32). The counts, along the last axis, are those of `counts_below`.
    """
    distribution = scipy.stats.binom(num_datasets, np.arange(1, DRAWS + 1) / (DRAWS + 1))
    tails = 2 * np.minimum(distribution.cdf(counts), distribution.sf(counts - 1))
    return np.minimum(tails.min(axis=-1), 1)


def counts_below(ranks):
    """Number of ranks below 1, 2, ..., `DRAWS`; ranks along the last axis."""
    return (ranks[..., None, :] < np.arange(1, DRAWS + 1)[:, None]).sum(axis=-1)


def simulated_statistics(num_datasets, num_simulations=2000):
    """`smallest_tail` of ranks that are uniform."""
    ranks = np.random.default_rng(0).integers(0, DRAWS + 1, (num_simulations, num_datasets))
    counts = np.stack([counts_below(one) for one in ranks])
    return smallest_tail(counts, num_datasets)


def uniformity(ranks):
    """P-value of the hypothesis that ranks 0, ..., `DRAWS` are uniform, by simulation."""
    simulated = simulated_statistics(len(ranks))
    observed = smallest_tail(counts_below(ranks), len(ranks))
    return (1 + (simulated <= observed).sum()) / (1 + len(simulated))


def draw(results):
    """Draw the differences between the distribution functions of the ranks and the uniform one."""
    import matplotlib.pyplot as plt

    rows = -(-len(results) // 2)
    figure, axes = plt.subplots(
        rows, min(len(results), 2), figsize=(9, 2.6 * rows + 0.6), sharex=True, sharey="row",
        squeeze=False, layout="constrained",
    )  # fmt: skip
    points = np.arange(1, DRAWS + 1) / (DRAWS + 1)
    for axis in axes.flat[len(results) :]:
        axis.set_visible(False)
    for axis, (regime, found) in zip(axes.flat, results.items(), strict=False):
        number = len(found["beta"])
        level = np.quantile(simulated_statistics(number), 0.05)
        distribution = scipy.stats.binom(number, points)
        low, high = distribution.ppf(level / 2) / number, distribution.isf(level / 2) / number
        axis.fill_between(points, low - points, high - points, step="mid", color=GRAY, lw=0,
                          label="95% of right posteriors")  # fmt: skip
        for name, color in zip(PARAMETERS, (BLUE, VERMILION), strict=True):
            difference = counts_below(found[name]) / number - points
            axis.step(points, difference, where="mid", color=color, label=name)
        axis.axhline(0, color="black", lw=0.6)
        axis.set_title(REGIMES[regime].title, fontsize="medium")
        axis.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("share of posterior draws below the true value", fontsize="medium")
    figure.supylabel("share of data sets with less, minus the right one", fontsize="medium")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    return figure


def main():
    """Run the regimes, print p-values, write the figure."""
    given = options(num_datasets=200, regimes=tuple(REGIMES), out="sbc_output")
    results = {}
    for regime in given.regimes:
        results[regime] = found = run(jax.random.key(0), regime, given.num_datasets)
        cells = [f"{name}: p = {uniformity(found[name]):.3g}, mean rank / draws "
                 f"{found[name].mean() / DRAWS:.3f}" for name in PARAMETERS]  # fmt: skip
        print(f"{regime}: {found['divergences'].sum()} divergences;", "; ".join(cells), flush=True)
    file = Path(given.out, "ranks.png").resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    draw(results).savefig(file, dpi=150)
    print(f"figure: {file}")


if __name__ == "__main__":
    main()
