"""Reference log density and log survival of ``X = sum_k w_k U_k + s N`` in high precision.

``U_k`` are Uniform(-1, 1), ``N`` is Normal(0, 1), all independent. Arguments are exact
rationals (every double is one), so nothing is lost before the first operation.

Two methods, sharing no algebra, and a third one that the bank is checked by:

- :func:`exact_alternating_sum`: the sum over sign patterns of truncated powers in integer
  arithmetic. Without error, for few distinct weights and no normal part.
- :func:`contour_integral`: the exponentially tilted inversion integral by the trapezoidal
  rule. For many weights, or with a normal part.
- :func:`iterated_normal_integrals`: for few weights and a normal part.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from mpmath import mp

MAX_EXACT_TERMS = 2**14


class LogValues(NamedTuple):
    """Log density and log survival (mpmath floats)."""

    log_density: Any
    log_survival: Any


def log_values(x, weights, normal_scale=Fraction(0), digits=40):
    """Log density and log survival at `x`, with about `digits` correct digits.

    Arguments are fractions; without a normal part `x` is inside the support. Signs of weights do
    not matter, zeros are dropped.
    """
    half_widths = [abs(w) for w in weights if w != 0]
    if normal_scale == 0 and number_of_terms(half_widths) <= MAX_EXACT_TERMS:
        upper = exact_alternating_sum(abs(x), half_widths, digits)
    else:
        upper = contour_integral(abs(x), half_widths, abs(normal_scale), digits)
    if x >= 0:
        return upper
    with mp.workdps(digits + 20):
        # The upper tail of -x is the lower tail of x; log1p keeps its digits when it is tiny.
        return LogValues(upper.log_density, mp.log1p(-mp.exp(upper.log_survival)))


def float_log_values(points, weights, normal_scale=None, digits=40):
    """Log densities and log survivals ``(2, N)`` in float64, of floating-point arguments."""
    weights, s = [Fraction(float(w)) for w in weights], Fraction(float(normal_scale or 0))
    return np.array([log_values(Fraction(float(x)), weights, s, digits) for x in points], float).T


def number_of_terms(half_widths):
    """Terms of the alternating sum once equal weights are gathered."""
    return math.prod(m + 1 for m in Counter(half_widths).values())


def exact_alternating_sum(x, half_widths, digits=40):
    """Both values from ``sum_e prod(e) (e.w - x)_+^m / (m! 2^n prod(w))``.

    ``m = n - 1`` gives the density and ``m = n`` the survival function. Everything is scaled
    to integers by one power of two, so the heavy cancellation of the sum costs nothing.
    """
    n = len(half_widths)
    unit = math.lcm(x.denominator, *(w.denominator for w in half_widths))
    integers = [int(w * unit) for w in half_widths]
    # All sums of e_k w_k, each with the sum of its prod_k e_k.
    sums = [(1, 0)]
    for w, m in Counter(integers).items():
        steps = [((-1) ** j * math.comb(m, j), w * (m - 2 * j)) for j in range(m + 1)]
        sums = [(c * a, y + b) for c, y in sums for a, b in steps]
    position = int(x * unit)
    density = survival = 0
    for coefficient, total in sums:
        distance = total - position
        if distance > 0:
            power = coefficient * distance ** (n - 1)
            density += power
            survival += power * distance
    scale = 2**n * math.prod(integers)
    with mp.workdps(digits + 20):
        return LogValues(
            mp.log(mp.mpf(density * unit) / (scale * math.factorial(n - 1))),
            mp.log(mp.mpf(survival) / (scale * math.factorial(n))),
        )


def iterated_normal_integrals(x, half_widths, normal_scale):
    """Both values with a normal part, ``sum_e prod(e) s^m J_m((e.w - x)/s) / (2^n prod(w))``.

    ``J_m`` is the m-fold integral of the normal distribution function from minus infinity. The sum
    cancels: the working precision is that of the caller.
    """
    n, s = len(half_widths), _mpf(normal_scale)
    terms = Counter()
    for signs in itertools.product((1, -1), repeat=n):
        terms[sum(e * w for e, w in zip(signs, half_widths, strict=True))] += math.prod(signs)
    density = survival = mp.mpf(0)
    for total, sign in terms.items():
        y = _mpf((total - x) / normal_scale)
        before, last = mp.npdf(y), mp.erfc(-y / mp.sqrt(2)) / 2
        for m in range(1, n + 1):
            before, last = last, (y * last + before) / m
        density, survival = density + sign * before, survival + sign * last
    scale = s ** (n - 1) / _mpf(2**n * math.prod(half_widths))
    return LogValues(mp.log(density * scale), mp.log(survival * s * scale))


def contour_integral(x, half_widths, normal_scale, digits=40):
    """Both values for ``x >= 0`` by the trapezoidal rule along ``t + i a``.

    ``p(x) = exp(K(t) - t x) / pi * Int_0^inf Re exp(K(t + i a) - K(t) - i a x) da``, and the
    survival function has the further factor ``1 / (t + i a)``. The rule is applied with a step
    and with half of it; an ``ArithmeticError`` is raised unless the two agree.
    """
    groups = [(float(w), m) for w, m in Counter(half_widths).items()]
    rough = float(x), groups, float(normal_scale)
    t = saddlepoint(*rough)
    length = _alias_free_length(*rough, t, digits)
    count = math.ceil(_reach(*rough[1:], t, digits) * length / (2 * math.pi)) + 1
    # coth(w t) sin(w a) comes from rotations of modulus one: small w t costs digits.
    lost = max([0.0, *(-math.log10(w * t) for w, _ in groups)])
    with mp.workdps(digits + 20 + math.ceil(lost)):
        step = 2 * mp.pi / mp.mpf(length)
        exact = [(_mpf(w), m) for w, m in Counter(half_widths).items()]
        s, y, t = _mpf(normal_scale), _mpf(x), mp.mpf(t)
        whole, halves = (_trapezoid(y, exact, s, t, step, count, at) for at in (0, step / 2))
        exponent = (s * t) ** 2 / 2 - t * y
        exponent += sum(m * mp.log(mp.sinh(w * t) / (w * t)) for w, m in exact)
        results = []
        for coarse, shifted in zip(whole, halves, strict=True):
            value = (coarse + shifted) / 2
            if abs(coarse - shifted) > mp.mpf(10) ** (-digits) * abs(value):
                raise ArithmeticError(f"contour integral not converged at x = {float(x)!r}")
            results.append(exponent + mp.log(value))
        return LogValues(*results)


def _trapezoid(x, groups, s, t, step, count, first):
    """The rule for both integrals over ``pi``, with nodes from 0 or from half a step."""
    n = sum(m for _, m in groups)
    factors = [(mp.coth(w * t), m, mp.expj(w * step)) for w, m in groups]
    rotated = [mp.expj(w * first) for w, _ in groups]
    drift = s * s * t - x
    phase, phase_step = mp.expj(drift * first), mp.expj(drift * step)
    density = survival = mp.mpf(0)
    for j in range(count):
        a = first + j * step
        node = mp.mpc(t, a)
        value = phase * (t / node) ** n
        if s:
            value *= mp.exp(-((s * a) ** 2) / 2)
        for k, (coth, m, rotation) in enumerate(factors):
            z = rotated[k]
            factor = mp.mpc(z.real, coth * z.imag)
            value *= factor if m == 1 else factor**m
            rotated[k] = z * rotation
        phase *= phase_step
        if a == 0:
            value /= 2
        density += value.real
        survival += (value / node).real
    return density * step / mp.pi, survival * step / mp.pi


def saddlepoint(x, groups, s):
    """A tilt near the saddlepoint ``K'(t) = x``, at least 3 / sd to stay off the pole at 0."""

    def mean(t):
        total = s * s * t
        for w, m in groups:
            u = w * t
            total += m * w * (u / 3 if u < 1e-4 else 1 / math.tanh(u) - 1 / u)
        return total

    low = high = 3 / math.sqrt(sum(m * w * w for w, m in groups) / 3 + s * s)
    while mean(high) < x:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < x else (low, middle)
    return (low + high) / 2


