"""Infer the input function of a trained operator from noisy observations of a few outputs.

The network (`operators/weights`) maps a function f on [-1, 1] to a function g. The unknown is a
smooth f, a few Legendre coefficients theta about a nominal curve. In each run of the experiment an
actuator adds its own error to every nodal value, uniform within +-half_width, and a few outputs are
measured with normal noise. Two models of the same data, both sampled by NUTS:

- marginalized: the joint distribution of the outputs, `Linearization.joint`, the input error
  integrated out by linearization;
- ignored: the outputs of the exact input, plus normal noise.

The Jacobian of a leaky-ReLU network jumps where a neuron changes its sign, and the marginalized
likelihood with it: by thousands of nats far from the data, where chains would stick. So theta is
found without the input error first, and sampled with the Jacobian there, averaged over the input
error; the value of the network follows theta. `--check` samples the input errors as well, without
any linearization, and sets `Linearization.gaussian_copula` beside both. Last, in a new run the
distribution of all outputs is updated from three of them. Run `python examples/inverse.py --help`
for the arguments.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import arviz_base
import arviz_plots
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array
from numpy.polynomial import legendre
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS, Predictive, init_to_sample
from operators import lobatto, networks

import nn_uq_dist as nuq

NODES = lobatto.nodes(30)
NOMINAL = np.exp(np.sin(5 * NODES)).astype(np.float32)
PRIOR_SD = 0.5  # of each coefficient
MEASURED = np.array([0, 5, 9, 22, 26, 30])  # outputs, by node
GIVEN = (5, 22, 30)  # those measured in the new run
QUANTILE_DRAWS = 20_000  # of the outputs, given these
BLUE, VERMILION, GREEN, GRAY = "#0072B2", "#D55E00", "#009E73", "#8C8C8C"
COLORS = {"marginalized": BLUE, "ignored": VERMILION, "copula": GREEN, "latent": "black"}
OUTLINED = ("copula", "latent")  # over the others in the figure

Network = Callable[[Array], Array]
Model = Callable[..., None]


class Experiment(NamedTuple):
    """The network and its sizes of error, the truth, and the data, shape (runs, outputs)."""

    net: Network
    half_width: float
    noise: float
    theta: Array
    y: Array

    def measured(self, f: Array) -> Array:
        """Return the measured outputs for the exact input."""
        return self.net(f)[MEASURED]

    def input_distribution(self, theta: Array) -> nuq.Input:
        """Return the distribution of the network's input, batch shape as theta."""
        return nuq.Input.box(input_function(theta), half_width=self.half_width)


def input_function(theta: Array) -> Array:
    """Return nodal values, shape (..., 31), of the nominal curve and Legendre polynomials."""
    size = theta.shape[-1]
    modes = np.stack([legendre.legval(NODES, row) for row in np.eye(size)])
    return jnp.asarray(NOMINAL, theta.dtype) + theta @ jnp.asarray(modes, theta.dtype)


def simulate(key: Array, arguments: argparse.Namespace) -> Experiment:
    """Draw theta from its prior and simulate the runs of the experiment through the network."""
    net = networks.load(arguments.network)
    theta_key, input_key, noise_key = jax.random.split(key, 3)
    theta = PRIOR_SD * jax.random.normal(theta_key, (arguments.num_modes,))
    made = Experiment(net, arguments.half_width, arguments.noise, theta, jnp.zeros(()))
    f = made.input_distribution(theta).sample(input_key, (arguments.num_runs,))
    outputs = jax.vmap(made.measured)(f)
    noise = made.noise * jax.random.normal(noise_key, outputs.shape)
    return made._replace(y=outputs + noise)


def sample_prior(experiment: Experiment) -> Array:
    """Sample theta from its prior."""
    prior = dist.Normal(0.0, PRIOR_SD).expand(experiment.theta.shape).to_event(1)
    return numpyro.sample("theta", prior)


def marginalized_model(experiment: Experiment, *, copula: bool = False) -> Model:
    """Return the model whose likelihood has the input error integrated out.

    The Jacobian is given, not that at theta: it jumps, and its derivative in theta is zero almost
    everywhere, so that the gradient would not say how the likelihood changes.
    """

    def model(jacobian: Array, y: Array | None = None) -> None:
        theta = sample_prior(experiment)
        f = experiment.input_distribution(theta)
        linear = nuq.Linearization(experiment.measured(f.mean), jacobian, f)
        if copula:
            distribution = linear.gaussian_copula(noise_scale=experiment.noise)
        else:
            distribution = linear.joint(noise_scale=experiment.noise)
        with numpyro.plate("runs", len(experiment.y)):
            numpyro.sample("y", distribution, obs=y)

    return model


