"""The error function and its complement as arithmetic on f32 or f64 vectors or scalars.

With a = |x|:

- near zero erf(x) = x + x p(x^2), where p is the Chebyshev interpolant of erf(sqrt z) / sqrt z - 1;
- further out erfc(a) = e^(-a^2) r(q) / (a + k) with q = (a - k) / (a + k), which takes a half line
  to an interval, on which (a + k) e^(a^2) erfc(a) is nearly a polynomial (M. Shepherd and J.
  Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < infinity", Math.
  Comp. 36, 1981). The square is taken in two parts, and quotients are corrected by what they leave;
- erf needs the absolute error of erfc alone there: in f32 it is the fourth power of a polynomial,
  since the root falls more slowly, in f64 e to a polynomial.

The coefficients are least-squares fits in Chebyshev points, rounded one by one, each before the
next was fitted. As they stand their errors are 1.7e-17 and 3.3e-9 of r, 5.1e-9 of p in f32,
relative; those of erf are 1.4e-8 and 7.9e-18.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stepwell.kernels import vector_math, vector_math_double
from stepwell.kernels.vector_math import constant, polynomial
from stepwell.mlir import dialect, ir

arith = dialect("arith")
math = dialect("math")

_OGT, _OLT = 2, 4


@dataclass(frozen=True)
class _Fit:
    """Coefficients of one type: p for a < 1, and r, its last one in two parts, with its k for a up
    to `limit`, where erfc rounds to zero; factor * e^(high + low)."""

    near: tuple[float, ...]
    far: tuple[float, ...]
    far_rest: float
    pole: float
    limit: float
    times_exp: Callable[[ir.Value, ir.Value, ir.Value], ir.Value]


_SINGLE = _Fit(
    near=(7.209697651e-05, -0.0007814788842, 0.005166312214, -0.02684257738, 0.1128333583,
          -0.3761260808, 0.1283791661),
    far=(-0.0003143939539, -0.001031362102, 0.003058895236, 0.006516332272, -0.02151230536,
         -0.03644408658, 0.2794722319, -0.6871606708, 1.021582723),
    far_rest=-1.821896056242167e-08,
    pole=2.0,
    limit=10.1,
    times_exp=vector_math.times_exp,
)  # fmt: skip
_DOUBLE = _Fit(
    near=(-4.230945824295338e-12, 8.709045129053106e-11, -1.216456005728345e-09,
          1.4792401209404813e-08, -1.6364642158167616e-07, 1.6462045441468418e-06,
          -1.4925647567519332e-05, 0.00012055332902888736, -0.000854832702193483,
          0.0052239776254232985, -0.02686617064512984, 0.1128379167095512, -0.37612638903183754,
          0.1283791670955126),
    far=(9.529419199627314e-08, -1.995682624520878e-07, -4.680649049194572e-07,
         9.975908300859973e-07, 2.7955623612189903e-06, -4.754956007063666e-06,
         -1.7478719011090607e-05, 3.040055113798265e-05, 0.00010756277658740281,
         -0.0002767782949878084, -0.000548309813405607, 0.003034062045780369,
         -0.0012124166205607551, -0.02682723462676236, 0.11952776128709808, -0.31046726190051577,
         0.5902283571041042, -0.883394453169884, 1.0740069070883398),
    far_rest=-9.368606141583913e-17,
    pole=3.0,
    limit=27.3,
    times_exp=vector_math_double.times_exp,
)  # fmt: skip

_ROOT = (-0.0001806857908, 0.003246642416, -0.0222631637, 0.06621076912, -0.05052315444,
         -0.06350430846, -0.3086678982, 1.005452156)  # fmt: skip
"""The fourth root of erfc(a), for 1.1 <= a <= 4.05, in f32."""
_ROOT_LEAST, _ROOT_LIMIT = 1.1, 4.05
"""From here on, up to where 1 less the fourth power rounds to 1."""

_LOGARITHM = (
    -4.841664020003095e-12, 1.188408416364727e-10, -1.3146825909439171e-09, 8.495517427487072e-09,
    -3.3313315846371825e-08, 5.783931914631499e-08, 2.0505922236300872e-07, -2.132144675664987e-06,
    9.67141077961653e-06, -2.7198836205164563e-05, 2.6296144869154274e-05, 0.00023731655636129623,
    -0.001977901265085857, 0.010033825191472424, -0.041561098026917015, -0.8431072563592653,
    -2.638967514234781, -1.8496055099332482,
)  # fmt: skip
"""log(erfc(a)) in a - 1, for 1 <= a <= 5.95, in f64."""
_LOGARITHM_LIMIT = 5.95
"""Where 1 - erfc rounds to 1."""


def erf(x: ir.Value) -> ir.Value:
    """Error function, within 2 ulp of f32 and 1.2 of f64."""
    size = math.AbsFOp(x).result
    fit = _fit(x)
    one = constant(x.type, 1.0)
    if fit is _SINGLE:
        root = polynomial(_at_most(size, _ROOT_LIMIT), _ROOT)
        square = arith.MulFOp(root, root).result
        far = math.FmaOp(arith.NegFOp(square).result, square, one).result
        near = _less(size, _ROOT_LEAST)
    else:
        bounded = _at_most(size, _LOGARITHM_LIMIT)
        exponent = polynomial(arith.SubFOp(bounded, one).result, _LOGARITHM)
        far = arith.SubFOp(one, vector_math_double.exp_of_nonpositive(exponent)).result
        near = _less(size, 1.0)
    far = math.CopySignOp(far, x).result
    return arith.SelectOp(near, _near(x, x, fit), far).result


def erfc(x: ir.Value) -> ir.Value:
    """Complementary error function, within 3 ulp, subnormal results included: 1/4 - (x - 3/4 +
    x p(x^2)) near zero, 2 less that of -x further left."""
    fit = _fit(x)
    size = math.AbsFOp(x).result
    far = _complement(size, fit)
    reflected = arith.SubFOp(constant(x.type, 2.0), far).result
    far = arith.SelectOp(_less(x, 0.0), reflected, far).result
    moved = arith.SubFOp(x, constant(x.type, 0.75)).result
    near = arith.SubFOp(constant(x.type, 0.25), _near(x, moved, fit)).result
    return arith.SelectOp(_less(size, 1.0), near, far).result


def _fit(x: ir.Value) -> _Fit:
    element = x.type.element_type if isinstance(x.type, ir.VectorType) else x.type
    return _DOUBLE if isinstance(element, ir.F64Type) else _SINGLE


def _near(x: ir.Value, addend: ir.Value, fit: _Fit) -> ir.Value:
    """erf(x) - x + addend for |x| < 1."""
    square = arith.MulFOp(x, x).result
    return math.FmaOp(x, polynomial(square, fit.near), addend).result


def _complement(size: ir.Value, fit: _Fit) -> ir.Value:
    """erfc(size) for size >= 1."""
    size = _at_most(size, fit.limit)
    whole = arith.AddFOp(size, constant(size.type, fit.pole)).result
    inverse = arith.DivFOp(constant(size.type, 1.0), whole).result
    q = _quotient(arith.AddFOp(size, constant(size.type, -fit.pole)).result, whole, inverse)
    *higher, first = fit.far
    rest = polynomial(q, tuple(higher))
    numerator = math.FmaOp(q, rest, constant(size.type, first)).result
    lost = arith.SubFOp(constant(size.type, first), numerator).result
    lost = math.FmaOp(q, rest, lost).result
    lost = arith.AddFOp(lost, constant(size.type, fit.far_rest)).result
    pole = constant(size.type, fit.pole)
    left_out = arith.SubFOp(pole, arith.SubFOp(whole, size).result).result
    share = arith.MulFOp(numerator, inverse).result
    lost = math.FmaOp(arith.NegFOp(share).result, left_out, lost).result
    scaled = _quotient(numerator, whole, inverse, lost)
    square = arith.MulFOp(size, size).result
    negative = arith.NegFOp(square).result
    below = math.FmaOp(arith.NegFOp(size).result, size, square).result
    return fit.times_exp(scaled, negative, below)


def _quotient(
    numerator: ir.Value, denominator: ir.Value, inverse: ir.Value, rest: ir.Value | None = None
) -> ir.Value:
    """(numerator + rest) / denominator by the rounded inverse, and once more of what is left."""
    guess = arith.MulFOp(numerator, inverse).result
    left = math.FmaOp(arith.NegFOp(guess).result, denominator, numerator).result
    if rest is not None:
        left = arith.AddFOp(left, rest).result
    return math.FmaOp(left, inverse, guess).result


def _less(x: ir.Value, bound: float) -> ir.Value:
    return arith.CmpFOp(_OLT, x, constant(x.type, bound)).result


def _at_most(x: ir.Value, bound: float) -> ir.Value:
    """The lesser of x and `bound`; NaN stays."""
    limit = constant(x.type, bound)
    return arith.SelectOp(arith.CmpFOp(_OGT, x, limit).result, limit, x).result
