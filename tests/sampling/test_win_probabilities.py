"""`win_probabilities`: against closed forms, and its standard errors against repetitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq

KEY = jax.random.key(0)


def bending(x):
    return jnp.stack([x[0] + 0.3 * x[0] ** 2, x[1], 0.3 + 0.1 * jnp.sin(x[2])])


LAW = nuq.Input.box(jnp.array([0.2, 0.3, 0.0]), half_width=jnp.array([0.5, 0.4, 0.8]))
LINEAR = nuq.linearize(bending, LAW)


@pytest.fixture(scope="module")
def truth():
    draws = nuq.monte_carlo(bending, LAW, jax.random.key(99), 2_000_000, progress=False)
    return np.bincount(draws.argmax(axis=1), minlength=3) / len(draws)


def test_shares_of_draws_and_their_errors():
    draws = np.repeat(np.eye(3), (700, 300, 0), axis=0)
    wins = nuq.win_probabilities(draws)
    np.testing.assert_allclose(wins.value, [0.7, 0.3, 0.0])
    binomial = np.sqrt(0.21 / 1000)
    np.testing.assert_allclose(wins.standard_error[:2], binomial, rtol=1e-2)
    np.testing.assert_allclose(wins.standard_error[2], np.sqrt(2) / 1000)
    np.testing.assert_allclose(wins.worth, 1000, rtol=3e-3)


def test_draws_of_a_distribution_agree_with_a_closed_form():
    # Two outputs a + b and a - b: the first wins where b is positive, 3/4 of the box.
    distribution = nuq.Input.box(jnp.array([0.0, 0.1]), half_width=0.2)
    linear = nuq.Linearization([0.1, -0.1], [[1.0, 1.0], [1.0, -1.0]], distribution)
    for draws in (linear.sample(KEY, (20_000,)), linear.joint().sample(KEY, (20_000,))):
        wins = nuq.win_probabilities(draws)
        assert wins.value.sum() == pytest.approx(1)
        assert abs(wins.value[0] - 0.75) < 4 * wins.standard_error[0]


def many_wins(points):
    """Estimates from independent pairs, and the errors of as many plain draws."""
    if points == "random":  # independent points of a batch
        many = nuq.linearize(bending, LAW.expand((100,)))
        pairs = [nuq.paired_draws(bending, many, KEY, 400, progress=False)]
    else:
        keys = jax.random.split(KEY, 30)
        options = {"points": "sobol", "progress": False}
        pairs = [nuq.paired_draws(bending, LINEAR, key, 400, **options) for key in keys]
    wins = [nuq.win_probabilities(part) for part in pairs]
    plain = [nuq.win_probabilities(part.network).standard_error for part in pairs]
    values, errors = (np.concatenate([np.reshape(one[k], (-1, 3)) for one in wins]) for k in (0, 1))
    return values, errors, np.mean(np.reshape(plain, (-1, 3)), axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("points", ["random", "sobol"])
def test_pairs_have_errors_that_hold_and_are_smaller(points, truth):
    values, errors, plain = many_wins(points)
    np.testing.assert_allclose(values.sum(axis=1), 1)
    scores = (values - truth) / errors
    # The truth itself is uncertain by less than a tenth of an error.
    assert (np.abs(scores) < 1.96).mean() > 0.91
    assert np.abs(scores.mean(axis=0)).max() < 3.5 / np.sqrt(len(scores))
    assert (scores.std(axis=0) < 1.25).all()
    assert (errors.mean(axis=0) < 0.75 * plain).all()


@pytest.mark.slow
def test_batch_is_the_stack_of_single_distributions():
    distributions = nuq.Input.box(jnp.stack([LAW.mean, LAW.mean + 0.1]), half_width=0.4)
    linear = nuq.linearize(bending, distributions)
    pairs = nuq.paired_draws(bending, linear, KEY, 1000, progress=False)
    wins = nuq.win_probabilities(pairs)
    assert wins.value.shape == wins.standard_error.shape == wins.worth.shape == (2, 3)
    alone = nuq.win_probabilities(pairs[1])
    error = np.hypot(wins.standard_error[1], alone.standard_error)
    assert (np.abs(wins.value[1] - alone.value) < 4 * error).all()


def test_models_are_drawn_from():
    pairs = nuq.paired_draws(bending, LINEAR, KEY, 400, progress=False)
    model = LINEAR.corrected(pairs)
    wins = nuq.win_probabilities(model, key=KEY)
    draws = nuq.win_probabilities(model.sample(jax.random.key(1), (20_000,)))
    error = np.hypot(wins.standard_error, draws.standard_error)
    assert (np.abs(wins.value - draws.value) < 4 * error).all()
    assert wins.value.sum() == pytest.approx(1)
    np.testing.assert_allclose(wins.worth, 100_000)


def test_draw_with_nan_is_won_by_none_and_infinity_wins():
    draws = np.array([[0.0, np.nan], [0.0, np.inf], [1.0, 0.0], [1.0, 1.0]])
    np.testing.assert_allclose(nuq.win_probabilities(draws).value, [0.5, 0.25])


def test_wrong_arguments_are_named():
    for draws, error, message in (
        (np.zeros(3), ValueError, r"draws must have shape .* got shape \(3,\)"),
        (np.zeros((1, 3)), ValueError, "with n >= 2"),
        (LINEAR, TypeError, "key must be a JAX random key"),
    ):
        with pytest.raises(error, match=message):
            nuq.win_probabilities(draws)
    with pytest.raises(TypeError, match="draws must hold numbers, got traced values"):
        jax.jit(nuq.win_probabilities)(np.zeros((9, 3)))
