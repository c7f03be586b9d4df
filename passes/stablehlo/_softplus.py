"""tanh(softplus(x)), the factor of Mish, by one exponential.

    %s = stablehlo.add (maximum %x, 0), (log_plus_one (exponential (negate (abs %x))))
    %y = stablehlo.tanh %s

With e = e^x it is ((1 + e)^2 - 1) / ((1 + e)^2 + 1), which is n / (n + 2) for n = e (e + 2): within
4 ulp, for small results too. Softplus is known in the forms of ONNX's operator, of JAX (which asks
for NaN first) and of PyTorch (which leaves x beyond 20 as it is)."""

from __future__ import annotations

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.stablehlo._values import has_one_use, producer, splat
from stepwell.weights import WeightTable

_SATURATED = 20.0
"""tanh(softplus(x)) rounds to 1 from here on, in f64, too; e^2x is far below the largest float."""


def tanh_of_softplus(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """tanh(log(1 + e^x)), of floats with the range of f32."""
    softplus = op.operands[0]
    x = _argument(softplus)
    if x is None or not has_one_use(softplus):
        return None
    if str(hlo.element_type(x)) not in ("bf16", "f32", "f64"):
        return None
    grown = hlo.unary("exponential", hlo.binary("minimum", x, hlo.full_like(x, _SATURATED)))
    two = hlo.full_like(x, 2.0)
    less_one = hlo.multiply(grown, hlo.add(grown, two))
    return hlo.divide(less_one, hlo.add(less_one, two))


def _argument(softplus: ir.Value) -> ir.Value | None:
    """x where a value is softplus(x)."""
    chosen = producer(softplus, "select")
    if chosen is None:
        return _of_sum(softplus)
    test, x, other = chosen.operands
    compare = producer(test, "compare")
    if compare is None or compare.operands[0] != x:
        return None
    direction = bindings.ComparisonDirectionAttr(compare.attributes["comparison_direction"]).value
    if direction == "NE" and compare.operands[1] == x and _of_sum(other) == x:
        return x
    bound = splat(compare.operands[1])
    if direction == "GT" and bound is not None and bound >= _SATURATED and _of_grown(other) == x:
        return x
    return None


def _of_sum(value: ir.Value) -> ir.Value | None:
    """x of max(x, 0) + log(1 + e^-|x|)."""
    total = producer(value, "add")
    for limited, logarithm in _both_ways(total):
        maximum, exponent = producer(limited, "maximum"), _of_grown(logarithm)
        negated = producer(exponent, "negate") if exponent is not None else None
        size = producer(negated.operands[0], "abs") if negated is not None else None
        if maximum is None or size is None or splat(maximum.operands[1]) != 0:
            continue
        if maximum.operands[0] == size.operands[0]:
            return size.operands[0]
    return None


def _of_grown(value: ir.Value) -> ir.Value | None:
    """x of log(1 + e^x)."""
    logarithm = producer(value, "log_plus_one")
    grown = producer(logarithm.operands[0], "exponential") if logarithm is not None else None
    return grown.operands[0] if grown is not None else None


def _both_ways(op: ir.Operation | None) -> list[tuple[ir.Value, ir.Value]]:
    if op is None:
        return []
    lhs, rhs = op.operands
    return [(lhs, rhs), (rhs, lhs)]
