"""Log scores beside kernel densities: against brute force, errors by repetition."""

import numpy as np
import pytest
import scipy.special
import scipy.stats
from arviz_stats.base import array_stats

from nn_uq_dist.diagnostics import _log_scores as scores
from tests.diagnostics.known_laws import LAWS, sample

pytestmark = pytest.mark.viz


@pytest.mark.slow
def test_log_score_error_is_calibrated():
    law = scipy.stats.norm(0, 1.3)
    found = [scores.log_scores(x, law.logpdf(x)) for x in sample(scipy.stats.norm, (400, 2_000))]
    differences, errors = np.array([[score.difference, score.standard_error] for score in found]).T
    # Minus the Kullback-Leibler divergence, plus the error of the kernel density.
    divergence = np.log(1.3) + 0.5 / 1.3**2 - 0.5
    assert abs(differences.mean() + divergence) < 0.006
    np.testing.assert_allclose(np.std(differences) / np.mean(errors), 1, atol=0.15)


@pytest.mark.parametrize("name", LAWS)
def test_kernel_density_leaves_each_draw_out(name):
    law = LAWS[name]
    x = sample(law, 800)
    x[-1] += 3 * law.std()  # far from its neighbors
    found = scores.log_scores(x, law.logpdf(x))
    _, _, bandwidth = array_stats.kde(
        x, grid_len=scores.KERNEL_GRID, bound_correction=False, extend=True, extend_fct=0.5
    )
    exponents = -0.5 * ((x[:, None] - x) / bandwidth) ** 2
    np.fill_diagonal(exponents, -np.inf)
    kernel = scipy.special.logsumexp(exponents, axis=1)
    kernel -= np.log(799 * bandwidth * np.sqrt(2 * np.pi))
    # The binned sum is normalized on its grid.
    assert found.kernel == pytest.approx(kernel.mean(), abs=3e-3)
    if np.isfinite(law.logpdf(x)).all():
        assert found.law == pytest.approx(law.logpdf(x).mean())
        difference = law.logpdf(x) - kernel
        assert found.difference == pytest.approx(difference.mean(), abs=3e-3)
        error = difference.std(ddof=1) / np.sqrt(800)
        assert found.standard_error == pytest.approx(error, rel=0.02)
    else:
        assert found.law == -np.inf
        assert np.isnan(found.standard_error)


@pytest.mark.parametrize("lonely", [True, False])
def test_kernel_density_of_single_draws_is_unknown(lonely):
    x = sample(LAWS["normal"], 800)
    x[-1 if lonely else slice(0, 200)] = 1e4 if lonely else x[0]
    x.sort()
    found = scores.log_scores(x, LAWS["normal"].logpdf(np.minimum(x, 5)))
    assert np.isfinite(found.law)
    assert np.isnan([found.kernel, found.difference, found.standard_error]).all()
