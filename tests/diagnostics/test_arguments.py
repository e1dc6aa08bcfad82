"""Wrong arguments of tables: each message says what was expected, what came and the remedy."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

import nn_uq_dist as nuq
from nn_uq_dist.diagnostics import joint_summary, sensitivity, summary, table, to_datatree

pytestmark = pytest.mark.viz

JACOBIAN = np.array([[1.0, 0.5, 0.2], [0.8, -0.7, 0.1]])
LIN = nuq.Linearization(np.zeros(2), JACOBIAN, nuq.Input.box(np.zeros(3), 1.0))
DRAWS = {"draws": np.zeros((200, 2))}
RIGHT = {
    summary: {"marginals": LIN, **DRAWS},
    to_datatree: {"distribution": LIN, **DRAWS},
    joint_summary: {"linearization": LIN, **DRAWS, "key": jax.random.key(0), "joint": LIN.joint()},
    sensitivity: {"linearization": LIN},
    table: {"marginals": LIN},
}
NORMAL = dist.Normal(jnp.zeros(3), 1)
DEPENDENT = nuq.Input.box(np.zeros(3), 1.0) + nuq.Input.normal(np.zeros(3), factor=np.ones((3, 1)))
COPULA = nuq.GaussianCopulaJoint(NORMAL, 0.5 + 0.5 * jnp.eye(3))
WRONG = [
    (summary, "draws", np.zeros((200, 3)), ValueError, r"shape .*\(n, 2\).*\(200, 3\)"),
    (summary, "draws", np.zeros((99, 2)), ValueError, "100 rows"),
    (summary, "draws", np.zeros((200, 2), complex), TypeError, "real numbers"),
    (summary, "output_names", ["a"], ValueError, "one name per output"),
    (summary, "output_names", ["a", "a"], ValueError, "must differ"),
    (summary, "output_names", "ab", TypeError, "string"),
    (summary, "quantiles", 0.5, ValueError, r"levels in \(0, 1\)"),
    (summary, "quantiles", [0.5, 0.5], ValueError, "must differ"),
    (summary, "tails", [0.5], ValueError, r"tails must be .* \(0, 0.5\)"),
    (summary, "observations", 0, ValueError, "observations must be"),
    (summary, "marginals", np.zeros(2), TypeError, "pass linearize"),
    (summary, "marginals", LIN.marginals().expand((4, 2)), ValueError, r"\(n, 4, 2\)"),
    (summary, "marginals", dist.Poisson(jnp.ones(2)), TypeError, "discrete Poisson"),
    (summary, "marginals", NORMAL.to_event(1), ValueError, r"event shape \(3,\)"),
    (summary, "marginals", dist.VonMises(jnp.zeros(2), 1.0), TypeError, "without cdf"),
    (to_datatree, "num_analytic_draws", 0, ValueError, "num_analytic_draws must be"),
    (to_datatree, "key", 3, TypeError, "key must be a JAX random key"),
    (to_datatree, "distribution", COPULA.condition(0, 1.0), NotImplementedError, "marginal_cdf"),
    (joint_summary, "joint", NORMAL, TypeError, r"joint must be .*; pass .*\.joint\(\)"),
    (joint_summary, "joint", COPULA, ValueError, r"\(2,\), got \(\) and \(3"),
    (joint_summary, "linearization", 3, TypeError, "linearization must be a Linearization"),
    (sensitivity, "input_names", ["a"], ValueError, "one name per input"),
    (sensitivity, "linearization", nuq.Linearization(np.zeros(2), JACOBIAN, DEPENDENT), ValueError,
     "some of whose bounded inputs depend on others"),
    (table, "limits", {"flow": 1.0}, ValueError, r"limits must be .* y\[0\], y\[1\], got .*'flow'"),
    (table, "limits", "3", TypeError, "limits must be an array"),
    (table, "limits", {"y[1]": np.nan}, ValueError, r"limits\['y\[1\]'\] must be finite"),
    (table, "limits", [1e7, 1e7 + 1], ValueError, "limits must differ"),
    (table, "quantiles", (5, 95), ValueError, "pass fractions"),
    (table, "upper", "above", TypeError, "upper must be True or False"),
]  # fmt: skip


def test_wrong_arguments_are_named():
    for function, name, value, error, message in WRONG:
        with pytest.raises(error, match=message):
            function(**(RIGHT[function] | {name: value}))


def test_traced_arguments_are_refused():
    for function, right in RIGHT.items():
        words = f"got traced values; call {function.__name__} outside of jit, vmap and grad"
        for name in right:
            with pytest.raises(TypeError, match=words):
                jax.jit(lambda x, f=function, right=right, n=name: f(**right | {n: x}))(right[name])


@pytest.mark.filterwarnings("ignore:the linearization has no sensitivity")
def test_constant_outputs_are_shown():
    loc = 3.0
    model = nuq.linearize(lambda x: jnp.stack([x[0], 0 * x[0] + loc, x[1]]), LIN.input)
    draws = np.array(model.sample(jax.random.key(0), (1000,)))
    with pytest.warns(RuntimeWarning, match=r"no sensitivity of y\[1\], shown as constant"):
        shown = nuq.diagnostics.table(model, limits=loc + 1)
    spread = LIN.input.standard_deviation[:2]
    np.testing.assert_allclose(shown["sd"][["y[0]", "y[2]"]], spread, rtol=1e-5)
    np.testing.assert_allclose(shown.loc["y[1]"], [loc, 0, loc, loc, loc, 0], atol=1e-6)
    assert "constant" in summary(model, draws)["verdict", "words"]["y[1]"]
    draws[:, 1] += draws[:, 0]
    assert summary(model, draws)["verdict", "words"]["y[1]"].startswith("linearization, large")
    nuq.plots.plot_tails(model, draws, outputs=[0])


def test_pairs_of_another_input_are_refused():
    wide, narrow = (nuq.linearize(jnp.tanh, nuq.Input.box(jnp.zeros(2), b)) for b in (0.8, 0.5))
    pairs = nuq.paired_draws(jnp.tanh, wide, jax.random.key(0), 200, progress=False)
    for show in (summary, to_datatree, nuq.plots.plot_tails):
        with pytest.raises(ValueError, match="pairs whose inputs have another mean"):
            show(narrow, pairs)


def test_draws_with_the_names_of_the_outputs_in_another_order_are_refused():
    draws = pd.DataFrame(np.asarray(RIGHT[summary]["draws"]), columns=["y[1]", "y[0]"])
    array = xr.DataArray(
        draws.to_numpy(), dims=("draw", "output"), coords={"output": draws.columns}
    )
    for labelled in (draws, array):
        with pytest.raises(ValueError, match=r"in the order y\[0\], y\[1\], got .* y\[1\], y\[0\]"):
            summary(LIN, labelled)
