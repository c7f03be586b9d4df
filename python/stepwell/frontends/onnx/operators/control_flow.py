"""Branches."""

from __future__ import annotations

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import Result, operator


@operator("If", folds=True)
def if_(node: Node, condition: Tensor) -> list[Result]:
    """A condition known at compile time picks its branch; else both are computed and selected.

    Branches have no side effects, so that computing both is right, if not always fast.
    """
    if condition.array is not None:
        return list(node.inline("then_branch" if condition.array.item() else "else_branch"))
    on_true, on_false = node.inline("then_branch"), node.inline("else_branch")
    predicate = hlo.reshape(condition.value, [])
    results: list[Result] = []
    for first, second in zip(on_true, on_false, strict=False):
        if (first.shape, first.dtype) != (second.shape, second.dtype):
            node.unsupported(
                f"its branches give shapes {list(first.shape)} and {list(second.shape)}, and the "
                "condition is computed at run time"
            )
        results.append(hlo.select(predicate, first.value, second.value))
    return results
