"""Elementwise operations in every element type that they are defined for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .case import BF16, case, numbers

FLOATS = (np.float32, np.float64, np.float16, BF16)
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.uint64)
SHAPE = (5, 19)

ANY_BINARY = {
    "add": lax.add, "sub": lax.sub, "mul": lax.mul, "max": lax.max, "min": lax.min,
}  # fmt: skip
for _kind in (*FLOATS, *INTEGERS):
    for _name, _function in ANY_BINARY.items():
        case(
            f"{_name}_{np.dtype(_kind).name}",
            _function,
            numbers(*SHAPE, dtype=_kind),
            numbers(*SHAPE, dtype=_kind, low=-2),
        )

ANY_UNARY = {"neg": lax.neg, "abs": lax.abs, "sign": lax.sign}
for _kind in (np.float32, BF16, np.int32, np.int64):
    for _name, _function in ANY_UNARY.items():
        case(f"{_name}_{np.dtype(_kind).name}", _function, numbers(*SHAPE, dtype=_kind))

FLOAT_UNARY = {
    "exp": (lax.exp, -4, 4), "log": (lax.log, 0.1, 9), "tanh": (lax.tanh, -4, 4),
    "logistic": (lax.logistic, -6, 6), "sqrt": (lax.sqrt, 0, 9), "rsqrt": (lax.rsqrt, 0.1, 9),
    "expm1": (lax.expm1, -2, 2), "log1p": (lax.log1p, -0.5, 4), "sin": (lax.sin, -9, 9),
    "cos": (lax.cos, -9, 9), "tan": (lax.tan, -1, 1), "cbrt": (lax.cbrt, -8, 8),
    "floor": (lax.floor, -5, 5), "ceil": (lax.ceil, -5, 5), "erf": (lax.erf, -3, 3),
    "erfc": (lax.erfc, -3, 3), "erf_inv": (lax.erf_inv, -0.9, 0.9),
    "lgamma": (lax.lgamma, 0.2, 9), "digamma": (lax.digamma, 0.2, 9),
    "asin": (lax.asin, -0.9, 0.9), "acos": (lax.acos, -0.9, 0.9), "atan": (lax.atan, -5, 5),
    "sinh": (lax.sinh, -3, 3), "cosh": (lax.cosh, -3, 3), "asinh": (lax.asinh, -3, 3),
    "acosh": (lax.acosh, 1.1, 5), "atanh": (lax.atanh, -0.9, 0.9),
    "is_finite": (lax.is_finite, -1, 1), "exp2": (lax.exp2, -4, 4),
    "square": (lax.square, -3, 3),
}  # fmt: skip
for _name, (_function, _low, _high) in FLOAT_UNARY.items():
    for _kind in (np.float32, np.float64):
        case(
            f"{_name}_{np.dtype(_kind).name}",
            _function,
            numbers(*SHAPE, dtype=_kind, low=_low, high=_high),
        )
for _name in ("exp", "tanh", "logistic", "sqrt", "erf"):
    _function, _low, _high = FLOAT_UNARY[_name]
    for _kind in (np.float16, BF16):
        case(
            f"{_name}_{np.dtype(_kind).name}",
            _function,
            numbers(*SHAPE, dtype=_kind, low=_low, high=_high),
        )

for _kind in (np.float32, np.int32, np.uint8, np.int64, np.uint64):
    _label = np.dtype(_kind).name
    _x, _y = numbers(*SHAPE, dtype=_kind, low=0), numbers(*SHAPE, dtype=_kind, low=1, high=4)
    case(f"div_{_label}", lax.div, _x, _y)
    case(f"rem_{_label}", lax.rem, _x, _y)
    case(f"compare_lt_{_label}", lax.lt, _x, _y)
    case(f"compare_eq_{_label}", lax.eq, _x, _y)
    case(f"select_{_label}", lambda x, y: lax.select(x > y, x, y), _x, _y)
    case(f"clamp_{_label}", lambda x, y: lax.clamp(x.dtype.type(1), x, y), _x, _y)
    case(f"integer_pow_{_label}", lambda x: lax.integer_pow(x, 3), _x)

for _kind in (np.int32, np.uint8, np.int64):
    _label = np.dtype(_kind).name
    _x, _y = numbers(*SHAPE, dtype=_kind, high=99), numbers(*SHAPE, dtype=_kind, low=0, high=5)
    case(f"and_{_label}", lax.bitwise_and, _x, _y)
    case(f"or_{_label}", lax.bitwise_or, _x, _y)
    case(f"xor_{_label}", lax.bitwise_xor, _x, _y)
    case(f"not_{_label}", lax.bitwise_not, _x)
    case(f"shift_left_{_label}", lax.shift_left, _x, _y)
    case(f"shift_right_logical_{_label}", lax.shift_right_logical, _x, _y)
    case(f"shift_right_arithmetic_{_label}", lax.shift_right_arithmetic, _x, _y)
    case(f"popcnt_{_label}", lax.population_count, _x)
    case(f"clz_{_label}", lax.clz, _x)

_P, _Q = numbers(*SHAPE, dtype=np.bool_), numbers(19, 5, dtype=np.bool_).T
case("and_bool", lax.bitwise_and, _P, _Q)
case("or_bool", lax.bitwise_or, _P, _Q)
case("xor_bool", lax.bitwise_xor, _P, _Q)
case("not_bool", lax.bitwise_not, _P)
case("logical_sum_bool", lambda p, q: p + q, _P, _Q)
case("matmul_bool", jnp.matmul, _P, _Q.T)
case("matmul_of_vector_bool", jnp.matmul, _P[:, :4], _Q[0, :4])
case(
    "matmul_of_vectors_bool",
    jax.vmap(jnp.matmul),
    numbers(7, 3, 4, dtype=bool),
    _P[:1, :4].repeat(7, 0),
)
case("pow_float32", lax.pow, numbers(*SHAPE, low=0.1), numbers(*SHAPE, low=-2))
case("atan2_float32", lax.atan2, numbers(*SHAPE), numbers(*SHAPE, low=-2))
case("atan2_float16", lax.atan2, *(numbers(*SHAPE, dtype=np.float16, low=v) for v in (-3, -2)))
case("nextafter_bfloat16", lax.nextafter, *(numbers(*SHAPE, dtype=BF16, low=v) for v in (-3, -2)))
case("nextafter_float32", lax.nextafter, numbers(*SHAPE), numbers(*SHAPE, low=-2))
case("round_even", lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), numbers(*SHAPE) * 2)
case("round_away", lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), numbers(*SHAPE) * 2)
case("reduce_precision_bf16", lambda x: lax.reduce_precision(x, 8, 7), numbers(*SHAPE))
case("reduce_precision_f16", lambda x: lax.reduce_precision(x, 5, 10), numbers(*SHAPE))
case("bitcast_f32_i32", lambda x: lax.bitcast_convert_type(x, jnp.int32), numbers(*SHAPE))
case("bitcast_i32_i8", lambda x: lax.bitcast_convert_type(x, jnp.int8), numbers(5, dtype=np.int32))

KINDS = (np.float32, np.float64, np.float16, BF16, np.int8, np.int32, np.int64, np.uint8, np.bool_)
for _source in (np.float32, np.int32, BF16, np.bool_, np.uint8):
    for _target in KINDS:
        if _source is not _target:
            case(
                f"convert_{np.dtype(_source).name}_to_{np.dtype(_target).name}",
                lambda x, target=_target: lax.convert_element_type(x, target),
                numbers(*SHAPE, dtype=_source, low=0, high=3),
            )
