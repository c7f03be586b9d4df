"""Kernels that begin while the one before them ends wait for it before anything else."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from models import compile_for_gpu
from test_models import exported, normal

WEIGHT = normal(256, 256, seed=1)


def layers(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x @ WEIGHT.astype(x.dtype))


def codes(target: str, dtype: type) -> list[tuple[bool, str]]:
    """Of each kernel: whether it begins early, and its PTX."""
    x = np.zeros((256, 256), dtype)
    artifact = compile_for_gpu(exported(layers, x), target).artifact
    program, parts = artifact.manifest.cuda, artifact.code_parts()
    assert program is not None
    return [(image.early, parts[image.ptx].decode()) for image in program.images]


@pytest.mark.parametrize("target", ["cuda:sm_90a", "cuda:sm_100a", "cuda:sm_120"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32], ids=["f16", "f32"])
def test_early(target: str, dtype: type) -> None:
    found = codes(target, dtype)
    for _, text in found:
        body = text[text.index(".entry") :]
        assert body.count("griddepcontrol.wait;") == 1
        # No instruction stands before it.
        before = body[body.index("{\n") + 2 : body.index("griddepcontrol.wait;")]
        assert all(line.lstrip().startswith(".") for line in before.split("\n") if line.strip())
        assert body.index("griddepcontrol.wait;") < body.index("griddepcontrol.launch_dependents;")
    # Products of f32 without tensor cores do not.
    is_early = [early for early, _ in found]
    assert all(is_early) == (dtype is np.float16)
    assert any(is_early)


def test_earlier_architectures() -> None:
    assert not any(
        early or "griddepcontrol" in text for early, text in codes("cuda:sm_80", np.float16)
    )
