"""GatherElements and ScatterElements at positions that are the same along some dimensions, which
take and write slices, against numpy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import stepwell

REDUCTIONS = {"none": None, "add": np.add, "mul": np.multiply, "max": np.maximum}


def model(
    operator: str, data: list[int], few: list[int], shape: list[int], **attributes: object
) -> onnx.ModelProto:
    """`operator` on indices of the shape `few` that are expanded to `shape`."""
    kinds = {"x": (TensorProto.FLOAT, data), "i": (TensorProto.INT64, few)}
    names = ["x", "e"]
    if operator == "ScatterElements":
        kinds["u"] = (TensorProto.FLOAT, shape)
        names.append("u")
    graph = helper.make_graph(
        [
            helper.make_node("Expand", ["i", "shape"], ["e"]),
            helper.make_node(operator, names, ["y"], **attributes),
        ],
        "g",
        [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(shape), "shape")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def drawn(seed: int) -> tuple[list[int], list[int], list[int], int, np.random.Generator]:
    """The shape of data, those of indices before and after they are expanded, and an axis."""
    random = np.random.default_rng(seed)
    rank = int(random.integers(1, 5))
    data = random.integers(1, 6, rank).tolist()
    axis = int(random.integers(0, rank))
    shape = [int(random.integers(1, n + 1)) if random.random() < 0.3 else n for n in data]
    shape[axis] = int(random.integers(1, 7))
    few = [n if random.random() < 0.4 else 1 for n in shape]
    return data, few, shape, axis, random


@pytest.mark.parametrize("seed", range(24))
def test_gathers(seed: int) -> None:
    data, few, shape, axis, random = drawn(seed)
    x = random.standard_normal(data).astype(np.float32)
    i = random.integers(-data[axis], data[axis], few)
    exe = stepwell.compile(model("GatherElements", data, few, shape, axis=axis), threads=1)
    covered = x[tuple(slice(None) if d == axis else slice(n) for d, n in enumerate(shape))]
    want = np.take_along_axis(covered, np.broadcast_to(i, shape), axis)
    np.testing.assert_array_equal(exe(x, i)[0], want)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatters(reduction: str, seed: int) -> None:
    """Updates of one place follow one another in the order of the indices."""
    data, few, shape, axis, random = drawn(100 + seed)
    x = random.integers(-9, 9, data).astype(np.float32)
    u = random.integers(-9, 9, shape).astype(np.float32)
    i = random.integers(-data[axis], data[axis], few)
    exe = stepwell.compile(
        model("ScatterElements", data, few, shape, axis=axis, reduction=reduction), threads=1
    )
    want = x.copy()
    for place in np.ndindex(*shape):
        target = list(place)
        target[axis] = int(np.broadcast_to(i, shape)[place])
        old, combine = want[tuple(target)], REDUCTIONS[reduction]
        want[tuple(target)] = u[place] if combine is None else combine(old, u[place])
    np.testing.assert_array_equal(exe(x, i, u)[0], want)
