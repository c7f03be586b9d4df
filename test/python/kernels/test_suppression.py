"""Non-maximum suppression by its kernel, and by the loop that its composite means, against plain
Python in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import stepwell


def _model(
    shape: tuple[int, int, int], most: int, overlap: float, least: float | None, centered: int
) -> onnx.ModelProto:
    batch, _, boxes = shape
    names = ["boxes", "scores", "most", "overlap", "least"][: 4 if least is None else 5]
    numbers = [
        helper.make_tensor("most", onnx.TensorProto.INT64, [1], [most]),
        helper.make_tensor("overlap", onnx.TensorProto.FLOAT, [1], [overlap]),
        helper.make_tensor("least", onnx.TensorProto.FLOAT, [1], [least or 0.0]),
    ]
    graph = helper.make_graph(
        [helper.make_node("NonMaxSuppression", names, ["y"], center_point_box=centered)],
        "suppression",
        [
            helper.make_tensor_value_info("boxes", onnx.TensorProto.FLOAT, [batch, boxes, 4]),
            helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, shape),
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT64, None)],
        numbers[: len(names) - 2],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10)


def _corners(boxes: np.ndarray, centered: int) -> np.ndarray:
    """Least and greatest coordinates, [.., 4]."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centered:
        half = second * np.float32(0.5)
        return np.concatenate([first - half, first + half], -1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _overlap(a: np.ndarray, b: np.ndarray) -> np.float32:
    zero = np.float32(0)

    def area(low: np.ndarray, high: np.ndarray) -> np.float32:
        sides = np.maximum(high - low, zero)
        return sides[0] * sides[1]

    common = area(np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:]))
    union = area(a[:2], a[2:]) + area(b[:2], b[2:]) - common
    return common / union if union > 0 else zero


def _expected(
    boxes: np.ndarray, scores: np.ndarray, most: int, overlap: float, least: float | None
) -> list[list[int]]:
    chosen = []
    limit = np.float32(overlap)
    lowest = -np.inf if least is None else np.float32(least)
    for batch, of_classes in enumerate(scores):
        for number, row in enumerate(of_classes):
            kept: list[int] = []
            for box in np.argsort(-row, kind="stable"):
                wanted = row[box] > lowest and len(kept) < most
                corners = boxes[batch]
                if wanted and all(_overlap(corners[box], corners[k]) <= limit for k in kept):
                    kept.append(int(box))
            chosen += [[batch, number, box] for box in kept]
    return chosen


CASES = {
    "one-group": ((1, 1, 300), 40, 0.5, 0.1, 0),
    "many-groups": ((2, 3, 100), 20, 0.5, 0.3, 0),
    "all-that-fit": ((1, 1, 130), 200, 0.3, None, 0),
    "centers": ((1, 2, 65), 65, 0.3, None, 1),
    "one-box": ((1, 1, 1), 5, 0.5, 0.1, 0),
    "no-overlap-allowed": ((1, 1, 64), 10, 0.0, 0.2, 0),
    "none-good-enough": ((1, 2, 70), 10, 0.5, 2.0, 0),
}
"""Shape of the scores, the most that are chosen, limits of overlap and score, form of boxes."""


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_boxes_chosen(name: str, rounded: bool, tmp_path: Path) -> None:
    """`rounded`: many scores are equal, and many boxes are equal or empty."""
    shape, most, overlap, least, centered = CASES[name]
    random = np.random.default_rng(len(name))
    boxes = random.uniform(0, 8, (shape[0], shape[2], 4)).astype(np.float32)
    scores = random.random(shape).astype(np.float32)
    if rounded:
        boxes, scores = np.round(boxes), np.round(scores * 5) / 5
    model = _model(shape, most, overlap, least, centered)
    expected = _expected(_corners(boxes, centered), scores, most, overlap, least)
    expected = np.array(expected, np.int64).reshape(-1, 3)
    got = stepwell.compile(model, threads=2).run({"boxes": boxes, "scores": scores})["y"]
    assert np.array_equal(got, expected)
    stepwell.export(model, tmp_path / "model.mlirbc", version="0.9.0")
    chosen, count = stepwell.compile(tmp_path / "model.mlirbc")(boxes, scores)
    assert np.array_equal(chosen[: int(count)], expected)
