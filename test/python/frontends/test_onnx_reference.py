"""Operators where the standard's own tests are few, against onnx's reference evaluator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import stepwell


@dataclass
class Case:
    """One node: inputs by shape (random) or by data; those from `known` on are initializers."""

    operator: str
    inputs: list[object]
    attributes: dict[str, Any] = field(default_factory=dict)
    known: int = 99
    outputs: int = 1
    opset: int = 22
    tolerance: float = 1e-5
    name: str = ""

    def __str__(self) -> str:
        return f"{self.operator}-{self.name or self.attributes}"


def _array(given: object, rng: np.random.Generator) -> np.ndarray:
    if isinstance(given, tuple):
        return rng.uniform(-1, 1, given).astype(np.float32)
    return np.asarray(given)


SINGULAR = np.array([[1, 2, 3], [2, 4, 6], [1, 0, 1]], np.float32)

GRID = np.random.default_rng(1).uniform(-1.7, 1.7, (2, 3, 4, 2)).astype(np.float32)
REGIONS = np.array([[1, 2, 9, 11], [-5, -4, 22, 3], [3, 3, 3.2, 3.5]], np.float32)

WITH_NANS = np.array([[1, np.nan, 3, -1, 0, 5, np.nan], [4, 3, 2, 1, 0, -1, np.nan]], np.float32)

CASES = [
    Case("TopK", [WITH_NANS, np.array([7])], {"largest": 0}, known=1, outputs=2, name="nan"),
    Case("TopK", [WITH_NANS, np.array([4])], {"largest": 1}, known=1, outputs=2, name="nan-1"),
    Case("Det", [(2, 3, 5, 5)]),
    Case("Det", [(1, 1)]),
    Case("Det", [SINGULAR], name="singular"),
    Case("Det", [np.eye(6, dtype=np.float32)[::-1].copy()], name="permutation"),
    Case("MaxPool", [(2, 3, 9)], {"kernel_shape": [3], "strides": [2], "pads": [1, 0]}, outputs=2),
    Case(
        "MaxPool",
        [(1, 2, 7, 8)],
        {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 1, 0, 2], "storage_order": 1},
        outputs=2,
    ),
    Case(
        "MaxPool",
        [(1, 2, 5, 4, 6)],
        {"kernel_shape": [2, 2, 3], "strides": [2, 1, 2], "ceil_mode": 1},
        outputs=2,
    ),
    Case(
        "MaxPool",
        [np.full((1, 1, 4, 4), -np.inf, np.float32)],
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        outputs=2,
        name="infinities",
    ),
    Case(
        "Col2Im",
        [(2, 12, 12), np.array([5, 7]), np.array([2, 3])],
        {"dilations": [2, 1], "strides": [1, 2], "pads": [0, 1, 1, 0]},
        known=1,
    ),
    Case(
        "ReverseSequence",
        [(3, 6, 2), np.array([0, 6, 4])],
        {"batch_axis": 0, "time_axis": 1},
    ),
    Case("TensorScatter", [(3, 2, 8, 4), (3, 2, 3, 4), np.array([0, 2, 5])], opset=24),
    Case("TensorScatter", [(1, 2, 8, 4), (1, 2, 3, 4), np.array([4])], opset=24, name="one"),
    Case(
        "TensorScatter",
        [(2, 8, 3, 4), (2, 4, 3, 4), np.array([6, 7])],
        {"mode": "circular", "axis": 1},
        opset=24,
    ),
    *(
        Case(
            "GridSample",
            [(2, 3, 4, 5), GRID],
            {"mode": mode, "padding_mode": padding, "align_corners": align},
            tolerance=1e-4,
        )
        for mode, padding, align in [
            ("linear", "reflection", 0),
            ("linear", "zeros", 1),
            ("cubic", "border", 1),
            ("cubic", "reflection", 1),
            ("nearest", "reflection", 0),
            ("nearest", "border", 1),
        ]
    ),
    Case("GridSample", [(1, 2, 3, 4, 2), GRID[:1, :, None, :, [0, 1, 1]]], {"align_corners": 1}),
    Case("AffineGrid", [(2, 2, 3), np.array([2, 1, 3, 1])], {"align_corners": 1}, known=1),
    Case("AffineGrid", [(1, 3, 4), np.array([1, 1, 3, 1, 2])], known=1),
    *(
        Case(
            "RoiAlign",
            [(2, 3, 6, 8), REGIONS, np.array([0, 1, 1])],
            {"output_height": 2, "output_width": 3, "mode": mode, "spatial_scale": 0.5} | options,
            known=1,
            tolerance=1e-4,
        )
        for mode in ("avg", "max")
        for options in ({}, {"coordinate_transformation_mode": "output_half_pixel"})
    ),
    Case(
        "DeformConv",
        [(2, 4, 5, 6), (6, 2, 2, 3), (2, 2 * 2 * 6, 3, 5), (6,), (2, 2 * 6, 3, 5)],
        {
            "group": 2,
            "offset_group": 2,
            "strides": [2, 1],
            "dilations": [2, 1],
            "pads": [1, 0, 1, 1],
        },
        tolerance=1e-4,
    ),
    Case("Identity", [(2, 4, 0)]),
    Case("Concat", [(2, 0, 3), (2, 0, 0)], {"axis": 2}),
    Case("Concat", [(2, 2, 3), (2, 0, 3), (2, 1, 3)], {"axis": 1}),
    Case("Einsum", [(3, 3, 4, 3), (4, 2)], {"equation": "iiji,jk->ki"}),
    Case("Einsum", [(2, 3, 1), (2, 1, 4), (4,)], {"equation": "...ij,...jk,k"}),
    Case(
        "Gemm",
        [np.array([[7, -3], [2, 5]]), np.array([[1, 2], [-4, 9]]), np.array([3, 8])],
        {"alpha": 0.5, "beta": 1.5},
        name="integers",
    ),
    Case("Compress", [(2, 0, 3), np.zeros(0, np.bool_)], {"axis": 1}, name="nothing"),
    Case("CumSum", [(0, 2, 3), np.array(0)], known=1, name="nothing"),
    Case("CumSum", [(0, 2, 3), np.array(1)], {"exclusive": 1}, known=1, name="nothing"),
    *(
        Case(
            "Resize",
            [(2, 3, 4), np.float32([]), np.array([1, 1, 0.2], np.float32)],
            {"mode": mode, "antialias": antialias},
            known=1,
            name=f"nothing-{mode}-{antialias}",
        )
        for mode, antialias in (("nearest", 0), ("linear", 0), ("linear", 1), ("cubic", 0))
    ),
    Case(
        "Resize",
        [(2, 8), np.float32([0, 0.2, 1, 1.2]), np.float32([]), np.array([2, 16])],
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
        known=1,
        name="crop-to-last",
    ),
    Case("RandomNormal", [], {"shape": [3, 4], "seed": 5.0, "mean": 2.0, "scale": 0.5}),
    Case("RandomUniformLike", [(2, 3)], {"seed": 3.0, "low": -2.0, "high": 2.0}),
    Case(
        "Dropout",
        [(5, 7), np.float32(0.3), np.array(True)],
        {"seed": 4},
        known=1,
        outputs=2,
    ),
    Case(
        "BatchNormalization",
        [(4, 3, 5), (3,), (3,), (3,), np.array([0.5, 1, 2], np.float32)],
        {"training_mode": 1, "momentum": 0.7},
        outputs=3,
        tolerance=1e-4,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_reference(case: Case) -> None:
    rng = np.random.default_rng(0)
    arrays = [_array(given, rng) for given in case.inputs]
    names = [f"x{i}" for i in range(len(arrays))]
    outputs = [f"y{i}" for i in range(case.outputs)]
    kinds = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in arrays]
    values = list(zip(names, arrays, kinds, strict=True))
    graph = helper.make_graph(
        [helper.make_node(case.operator, names, outputs, **case.attributes)],
        "case",
        [helper.make_tensor_value_info(n, k, a.shape) for n, a, k in values[: case.known]],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(a, n) for n, a, _ in values[case.known :]],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)])
    feed = dict(zip(names[: case.known], arrays, strict=False))
    expected = ReferenceEvaluator(model).run(None, feed)
    results = stepwell.compile(model, threads=1)(*feed.values())
    for result, wanted in zip(results, expected, strict=True):
        wanted = np.asarray(wanted)
        assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(result, wanted, rtol=case.tolerance, atol=1e-6)


def test_max_roi_pool() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (2, 3, 6, 8)).astype(np.float32)
    rois = np.array([[0, 1, 2, 9, 11], [1, -4, 0, 3, 30], [1, 14, 8, 40, 8]], np.float32)
    graph = helper.make_graph(
        [helper.make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[2, 3], spatial_scale=0.5)],
        "case",
        [helper.make_tensor_value_info(n, 1, a.shape) for n, a in (("x", x), ("r", rois))],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    (result,) = stepwell.compile(model, threads=1)(x, rois)
    expected = np.zeros((3, 3, 2, 3), np.float32)
    for r, (image, *corners) in enumerate(rois):
        x1, y1, x2, y2 = np.floor(np.abs(np.array(corners) * 0.5) + 0.5) * np.sign(corners)
        height, width = max(y2 - y1 + 1, 1) / 2, max(x2 - x1 + 1, 1) / 3
        for i in range(2):
            for j in range(3):
                rows = np.clip([np.floor(i * height) + y1, np.ceil((i + 1) * height) + y1], 0, 6)
                columns = np.clip([np.floor(j * width) + x1, np.ceil((j + 1) * width) + x1], 0, 8)
                (top, bottom), (left, right) = rows.astype(int), columns.astype(int)
                part = x[int(image), :, top:bottom, left:right]
                if part.size:
                    expected[r, :, i, j] = part.max(axis=(1, 2))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("operator", "wanted"), [("ReduceLogSumExp", 15), ("ReduceLogSum", 3), ("ReduceL2", 20)]
)
def test_logarithms_of_integers(operator: str, wanted: int) -> None:
    """onnx's reference evaluator does not take them; they are cut."""
    graph = helper.make_graph(
        [helper.make_node(operator, ["x"], ["y"], axes=[0], keepdims=0)],
        "case",
        [helper.make_tensor_value_info("x", 6, [3])],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    (result,) = stepwell.compile(model, threads=1)(np.array([15, -4, 14], np.int32))
    assert (result.dtype, result) == (np.int32, wanted)
