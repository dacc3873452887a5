#!/usr/bin/env python3
"""Derives the coefficients of codegen/llvm/math_*.cc: minimax polynomials and rational functions by Remez exchange.

Needs mpmath. Prints C++ arrays (hexadecimal floats, constant term first) and the error of each approximation after its
coefficients were rounded. The rounding is one coefficient at a time, most significant first, fitting the others again
after each (as Sollya's fpminimax aims at); that keeps most of the accuracy that plain rounding loses.

  scripts/minimax.py            all of them
  scripts/minimax.py exp_f32    those whose names start so
"""

import sys

from mpmath import atanh, cos, erf, erfc, exp, expm1, inf, linspace, log, lu_solve, matrix, mp, mpf, pi, sin, sqrt

mp.dps = 60


def round_to(value, bits):
    """The nearest binary floating-point number with `bits` of significand."""
    value = mpf(value)
    if value == 0:
        return value
    saved, mp.prec = mp.prec, bits
    rounded = +value
    mp.prec = saved
    return rounded


def chebyshev_points(a, b, count):
    return [(a + b) / 2 - (b - a) / 2 * mp.cos(pi * i / (count - 1)) for i in range(count)]


def extrema(error, a, b, count):
    """Points of alternating extreme error, at least `count`, found on a grid and then sharpened by parabolas."""
    grid = chebyshev_points(a, b, 40 * count)
    values = [error(x) for x in grid]
    peaks = []
    for i in range(len(grid)):
        left = abs(values[i - 1]) if i else mpf(0)
        right = abs(values[i + 1]) if i + 1 < len(grid) else mpf(0)
        if abs(values[i]) >= left and abs(values[i]) >= right and values[i] != 0:
            x = grid[i]
            if 0 < i < len(grid) - 1:
                x0, x2, y0, y1, y2 = grid[i - 1], grid[i + 1], values[i - 1], values[i], values[i + 1]
                # vertex of the parabola through three points
                d1, d2 = (y1 - y0) / (x - x0), (y2 - y1) / (x2 - x)
                curve = (d2 - d1) / (x2 - x0)
                if curve != 0:
                    vertex = (x0 + x) / 2 - d1 / (2 * curve)
                    if x0 < vertex < x2:
                        x = vertex
            peaks.append((x, error(x)))
    # one peak per run of equal signs: the largest
    runs = []
    for x, value in peaks:
        if runs and (runs[-1][1] > 0) == (value > 0):
            if abs(value) > abs(runs[-1][1]):
                runs[-1] = (x, value)
        else:
            runs.append((x, value))
    while len(runs) > count:
        runs.pop(0 if abs(runs[0][1]) < abs(runs[-1][1]) else -1)
    return runs


def exchange_one(points, errors, x, error):
    """The reference with its neighbour of equal sign replaced by x, so that signs still alternate."""
    points, errors = list(points), list(errors)
    above = sum(1 for p in points if p < x)  # position where x would go
    if above == 0:
        if (errors[0] > 0) == (error > 0):
            points[0] = x
        else:
            points = [x] + points[:-1]
    elif above == len(points):
        if (errors[-1] > 0) == (error > 0):
            points[-1] = x
        else:
            points = points[1:] + [x]
    elif (errors[above - 1] > 0) == (error > 0):
        points[above - 1] = x
    else:
        points[above] = x
    return points


