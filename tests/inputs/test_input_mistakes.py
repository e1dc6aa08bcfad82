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
ROWS = [line.strip("| ") for line in PAGE.read_text("utf-8").splitlines() if line[:2] == "| "]
# By mistake, what the message says.
WORDS = {mistake: words.strip("`") for mistake, words in (row.split(" | ", 1) for row in ROWS[1:])}
ZEROS = np.zeros(3, np.float32)

# Stands in for a package that is not installed for the tests.
Foreign = type("Normal", (), {"__module__": "openturns.dist"})

MISTAKES = {
    "a frozen distribution of SciPy": (lambda: scipy.stats.norm(0, 1)),
    "a distribution of another package, such as OpenTURNS": Foreign,
    "a class of distributions": (lambda: dist.Normal),
    "a mixture": (
        lambda: dist.MixtureSameFamily(
            dist.Categorical(jnp.ones(2) / 2), dist.Normal(jnp.arange(2.0), 1.0)
        )
    ),
    "an array of inputs": (lambda: ZEROS),
    "several numbers without `.to_event(1)`": (lambda: dist.Uniform(ZEROS, 1.0)),
    "a discrete distribution": (lambda: dist.Poisson(3.0)),
    "a discrete distribution in a dict": (
        lambda: {"a": dist.Normal(0.0, 1.0), "b": dist.Poisson(3.0)}
    ),
    "a transform with a kink": (
        lambda: dist.TransformedDistribution(
            dist.Normal(ZEROS, 1.0).to_event(1), [dist.transforms.AbsTransform()]
        )
    ),
    "a dict of known values alone": (lambda: {"a": ZEROS}),
    "a known array for each of a batch": (
        lambda: {"a": dist.Normal(jnp.zeros((3, 2)), 1.0).to_event(1), "b": jnp.ones((3, 2))}
    ),
    "a word in a dict": (lambda: {"a": dist.Normal(0.0, 1.0), "b": "one"}),
    "a negative half-width": (lambda: Input.box(ZEROS, half_width=-1.0)),
    "a covariance as `scale_tril`": (
        lambda: Input.normal(ZEROS[:2], scale_tril=[[1.0, 0.5], [0.5, 1.0]])
    ),
    "a negative variance": (
        lambda: Input.normal(ZEROS[:2], covariance_matrix=[[1.0, 0.0], [0.0, -1.0]])
    ),
    "a mean alone": (lambda: Input.normal(ZEROS)),
    "a mean that is NaN": (lambda: Input.box([np.nan, 0.0], half_width=1.0)),
    "an asymmetric triangular distribution": (lambda: Input.triangular([0.0], [1.0], [0.2])),
    "a sum of vectors of two lengths": (lambda: Input.box(ZEROS, 1.0) + Input.box(ZEROS[:2], 1.0)),
    "one draw to estimate a distribution from": (lambda: Input.from_samples(ZEROS[None])),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_message_names_the_remedy(mistake):
    with pytest.raises((TypeError, ValueError)) as caught:
        linearize(lambda x: jnp.ravel(jax.tree.leaves(x)[0]), MISTAKES[mistake]())
    message = str(caught.value)
    assert WORDS[mistake] in message
    assert " must " in message
    assert "; " in message
    assert "\n" not in message


def test_table_of_the_docs_has_these_mistakes():
    assert WORDS.keys() == MISTAKES.keys()


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