def ignored_model(experiment: Experiment) -> Model:
    """Return the model that takes the input for exact."""

    def model(y: Array | None = None) -> None:
        outputs = experiment.measured(input_function(sample_prior(experiment)))
        with numpyro.plate("runs", len(experiment.y)):
            numpyro.sample("y", dist.Normal(outputs, experiment.noise).to_event(1), obs=y)

    return model


def latent_model(experiment: Experiment) -> Model:
    """Return the model that samples the input error of each run: nothing is linearized."""

    def model(y: Array | None = None) -> None:
        center = input_function(sample_prior(experiment))
        with numpyro.plate("runs", len(experiment.y)):
            unit = dist.Uniform(-1.0, 1.0).expand(center.shape).to_event(1)
            deviation = numpyro.sample("deviation", unit)
            outputs = jax.vmap(experiment.measured)(center + experiment.half_width * deviation)
            numpyro.sample("y", dist.Normal(outputs, experiment.noise).to_event(1), obs=y)

    return model


def run_nuts(
    key: Array,
    model: Model,
    data: tuple[Array, ...],
    arguments: argparse.Namespace,
) -> MCMC:
    """Sample by NUTS, one chain after the other, each started at a draw from the prior."""
    mcmc = MCMC(
        NUTS(model, init_strategy=init_to_sample, dense_mass=[("theta",)]),
        num_warmup=arguments.num_warmup,
        num_samples=arguments.num_draws,
        num_chains=arguments.num_chains,
        chain_method="sequential",
        progress_bar=not arguments.no_progress,
    )
    mcmc.run(key, *data, extra_fields=("diverging", "num_steps"))
    return mcmc


def mean_jacobian(key: Array, experiment: Experiment, theta: Array, num_draws: int = 256) -> Array:
    """Return the mean Jacobian over draws of the input error, shape (outputs, 31).

    The Jacobian at one point is that of the small region between kinks in which the point lies.
    """
    inputs = experiment.input_distribution(theta).sample(key, (num_draws,))
    distribution = nuq.Input.box(inputs, half_width=experiment.half_width)
    return nuq.linearize(experiment.measured, distribution).jacobian.mean(axis=0)


def tabulate(posteriors: dict[str, MCMC], truth: Array) -> pd.DataFrame:
    """Return a row for each model and coefficient; z: distance of the truth in posterior sd."""
    rows = {}
    for name, mcmc in posteriors.items():
        draws = np.asarray(mcmc.get_samples(group_by_chain=True)["theta"], float)
        extra = mcmc.get_extra_fields()
        size = effective_sample_size(draws)
        r_hat = split_gelman_rubin(draws)
        for k, true in enumerate(np.asarray(truth)):
            pooled = draws[..., k].ravel()
            rows[name, f"theta[{k}]"] = {
                "truth": true,
                "mean": pooled.mean(),
                "sd": pooled.std(),
                "mc error": pooled.std() / size[k] ** 0.5,
                "z": (true - pooled.mean()) / pooled.std(),
                "r_hat": r_hat[k],
                "ess": size[k],
                "divergences": float(extra["diverging"].sum()),
                "gradients": float(extra["num_steps"].mean()),
            }
    return pd.DataFrame.from_dict(rows, orient="index")


def draw_posterior(posteriors: dict[str, MCMC], truth: Array) -> plt.Figure:
    """Draw the input function as posterior minus truth, and the density of each coefficient."""
    figure, axes = plt.subplots(1, 1 + len(truth), figsize=(4 + 2.6 * len(truth), 3),
                                width_ratios=[1.5] + [1] * len(truth),
                                layout="constrained")  # fmt: skip
    x = np.linspace(-1, 1, 201)
    for name, mcmc in posteriors.items():
        theta = np.asarray(mcmc.get_samples()["theta"])
        curves = legendre.legval(x, (theta - np.asarray(truth)).T)
        low, high = np.quantile(curves, [0.025, 0.975], axis=0)
        if name in OUTLINED:
            axes[0].plot(x, np.transpose([low, high]), color=COLORS[name], lw=1.2)
            look = {"histtype": "step", "lw": 1.2}
        else:
            axes[0].fill_between(x, low, high, color=COLORS[name], alpha=0.4, lw=0)
            look = {"histtype": "stepfilled", "alpha": 0.4}
        for k, axis in enumerate(axes[1:]):
            axis.hist(theta[:, k], 30, density=True, color=COLORS[name], label=name, **look)
    axes[0].axhline(0, color="black", ls="--", lw=1)
    axes[0].set(xlabel="x", title="input function minus truth, 95%")
    for k, axis in enumerate(axes[1:]):
        axis.axvline(float(truth[k]), color="black", ls="--", lw=1, label="truth")
        axis.set(yticks=[], xlabel=f"theta[{k}]")
    for axis in axes:
        axis.title.set_fontsize("medium")
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, frameon=False)
    return figure


