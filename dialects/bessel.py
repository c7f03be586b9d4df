"""The exponentially scaled modified Bessel function of order one, e^-|x| I1(x).

In f64, up to 4 it is x / 2 p(x^2) e^-|x|, where p has positive coefficients, as the power series
has (Abramowitz and Stegun, 9.6.10); beyond 10, r(20 / |x| - 1) / sqrt(|x|), as in the asymptotic
series (9.7.1); between them q((|x| - 7) / 3). All three are Chebyshev interpolants, of relative
errors below 1e-17.

In f32, up to 1.5 it is x p(|x| - 3/4); beyond 6, r(1 / |x|) / sqrt(|x|); between them q(|x| - 4).
These are least-squares fits in Chebyshev points with coefficients rounded one by one, of relative
errors 1.5e-8, 2.8e-8 and 2.1e-8.
"""

from __future__ import annotations

from stepwell.dialects.formulas import Elements, choose, exponential, polynomial, sqrt

_NEAR_LIMIT, _FAR_LIMIT = 4.0, 10.0
_NEAR = (
    2.3044009497617495e-26, 1.2325438984166575e-23, 6.5877715565358436e-21,
    2.8968355811313472e-18, 1.0428860150177263e-15, 3.0035093732079167e-13, 6.727861142162423e-11,
    1.1302806712834652e-08, 1.3563368055558578e-06, 0.00010850694444444402, 0.005208333333333334,
    0.125, 1.0,
)  # fmt: skip
_MIDDLE = (
    -2.316457242039796e-11, 9.125470363999546e-11, -2.123714936409358e-10, 7.317384042745798e-10,
    -2.7269841882666495e-09, 8.718798735027964e-09, -2.6051638089951922e-08, 7.47864085401131e-08,
    -2.0337840052456735e-07, 5.206198144232209e-07, -1.2510628677700422e-06,
    2.8073338152658495e-06, -5.828935475312546e-06, 1.100224375711946e-05,
    -1.8093610241417858e-05, 2.251649214517543e-05, -4.35493932918755e-06,
    -0.00010602107178005443, 0.0005372244684472672, -0.002039418304961967, 0.007210062205872039,
    -0.02663557069998025, 0.14228923470959867,
)  # fmt: skip
_FAR = (
    -5.001818222312378e-12, -2.709236254103626e-12, 3.1912473453295585e-11,
    2.4193666878165042e-11, -8.799565212017509e-11, -1.0375420084722629e-10,
    1.0544010174897499e-10, 2.525391357033204e-10, 1.0940018017898828e-10,
    -1.6494910233422713e-10, -3.9884173055440503e-10, -6.794199209830196e-10,
    -1.3948977726120614e-09, -3.965028981256195e-09, -1.5598306595784334e-08,
    -8.389642841701125e-08, -6.294296321522071e-07, -7.012361313501271e-06,
    -0.00013480146633788794, -0.007730905126755938, 0.39133972251206706,
)  # fmt: skip
_NEAR_LIMIT_OF_SINGLE, _FAR_LIMIT_OF_SINGLE = 1.5, 6.0
_NEAR_OF_SINGLE = (
    6.521630712e-05, -0.0003294602502, 0.001357900095, -0.005178373307, 0.01725716703,
    -0.04888661206, 0.1139927506, -0.2067866623, 0.2531837225,
)  # fmt: skip
_MIDDLE_OF_SINGLE = (
    -1.281627582e-09, 4.985662994e-09, -1.580129982e-08, 1.186169882e-07, -6.391039733e-07,
    2.698601293e-06, -1.03004586e-05, 3.313731941e-05, -7.371727406e-05, -2.65513263e-05,
    0.001733319019, -0.01643663086, 0.1787508428,
)  # fmt: skip
_FAR_OF_SINGLE = (
    -1.322546244, -0.02705726214, -0.03794457391, -0.04407751188, -0.04659465328, -0.1496060789,
    0.3989422917,
)  # fmt: skip


def i1e(x: Elements) -> Elements:
    """e^-|x| I1(x) of f64."""
    size = abs(x)
    bounded = choose(size > _FAR_LIMIT, _FAR_LIMIT, size)
    near = (x * 0.5) * (polynomial(bounded * bounded, _NEAR) * exponential(-bounded))
    middle = polynomial((bounded - 7.0) * (1 / 3), _MIDDLE)
    far = polynomial(2 * _FAR_LIMIT / size - 1.0, _FAR) / sqrt(size)
    far = choose(size > _FAR_LIMIT, far, middle)
    return choose(size > _NEAR_LIMIT, choose(x < 0.0, -far, far), near)


def i1e_of_single(x: Elements) -> Elements:
    """e^-|x| I1(x) of f32."""
    size = abs(x)
    near = x * polynomial(size - 0.75, _NEAR_OF_SINGLE)
    middle = polynomial(size - 4.0, _MIDDLE_OF_SINGLE)
    far = polynomial(1.0 / size, _FAR_OF_SINGLE) / sqrt(size)
    far = choose(size > _FAR_LIMIT_OF_SINGLE, far, middle)
    return choose(size > _NEAR_LIMIT_OF_SINGLE, choose(x < 0.0, -far, far), near)
