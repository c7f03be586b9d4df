"""What the importer says of operators of PyTorch that have no lowering."""

from __future__ import annotations

import pytest

from stepwell.frontends.torch.importer import _leftovers
from stepwell.mlir import ir, new_context, register_torch

MODULE = """
func.func @main(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
  %dim = torch.constant.int 1
  %list = torch.prim.ListConstruct %dim : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.tanh %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32> loc("layers.0/tanh")
  %1 = torch.operator "torch.aten.igamma"(%x, %0) : (!torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> loc("igamma")
  %2 = torch.operator "torch.aten.igamma"(%x, %1) : (!torch.vtensor<[4],f32>, !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> loc("igamma_1")
  return %2 : !torch.vtensor<[4],f32>
}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("message", "operators"),
    [
        ("failed to legalize operation 'torch.constant.int'", ["aten.tanh", "aten.igamma"]),
        ("failed to legalize operation 'torch.aten.tanh'", ["aten.tanh", "aten.igamma"]),
        ('unsupported by backend contract: op: "torch.aten.sinh', ["aten.igamma"]),
        ("failed to legalize operation 'torch.aten.sinh'", ["aten.igamma"]),
    ],
)
def test_leftovers(message: str, operators: list[str]) -> None:
    """Operators of whose name the message tells, those of which torch-mlir knows the name alone,
    and, where it tells of none, all that stand in the module: each once, with its first node."""
    context = new_context()
    register_torch(context)
    with context, ir.Location.unknown():
        found = _leftovers(ir.Module.parse(MODULE), message)
    assert [finding.operator for finding in found] == operators
    assert found[-1].node == "igamma"
    assert list(found[-1].inputs) == ["!torch.vtensor<[4],f32>"] * 2
    assert found[0].node == ("layers.0/tanh" if operators[0] == "aten.tanh" else "igamma")