class Fit:
    """f(x) ~ fixed(x) + sum c_i x^powers[i], minimising |error| / scale(x) on [a, b]."""

    def __init__(self, f, powers, a, b, scale, fixed=lambda x: mpf(0)):
        self.f, self.powers, self.a, self.b, self.scale, self.fixed = f, powers, mpf(a), mpf(b), scale, fixed

    def value(self, x, c):
        return self.fixed(x) + sum(ci * x**p for ci, p in zip(c, self.powers))

    def error(self, x, c):
        return (self.value(x, c) - self.f(x)) / self.scale(x)

    def solve(self, frozen=None):
        """Remez; coefficients in `frozen` (index -> value) stay."""
        frozen = frozen or {}
        free = [i for i in range(len(self.powers)) if i not in frozen]
        if not free:
            return [frozen[i] for i in range(len(self.powers))]
        n = len(free)
        points = chebyshev_points(self.a, self.b, n + 1)
        eps = (self.b - self.a) * mpf(10) ** -12
        points = [x if self.scale(x) != 0 else x + eps for x in points]
        best = None
        for _ in range(60):
            system, rhs = matrix(n + 1, n + 1), matrix(n + 1, 1)
            for row, x in enumerate(points):
                for column, i in enumerate(free):
                    system[row, column] = x ** self.powers[i]
                system[row, n] = (-1) ** row * self.scale(x)
                rhs[row] = self.f(x) - self.fixed(x) - sum(v * x ** self.powers[i] for i, v in frozen.items())
            solution = lu_solve(system, rhs)
            c = [frozen.get(i) for i in range(len(self.powers))]
            for column, i in enumerate(free):
                c[i] = solution[column]
            peaks = extrema(lambda x: self.error(x, c), self.a + eps, self.b - eps, n + 1)
            worst = max(abs(v) for _, v in peaks)
            if best is None or worst < best[0]:
                best = (worst, c)
            if worst < abs(solution[n]) * (1 + mpf(10) ** -4):
                break
            if len(peaks) == n + 1:
                points = [x for x, _ in peaks]
            else:
                x, value = max(peaks, key=lambda peak: abs(peak[1]))
                points = exchange_one(points, [(-1) ** i * solution[n] for i in range(n + 1)], x, value)
        return best[1]

    def rounded(self, bits, keep=()):
        """Coefficients rounded to `bits` each (or bits[i]), one after the other; `keep` fixes some first."""
        frozen = dict(keep)
        for i in range(len(self.powers)):
            if i in frozen:
                continue
            c = self.solve(frozen)
            frozen[i] = round_to(c[i], bits[i] if isinstance(bits, (list, tuple)) else bits)
        return [frozen[i] for i in range(len(self.powers))]

    def worst(self, c, count=4000):
        eps = (self.b - self.a) * mpf(10) ** -12
        return max(abs(self.error(x, c)) for x in linspace(self.a + eps, self.b - eps, count))


class RationalFit:
    """f(x) ~ P(u) / Q(u), u = variable(x), Q's constant term 1, minimising |error| / scale(x) on [a, b]."""

    def __init__(self, f, p_degree, q_degree, a, b, scale, variable=lambda x: x):
        self.f, self.np, self.nq = f, p_degree + 1, q_degree
        self.a, self.b, self.scale, self.variable = mpf(a), mpf(b), scale, variable

    def value(self, x, c):
        u = self.variable(x)
        p = sum(ci * u**i for i, ci in enumerate(c[: self.np]))
        q = 1 + sum(ci * u ** (i + 1) for i, ci in enumerate(c[self.np :]))
        return p / q

    def error(self, x, c):
        return (self.value(x, c) - self.f(x)) / self.scale(x)

    def solve(self):
        n = total = self.np + self.nq
        eps = (self.b - self.a) * mpf(10) ** -10
        points = chebyshev_points(self.a + eps, self.b - eps, n + 1)
        best, level = None, mpf(0)
        for _ in range(40):
            # The levelled error multiplies Q: solved by fixed-point iteration on its value.
            for _ in range(12):
                system, rhs = matrix(n + 1, n + 1), matrix(n + 1, 1)
                for row, x in enumerate(points):
                    u, sign = self.variable(x), (-1) ** row
                    target = self.f(x) + sign * level * self.scale(x)

                    def term(i):
                        return u**i if i < self.np else -target * u ** (i - self.np + 1)

                    for i in range(total):
                        system[row, i] = term(i)
                    # d/d(level): Q(u) * sign * scale, with Q from the last round, 1 at first
                    q = 1 if best is None else 1 + sum(ci * u ** (k + 1) for k, ci in enumerate(best[1][self.np :]))
                    system[row, n] = -sign * self.scale(x) * q
                    rhs[row] = target
                solution = lu_solve(system, rhs)
                c = [solution[i] for i in range(total)]
                level += solution[n]
                if best is None:
                    best = (inf, c)
                if abs(solution[n]) < abs(level) * mpf(10) ** -6:
                    break
            peaks = extrema(lambda x: self.error(x, c), self.a + eps, self.b - eps, n + 1)
            worst = max(abs(v) for _, v in peaks)
            if worst < best[0]:
                best = (worst, c)
            if worst < abs(level) * (1 + mpf(10) ** -3):
                break
            if len(peaks) == n + 1:
                points = [x for x, _ in peaks]
            else:
                x, value = max(peaks, key=lambda peak: abs(peak[1]))
                points = exchange_one(points, [(-1) ** i * level for i in range(n + 1)], x, value)
        return best[1]

    def rounded(self, bits):
        """Each coefficient rounded alone: good enough where all have one sign, so that nothing cancels."""
        return [round_to(c, bits) for c in self.solve()]

    def worst(self, c, count=4000):
        eps = (self.b - self.a) * mpf(10) ** -12
        return max(abs(self.error(x, c)) for x in linspace(self.a + eps, self.b - eps, count))