def predictive_tree(
    key: Array, models: dict[str, Model], posteriors: dict[str, MCMC], jacobian: Array, y: Array
) -> Any:
    """Collect posterior predictive draws of each model beside the data, for ArviZ."""
    drawn = {}
    for name, given in (("marginalized", (jacobian,)), ("ignored", ())):
        samples = {"theta": posteriors[name].get_samples()["theta"]}
        new = {"y": Predictive(models[name], samples)(key, *given)["y"]}
        tree = arviz_base.from_numpyro(posteriors[name], posterior_predictive=new)
        draws = tree["posterior_predictive"]["y"].to_numpy()
        drawn[name] = draws.reshape(*draws.shape[:2], -1)  # the plot takes one axis of data
    observed = dict.fromkeys(drawn, np.asarray(y).ravel())
    return arviz_base.from_dict({"posterior_predictive": drawn, "observed_data": observed})


class Update(NamedTuple):
    """A new run: quantiles of all outputs, and moments by the network itself."""

    measured: np.ndarray  # of the given outputs
    others: np.ndarray  # the outputs that are not given
    before: np.ndarray  # 5, 50 and 95% quantiles, shape (3, 31)
    after: np.ndarray  # of the others, given the values, shape (3, others)
    network: np.ndarray  # the same by draws of the network
    error_of_mean: float  # largest over the outputs, in sd of the network
    ratio_of_sd: tuple[float, float]  # smallest and largest over the outputs
    effective_draws: float


def update(key: Array, experiment: Experiment, theta: Array) -> Update:
    """Measure three outputs in a new run, and update the distribution of all others.

    The reference: the network at draws of the inputs behind the three outputs.
    """
    f = experiment.input_distribution(theta)
    draw_key, noise_key, run_key, rest_key = jax.random.split(key, 4)
    joint = nuq.linearize(experiment.net, f).joint(noise_scale=experiment.noise)
    given = np.array(GIVEN)
    run = np.asarray(nuq.monte_carlo(experiment.net, f, run_key, 1, progress=False))[0]
    run = run + experiment.noise * np.asarray(jax.random.normal(noise_key, run.shape))
    levels = np.array([0.05, 0.5, 0.95])
    rest = joint.condition(GIVEN, jnp.asarray(run[given]))
    others = np.delete(np.arange(run.size), given)

    inputs = nuq.input_posterior(
        lambda x: experiment.net(x)[given],
        f,
        run[given],
        noise_scale=experiment.noise,
        key=draw_key,
        progress=False,
    )
    draws = np.asarray(jax.vmap(experiment.net)(inputs.draws))
    noise = experiment.noise * np.asarray(jax.random.normal(run_key, draws.shape))
    values = (draws + noise)[:, others]
    mean, sd = values.mean(axis=0), values.std(axis=0)
    network = np.quantile(values, levels, axis=0)
    ratio = np.asarray(rest.variance) ** 0.5 / sd
    return Update(
        run[given],
        others,
        np.asarray(joint.marginals.icdf(jnp.asarray(levels, jnp.float32)[:, None])),
        np.quantile(np.asarray(rest.sample(rest_key, (QUANTILE_DRAWS,))), levels, axis=0),
        network,
        float(np.max(np.abs(np.asarray(rest.mean) - mean) / sd)),
        (float(ratio.min()), float(ratio.max())),
        float(inputs.effective_draws),
    )


