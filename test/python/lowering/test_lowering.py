"""The lowering API: walk down by hand, look, change the module, save, resume, compile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import stepwell
from stepwell.lowering import Lowered
from stepwell.mlir import ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.pipeline import LEVELS

TOLERANCE = 2e-6
"""Sums of eight products of order one in float32."""

X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((8, 20)).astype(np.float32)
EXPECTED = np.maximum(X.astype(np.float64) @ W, 0)


def model() -> onnx.ModelProto:
    """relu(x @ w): one weight, two named nodes."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="MatMul_0"),
        helper.make_node("Relu", ["p"], ["y"], name="Relu_1"),
    ]
    kind = onnx.TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("x", kind, X.shape)]
    outputs = [helper.make_tensor_value_info("y", kind, EXPECTED.shape)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(W, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def assert_right(lowered: Lowered) -> None:
    exe = lowered.compile()
    assert [spec.name for spec in exe.inputs] == ["x"]
    np.testing.assert_allclose(exe.run({"x": X})["y"], EXPECTED, atol=TOLERANCE)


def test_walk_down() -> None:
    lowered = stepwell.lower(model())
    assert lowered.level == "stablehlo"
    assert "stablehlo.dot_general" in str(lowered)
    for level, mark in zip(
        LEVELS[1:], ("linalg.generic", "vector.fma", "llvm.func @stepwell_main"), strict=True
    ):
        assert lowered.step(level) is lowered
        assert lowered.level == level
        assert mark in str(lowered)
    assert isinstance(lowered.module, ir.Module)
    assert_right(lowered)


@pytest.mark.parametrize("level", LEVELS)
def test_compile_from_every_level(level: str) -> None:
    assert_right(stepwell.lower(model()).step(level))


@pytest.mark.parametrize("level", LEVELS)
def test_save_and_resume(level: str, tmp_path: Path) -> None:
    path = tmp_path / "saved.mlir"
    stepwell.lower(model()).step(level).save(path)
    weights = Path(f"{path}.safetensors")
    assert weights.stat().st_size < W.nbytes * 32 / 20 * 1.2 + 1000  # panels of 16 columns at most
    assert_right(Lowered.resume(path.read_text(), level, weights=weights))


def test_steps_do_not_go_back() -> None:
    lowered = stepwell.lower(model()).step("affine")
    with pytest.raises(stepwell.UsageError, match="level affine already; linalg lies behind it"):
        lowered.step("linalg")
    with pytest.raises(stepwell.UsageError, match="there is no level nowhere"):
        lowered.step("nowhere")


@dataclass(frozen=True)
class _CountOperations(Pass):
    """Writes into the remarks how many operations of one name there are."""

    name: ClassVar[str] = "count-operations"
    operation: str = "linalg.generic"

    def run(self, op: ir.Operation, state: State) -> None:
        found = [inner.name for inner in nested_operations(op)]
        state.remarks.append(f"{found.count(self.operation)} x {self.operation}")


def test_run_passes_of_all_kinds() -> None:
    lowered = stepwell.lower(model())
    lowered.run("fold-constants")  # own, by name
    lowered.run("canonicalize,cse")  # upstream's
    lowered.step("linalg").run(_CountOperations()).run(_CountOperations("func.call"))  # the user's
    assert lowered.remarks[-1] == "1 x func.call"
    assert_right(lowered)


def test_change_the_module_by_hand() -> None:
    """What the user does to `lowered.module` is what is compiled: here, relu becomes a minimum."""
    lowered = stepwell.lower(model())

    def find(op: ir.Operation) -> ir.WalkResult:
        if op.name == "stablehlo.maximum":
            with ir.InsertionPoint(op), op.location:
                other = ir.Operation.create(
                    "stablehlo.minimum", results=[op.results[0].type], operands=list(op.operands)
                )
            op.results[0].replace_all_uses_with(other.results[0])
            op.erase()
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    with lowered.module.context:
        lowered.module.operation.walk(find)
    expected = np.minimum(X.astype(np.float64) @ W, 0)
    np.testing.assert_allclose(lowered.compile()(X)[0], expected, atol=TOLERANCE)


def test_emit() -> None:
    assert "affine.parallel" in str(stepwell.lower(model()).emit("affine"))
    assert "stepwell_main:" in str(stepwell.lower(model()).emit("asm"))
    code = stepwell.lower(model()).emit("obj")
    assert isinstance(code, bytes)
    assert code.startswith(b"\x7fELF")
    with pytest.raises(stepwell.UsageError, match="cannot emit fortran; there are: stablehlo"):
        stepwell.lower(model()).emit("fortran")


def test_other_targets() -> None:
    wide = stepwell.lower(model(), target="x86_64-v4").step("affine")
    narrow = stepwell.lower(model(), target="x86_64-v3").step("affine")
    assert "vector<16xf32>" in str(wide)
    assert "vector<16xf32>" not in str(narrow)
    assert "vector<8xf32>" in str(narrow)
    assert "fmla" in str(stepwell.lower(model(), target="aarch64-neoverse-v2").emit("asm"))


def test_a_leftover_is_named_by_its_source() -> None:
    text = """
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.custom_call @somewhere(%x) : (tensor<4xf32>) -> tensor<4xf32> loc("Custom_7")
      return %0 : tensor<4xf32>
    }
    """
    with pytest.raises(stepwell.LoweringError, match=r"Custom_7.*stablehlo\.custom_call"):
        stepwell.lower(text).step("linalg")


def test_the_spec_of_a_level_is_checked() -> None:
    """A user's pass that leaves a foreign operation is told so at the next border."""
    lowered = stepwell.lower(model())
    main = lowered.module.body.operations[0].operation
    with lowered.module.context, ir.Location.name("mine"):
        with ir.InsertionPoint.at_block_begin(main.regions[0].blocks[0]):
            newline = ir.Attribute.parse("#vector.punctuation<newline>")
            ir.Operation.create("vector.print", attributes={"punctuation": newline})
    message = r"mine: vector\.print is left over at the end of level stablehlo"
    with pytest.raises(stepwell.LoweringError, match=message):
        lowered.step("stablehlo")


def test_scalar_loops_are_reported() -> None:
    text = """
    func.func @main(%x: tensor<4x8xf32>) -> tensor<4xi32> {
      %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %i = stablehlo.iota dim = 1 : tensor<4x8xi32>
      %0:2 = stablehlo.reduce(%x init: %low), (%i init: %zero) across dimensions = [1]
          : (tensor<4x8xf32>, tensor<4x8xi32>, tensor<f32>, tensor<i32>)
          -> (tensor<4xf32>, tensor<4xi32>)
          reducer(%a: tensor<f32>, %b: tensor<f32>) (%j: tensor<i32>, %k: tensor<i32>) {
        %1 = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %2 = stablehlo.select %1, %a, %b : tensor<i1>, tensor<f32>
        %3 = stablehlo.select %1, %j, %k : tensor<i1>, tensor<i32>
        stablehlo.return %2, %3 : tensor<f32>, tensor<i32>
      }
      return %0#1 : tensor<4xi32>
    }
    """
    lowered = stepwell.lower(text).step("affine")
    x = np.random.default_rng(3).standard_normal((4, 8)).astype(np.float32)
    np.testing.assert_array_equal(lowered.compile()(x)[0], x.argmax(1))
    assert any("scalar loops, since" in remark for remark in lowered.remarks)


def test_dumped_phases(tmp_path: Path) -> None:
    options = {"dump_phases_to": str(tmp_path / "phases")}
    stepwell.lower(model(), options=options).step("linalg")
    names = [path.name for path in sorted((tmp_path / "phases").iterdir())]
    assert names[-1].endswith("pack-operands.mlir")