def hex_float(value, bits):
    text = float(value).hex()
    mantissa, exponent = text.split("p")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}p{exponent}" + ("f" if bits == 24 else "")


def emit(name, coefficients, bits, error):
    print(f"// {name}: 2^{float(log(error, 2)):.2f}")
    print(f"{{{', '.join(hex_float(c, bits) for c in coefficients)}}}")


HALF_LN2 = log(2) / 2 * mpf("1.0001")  # range reduction may land a little outside
QUARTER_PI = pi / 4 * mpf("1.0001")


def exp_f32():
    """exp(r) = 1 + r + r^2 (c0 + c1 r + ...)"""
    return Fit(exp, range(2, 7), -HALF_LN2, HALF_LN2, exp, lambda x: 1 + x), 24


def exp_f64():
    return Fit(exp, range(2, 13), -HALF_LN2, HALF_LN2, exp, lambda x: 1 + x), 53


def expm1_f32():
    """exp(r) - 1 = r + r^2 (c0 + c1 r + ...), accurate relative to itself"""
    return Fit(expm1, range(2, 8), -HALF_LN2, HALF_LN2, lambda x: abs(expm1(x)), lambda x: x), 24


def expm1_f64():
    return Fit(expm1, range(2, 14), -HALF_LN2, HALF_LN2, lambda x: abs(expm1(x)), lambda x: x), 53


def log_f32():
    """log(1 + f) = f + f^2 (c0 + c1 f + ...), 3/4 <= 1 + f < 3/2"""
    return Fit(lambda x: log(1 + x), range(2, 11), mpf(-1) / 4, mpf(1) / 2, lambda x: abs(log(1 + x)), lambda x: x), 24


def log_f64():
    """2 atanh(s) = 2 s + s z (c0 + c1 z + ...), z = s^2, s = f / (2 + f), |s| <= 1/5"""
    f = lambda z: 2 * atanh(sqrt(z)) / sqrt(z) - 2
    return Fit(f, range(1, 9), mpf(10) ** -20, mpf(1) / 25 * mpf("1.0001"), lambda z: mpf(1)), 53


def erf_f32():
    """log(erfc(x)) = -(x + x (c0 + c1 x + ...)), 0 <= x <= 3.93; the scale makes it the relative error of erf"""
    return Fit(lambda x: -log(erfc(x)), range(1, 10), 0, mpf("3.93"), lambda x: erf(x) / erfc(x), lambda x: x), 24


def erf_f64():
    """log(erfc(x)) = -(x + x P(x) / Q(x)), 0 <= x <= 5.95; P first, then Q without its constant term 1"""
    f = lambda x: -log(erfc(x)) / x - 1
    return RationalFit(f, 9, 8, mpf(10) ** -12, mpf("5.95"), lambda x: erf(x) / erfc(x) / x), 53