def draw_update(found: Update) -> plt.Figure:
    """Draw the 90% bands of the outputs before and after, about the median before."""
    figure, axis = plt.subplots(figsize=(7.5, 3.4), layout="constrained")
    low, middle, high = found.before
    y, center = NODES[found.others], middle[found.others]
    axis.fill_between(NODES, low - middle, high - middle, color=GRAY, alpha=0.35, lw=0,
                      label="before")  # fmt: skip
    axis.fill_between(y, found.after[0] - center, found.after[2] - center, color=BLUE, alpha=0.45,
                      lw=0, label="condition")  # fmt: skip
    lines = axis.plot(y, (found.network[[0, 2]] - center).T, color="black", ls=":", lw=1.4)
    lines[0].set_label("network, weighted draws")
    given = np.array(GIVEN)
    axis.plot(NODES[given], found.measured - middle[given], "o", color=VERMILION, label="measured")
    axis.set(xlabel="y", ylabel="g(y) minus median before")
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    return figure


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description="Posterior of the input of a trained operator.")
    known = sorted(path.stem for path in networks.WEIGHTS.glob("nonlinear_*.safetensors"))
    parser.add_argument("--network", choices=known, default="nonlinear_20")
    parser.add_argument("--num-modes", type=int, default=2, help="unknown coefficients")
    parser.add_argument("--num-runs", type=int, default=8, help="of the experiment")
    parser.add_argument("--half-width", type=float, default=0.2, help="of the input error")
    parser.add_argument("--noise", type=float, default=0.1, help="sd of the output noise")
    parser.add_argument("--num-warmup", type=int, default=200, help="of each chain")
    parser.add_argument("--num-draws", type=int, default=300, help="of each chain")
    parser.add_argument("--num-chains", type=int, default=4)
    parser.add_argument("--check", action="store_true", help="two more models (slow)")
    parser.add_argument("--seed", type=int, default=0, help="of data and chains")
    parser.add_argument("--out", type=Path, default=Path("inverse_output"), help="folder")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bars")
    arguments = parser.parse_args(argv)
    least = {"num_modes": 1, "num_runs": 1, "num_warmup": 1, "num_draws": 25, "num_chains": 2}
    for name, smallest in least.items():
        if (number := getattr(arguments, name)) < smallest:
            option = "--" + name.replace("_", "-")
            parser.error(f"{option} must be at least {smallest}, got {number}")
    for name in ("half_width", "noise"):
        if not 0 < (value := getattr(arguments, name)) < float("inf"):
            parser.error(f"--{name.replace('_', '-')} must be positive, got {value}")
    return arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Simulate, sample, print the table, write the figures."""
    arguments = parse_arguments(argv)
    begin = time.perf_counter()
    keys = jax.random.split(jax.random.key(arguments.seed), 6)
    experiment = simulate(keys[0], arguments)
    models = {"marginalized": marginalized_model(experiment), "ignored": ignored_model(experiment)}
    ignored = run_nuts(keys[1], models["ignored"], (experiment.y,), arguments)
    estimate = ignored.get_samples()["theta"].mean(axis=0)
    jacobian = mean_jacobian(keys[3], experiment, estimate)
    data = (jacobian, experiment.y)
    posteriors = {
        "marginalized": run_nuts(keys[2], models["marginalized"], data, arguments),
        "ignored": ignored,
    }
    if arguments.check:
        copula = marginalized_model(experiment, copula=True)
        posteriors["copula"] = run_nuts(keys[2], copula, data, arguments)
        latent = latent_model(experiment)
        posteriors["latent"] = run_nuts(keys[2], latent, (experiment.y,), arguments)
    table = tabulate(posteriors, experiment.theta)
    print(table.round(4).to_string())
    theta = posteriors["marginalized"].get_samples()["theta"]
    found = update(keys[4], experiment, theta.mean(axis=0))
    print(
        f"condition: means off by at most {found.error_of_mean:.2f} sd, sd by factors "
        f"{found.ratio_of_sd[0]:.2f} to {found.ratio_of_sd[1]:.2f}, against "
        f"{found.effective_draws:.0f} effective draws of the network"
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    draw_posterior(posteriors, experiment.theta).savefig(arguments.out / "posterior.png", dpi=150)
    draw_update(found).savefig(arguments.out / "condition.png", dpi=150)
    tree = predictive_tree(keys[5], models, posteriors, jacobian, experiment.y)
    pits = arviz_plots.plot_ppc_pit(tree, backend="matplotlib")
    pits.savefig(arguments.out / "predictive.png", dpi=150)
    plt.close("all")
    print(f"time, with compilation: {time.perf_counter() - begin:.0f} s")
    print(f"figures: {arguments.out.resolve()}")


if __name__ == "__main__":
    main()
