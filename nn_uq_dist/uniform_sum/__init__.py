"""A linear combination of independent uniforms and a normal, as pure functions."""

from nn_uq_dist.uniform_sum._functions import cdf as cdf
from nn_uq_dist.uniform_sum._functions import entropy as entropy
from nn_uq_dist.uniform_sum._functions import from_normal_score as from_normal_score
from nn_uq_dist.uniform_sum._functions import logcdf as logcdf
from nn_uq_dist.uniform_sum._functions import logpdf as logpdf
from nn_uq_dist.uniform_sum._functions import logpdf_and_logsf as logpdf_and_logsf
from nn_uq_dist.uniform_sum._functions import logsf as logsf
from nn_uq_dist.uniform_sum._functions import normal_score as normal_score
from nn_uq_dist.uniform_sum._functions import (
    normal_score_and_logpdf as normal_score_and_logpdf,
)
from nn_uq_dist.uniform_sum._functions import ppf as ppf
from nn_uq_dist.uniform_sum._functions import sf as sf