def sin_f32():
    """sin(t) = t + t^3 (c0 + c1 t^2 + ...)"""
    return Fit(sin, range(3, 8, 2), 0, QUARTER_PI, lambda x: abs(sin(x)), lambda x: x), 24


def sin_f64():
    return Fit(sin, range(3, 14, 2), 0, QUARTER_PI, lambda x: abs(sin(x)), lambda x: x), 53


def cos_f32():
    """cos(t) = 1 - t^2 / 2 + t^4 (c0 + c1 t^2 + ...)"""
    return Fit(cos, range(4, 9, 2), 0, QUARTER_PI, cos, lambda x: 1 - x * x / 2), 24


def cos_f64():
    return Fit(cos, range(4, 15, 2), 0, QUARTER_PI, cos, lambda x: 1 - x * x / 2), 53


def exp2_pow_f32():
    """2^r = 1 + r (c0 + c1 r + ...), |r| <= 1/2, in f64 for a result rounded to f32"""
    return Fit(lambda x: mpf(2) ** x, range(1, 8), mpf(-1) / 2, mpf(1) / 2, lambda x: mpf(2) ** x, lambda x: mpf(1)), 53


def log2_pow_f32():
    """log2(m) = s (c0 + c1 z + ...), z = s^2, s = (m - 1) / (m + 1), 3/4 <= m < 3/2, in f64"""
    f = lambda z: 2 * atanh(sqrt(z)) / sqrt(z) / log(2)
    return Fit(f, range(0, 7), mpf(10) ** -20, mpf(1) / 25 * mpf("1.0001"), f), 53


def log_pow_f32():
    """atanh(s) / s = 1 + z/3 + z^2 (c0 + c1 z + ...), z = s^2, |s| <= 1/5"""
    f = lambda z: (atanh(sqrt(z)) / sqrt(z) - 1 - z / 3) / z**2
    return Fit(f, range(0, 4), mpf(10) ** -12, mpf(1) / 25 * mpf("1.0001"), f), 24


def log_pow_f64():
    """atanh(s) / s = 1 + z/3 + z^2 (c0 + c1 z + ...), z = s^2, |s| <= 1/5"""
    f = lambda z: (atanh(sqrt(z)) / sqrt(z) - 1 - z / 3) / z**2
    return Fit(f, range(0, 9), mpf(10) ** -12, mpf(1) / 25 * mpf("1.0001"), f), 53


def two_over_pi(bits, pieces, shift):
    """2/pi * 2^shift, cut into pieces of so many bits."""
    saved, mp.prec = mp.prec, bits * pieces + 64
    rest, cut = 2 / pi * mpf(2) ** shift, []
    for i in range(pieces):
        unit = mpf(2) ** (shift - bits * (i + 1))
        cut.append(mp.floor(rest / unit) * unit)
        rest -= cut[-1]
    mp.prec = saved
    return cut


def main():
    wanted = sys.argv[1:] or [""]
    for name in ("exp_f32 exp_f64 expm1_f32 expm1_f64 log_f32 log_f64 erf_f32 erf_f64 sin_f32 sin_f64 cos_f32 cos_f64 exp2_pow_f32 log2_pow_f32 log_pow_f32 log_pow_f64").split():
        if not any(name.startswith(w) for w in wanted):
            continue
        fit, bits = globals()[name]()
        if isinstance(fit, Fit):
            fit.powers = list(fit.powers)
        coefficients = fit.rounded(bits)
        emit(name, coefficients, bits, fit.worst(coefficients, 2000))
    for name, bits, pieces, shift in (("two_over_pi_wide", 29, 7, 0), ("two_over_pi_f32", 24, 8, 96), ("two_over_pi_f64", 53, 22, 200)):
        if any(name.startswith(w) for w in wanted):
            emit(name, two_over_pi(bits, pieces, shift), bits, mpf(2) ** -(bits * pieces))


if __name__ == "__main__":
    main()
