"""Numerics of the Gaussian copula: Hermite series, Nataf correlation and its repair.

Outputs ``y_j = F_j^{-1}(Phi(z_j))`` are functions of normal scores ``z`` with a correlation matrix.
Three questions are answered here, in the order in which
`nn_uq_dist.Linearization.gaussian_copula` needs them:

- `hermite_coefficients`, `covariance_of_scores`, `covariance_of_outputs`: which covariance do the
  outputs have, given the correlation of their scores? (Mehler's formula)
- `nataf_correlation`: which correlation of the scores gives the outputs a desired correlation?
- `clipped_correlation`: which valid correlation matrix is near, if that matrix is indefinite?

``_score_algebra`` has conditioning, whitening and the density once the Cholesky factor of the
scores is known. The distributions that are built on it are in `nn_uq_dist.distributions`.
"""

from nn_uq_dist.gaussian_copula._clipped_correlation import (
    clipped_correlation as clipped_correlation,
)
from nn_uq_dist.gaussian_copula._nataf import NatafCorrelation as NatafCorrelation
from nn_uq_dist.gaussian_copula._nataf import covariance_of_outputs as covariance_of_outputs
from nn_uq_dist.gaussian_copula._nataf import covariance_of_scores as covariance_of_scores
from nn_uq_dist.gaussian_copula._nataf import hermite_coefficients as hermite_coefficients
from nn_uq_dist.gaussian_copula._nataf import nataf_correlation as nataf_correlation
