"""Messages to users whose input has no distribution here; the table of the docs."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from nn_uq_dist import Input, linearize
from nn_uq_dist.inputs import as_input
from nn_uq_dist.inputs._families import BY_SCORES

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "input_mistakes.md"
ZEROS = np.zeros(3, np.float32)

# Stands in for a package that is not installed for the tests.
Foreign = type("Normal", (), {"__module__": "openturns.dist"})

MISTAKES = {
    "a frozen distribution of SciPy": (
        lambda: scipy.stats.norm(0, 1),
        TypeError,
        "got scipy.stats._distn_infrastructure.rv_continuous_frozen; pass a Uniform",
    ),
    "a distribution of another package, such as OpenTURNS": (
        Foreign,
        TypeError,
        "f must be a distribution over the inputs, got openturns.dist.Normal; pass a Uniform",
    ),
    "a class of distributions": (
        lambda: dist.Normal,
        TypeError,
        "f must be a distribution over the inputs, got the class Normal itself; pass a Uniform",
    ),
    "a mixture": (
        lambda: dist.MixtureSameFamily(
            dist.Categorical(jnp.ones(2) / 2), dist.Normal(jnp.arange(2.0), 1.0)
        ),
        TypeError,
        "linearize each component, and mix their marginals by dist.MixtureGeneral, or draw from it",
    ),
    "an array of inputs": (
        lambda: ZEROS,
        TypeError,
        "f must be a distribution over the inputs, got numpy.ndarray; pass a Uniform",
    ),
    "several numbers without `.to_event(1)`": (
        lambda: dist.Uniform(ZEROS, 1.0),
        ValueError,
        "call .to_event(1) for one array of inputs",
    ),
    "a discrete distribution": (
        lambda: dist.Poisson(3.0),
        TypeError,
        "draw from it: monte_carlo takes any distribution with sample",
    ),
    "a discrete distribution in a dict": (
        lambda: {"a": dist.Normal(0.0, 1.0), "b": dist.Poisson(3.0)},
        TypeError,
        "f['b'] must be of a supported family, got Poisson",
    ),
    "a transform with a kink": (
        lambda: dist.TransformedDistribution(
            dist.Normal(ZEROS, 1.0).to_event(1), [dist.transforms.AbsTransform()]
        ),
        TypeError,
        "which has a kink where it would be linearized; pass a family with icdf",
    ),
    "a dict of known values alone": (
        lambda: {"a": ZEROS},
        ValueError,
        "call the network itself, or pass a distribution",
    ),
    "a known array for each of a batch": (
        lambda: {"a": dist.Normal(jnp.zeros((3, 2)), 1.0).to_event(1), "b": jnp.ones((3, 2))},
        ValueError,
        "dist.Delta(array, event_dim=1) for one value each, or dist.Delta(array, event_dim=2) for",
    ),
    "a word in a dict": (
        lambda: {"a": dist.Normal(0.0, 1.0), "b": "one"},
        TypeError,
        "f['b'] must be a distribution, an Input or an array of known numbers, got str",
    ),
    "a negative half-width": (
        lambda: Input.box(ZEROS, half_width=-1.0),
        ValueError,
        "half_width must not be negative, got -1.0; pass (high - low) / 2",
    ),
    "a covariance as `scale_tril`": (
        lambda: Input.normal(ZEROS[:2], scale_tril=[[1.0, 0.5], [0.5, 1.0]]),
        ValueError,
        "must be lower triangular, got a nonzero entry at index (0, 1); pass it as covariance",
    ),
    "a negative variance": (
        lambda: Input.normal(ZEROS[:2], covariance_matrix=[[1.0, 0.0], [0.0, -1.0]]),
        ValueError,
        "covariance_matrix must be positive semidefinite, got the eigenvalue -1",
    ),
    "a mean alone": (
        lambda: Input.normal(ZEROS),
        ValueError,
        "scale_tril, factor, got none; pass scale for independent inputs",
    ),
    "a mean that is NaN": (
        lambda: Input.box([np.nan, 0.0], half_width=1.0),
        ValueError,
        "mean must be finite, got nan at index (0,)",
    ),
    "an asymmetric triangular distribution": (
        lambda: Input.triangular([0.0], [1.0], [0.2]),
        ValueError,
        "a triangular input must be symmetric",
    ),
    "a sum of vectors of two lengths": (
        lambda: Input.box(ZEROS, 1.0) + Input.box(ZEROS[:2], 1.0),
        ValueError,
        "must have the same number of inputs, got [3, 2]; pass distributions of the same vector",
    ),
    "one draw to estimate a distribution from": (
        lambda: Input.from_samples(ZEROS[None]),
        ValueError,
        "draws must have shape (n, ..., N_x) with n >= 2, got shape (1, 3)",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_message_names_the_remedy(mistake):
    make, kind, words = MISTAKES[mistake]
    with pytest.raises(kind) as caught:
        linearize(lambda x: jnp.ravel(jax.tree.leaves(x)[0]), make())
    message = str(caught.value)
    assert words in message
    assert " must " in message
    assert "; " in message
    assert "\n" not in message


def test_table_of_the_docs_has_these_mistakes_and_messages():
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    listed = dict(row.strip("| ").split(" | ", 1) for row in rows[1:])
    assert listed == {mistake: f"`{words}`" for mistake, (_, _, words) in MISTAKES.items()}


PARAMETERS = {
    "Beta": (2.0, 3.0),
    "BetaProportion": (0.3, 4.0),
    "Dagum": (2.0, 1.0, 2.0),
    "DoublyTruncatedPowerLaw": (-1.5, 1.0, 3.0),
    "LogUniform": (1.0, 2.0),
    "LowerTruncatedPowerLaw": (-2.5, 1.0),
    "Pareto": (1.0, 3.0),
    "RelaxedBernoulli": (0.5, 0.3),
    "SoftLaplace": (0.0, 1.0),
    "Weibull": (1.0, 2.0),
    "Levy": (0.0, 1.0),
}


@pytest.mark.parametrize("family", BY_SCORES.split(", "))
def test_families_that_the_message_lists_are_accepted(family):
    low = {"low": 0.5} if family in {"TruncatedNormal", "TruncatedCauchy", "TruncatedGamma"} else {}
    distribution = getattr(dist, family)(*PARAMETERS.get(family, (2.0,)), **low)
    assert as_input(distribution).is_transformed