def _alias_free_length(x, groups, s, t, digits):
    """Period ``2 pi / step`` whose aliases, on either side, are below the wanted accuracy.

    To the left the survival function is at most 1, its alias ``exp(-t length)``; compared with
    the tail itself, whose logarithm is about ``K(t) - t x``. To the right the tilted distribution
    ends at the sum of the weights, or falls off as a normal distribution around ``s^2 t``.
    """
    log_tail = (s * t) ** 2 / 2 - t * x
    for w, m in groups:
        u = w * t
        log_tail += m * (u * u / 6 if u < 1e-3 else u + math.log(-math.expm1(-2 * u) / (2 * u)))
    margin = (digits + 8) * math.log(10)
    left = (margin + max(0.0, -log_tail)) / t
    beyond = max(sum(m * w for w, m in groups) - x, 0.0)
    return max(left, beyond + s * s * t + s * math.sqrt(2 * margin))


def _reach(groups, s, t, digits):
    """Where an envelope of the integrand has fallen below the wanted accuracy."""

    def log_envelope(a):
        decay = 0.5 * math.log1p((a / t) ** 2)
        uniform = sum(m * min(0.0, -math.log(math.tanh(w * t)) - decay) for w, m in groups)
        return uniform - (s * a) ** 2 / 2

    high = t
    while log_envelope(high) > -(digits + 8) * math.log(10):
        high *= 1.1
    return high


def _mpf(value):
    return mp.mpf(value.numerator) / value.denominator
