"""Compiled modules against PyTorch itself; import it after `pytest.importorskip("torch")`."""

# pyright: reportMissingImports=false
from __future__ import annotations

import numpy as np
import torch
from torch import nn

import stepwell
from stepwell.frontends.torch.graph import to_array

_TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2}


class Function(nn.Module):
    """A module that is a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *arguments):
        return self.function(*arguments)


def compare(module, *arguments, **keywords):
    """Compile and compare all outputs; returns the executable."""
    if not isinstance(module, nn.Module):
        module = Function(module)
    module.eval()
    example = keywords or arguments
    executable = stepwell.compile(module, example)
    with torch.no_grad():
        expected = module(*arguments, **keywords)
    leaves = torch.utils._pytree.tree_leaves(expected)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    given = torch.utils._pytree.tree_leaves((arguments, keywords))
    outputs = executable(*(to_array(value) for value in given if isinstance(value, torch.Tensor)))
    assert len(outputs) == len(tensors)
    for output, tensor in zip(outputs, tensors, strict=True):
        array = to_array(tensor)
        assert output.dtype == array.dtype
        assert output.shape == array.shape
        # Modules of half precision round after each operator, and compiled code less often.
        tolerance = _TOLERANCE.get(tensor.dtype, 1e-4)
        wide = np.complex128 if tensor.dtype.is_complex else np.float64
        np.testing.assert_allclose(
            output.astype(wide), array.astype(wide), rtol=tolerance, atol=tolerance
        )
    return executable
