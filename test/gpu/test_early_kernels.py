"""Kernels that begin while the one before them ends wait for it before anything else but copies of
weights."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest
from models import compile_for_gpu
from test_models import exported, normal

from stepwell import ptx
from stepwell.kernels.gpu import mma_tile

WEIGHT = normal(256, 256, seed=1)


def layers(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x @ WEIGHT.astype(x.dtype))


def codes(target: str, dtype: type, precision: str = "default") -> list[tuple[bool, str]]:
    """Of each kernel: whether it begins early, and its PTX."""
    x = np.zeros((256, 256), dtype)
    artifact = compile_for_gpu(exported(layers, x), target, precision=precision).artifact
    program, parts = artifact.manifest.cuda, artifact.code_parts()
    assert program is not None
    return [(image.early, parts[image.ptx].decode()) for image in program.images]


@pytest.mark.parametrize("target", ["cuda:sm_90a", "cuda:sm_100a", "cuda:sm_120"])
@pytest.mark.parametrize(
    ("dtype", "precision"),
    [(np.float16, "default"), (np.float32, "tf32"), (np.float32, "strict")],
    ids=["f16", "tf32", "f32"],
)
def test_early(target: str, dtype: type, precision: str) -> None:
    found = codes(target, dtype, precision)
    for _, text in found:
        body = text[text.index(".entry") :]
        body = body[body.index("{\n") + 2 :]
        before, *others = body.split("griddepcontrol.wait;")
        assert others
        following = {other.split("\n")[1].strip() for other in others}
        assert following == {"griddepcontrol.launch_dependents;"}
        if not re.search(r"cp\.async", before):  # no instruction stands before it
            lines = (line for line in before.split("\n") if line.strip())
            assert all(line.lstrip().startswith(".") for line in lines)
        assert not re.search(r"ld\.global|st\.global", before)
    copies = [
        len(re.findall(r"cp\.async\.c[ag]", text[: text.index("griddepcontrol.wait;")]))
        for _, text in found
    ]
    # Of the product on tensor cores, the second operand is a weight.
    assert sum(map(bool, copies)) == (precision != "strict")
    # Products of f32 without tensor cores do not.
    is_early = [early for early, _ in found]
    assert all(is_early) == (precision != "strict")
    assert any(is_early)


def test_earlier_architectures() -> None:
    assert not any(
        early or "griddepcontrol" in text for early, text in codes("cuda:sm_80", np.float16)
    )


def test_weights_of_warpgroups(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are copied before the wait of the warp that copies; all others wait at once."""
    monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
    (_, text), _ = codes("cuda:sm_90a", np.float16)
    first, second, *_ = text.split("griddepcontrol.wait;")
    copies = [part.count("cp.async.bulk.tensor") for part in (first, second)]
    assert sorted(bool(count) for count in copies) in ([False, True], [True, True])
    assert text.count("griddepcontrol.wait;") == 2
    assert not re.search(r"ld\.global", first)


def test_loads_before_the_wait() -> None:
    """A load that stands before a kernel's own wait moves that to the beginning."""
    text = ".entry k()\n{\n\t.reg .b32 %r;\n\tld.global.b32 %r, [x];\n\tgriddepcontrol.wait;\n"
    found = ptx._wait_for_others(text)
    assert found.index("griddepcontrol.wait;") < found.index("ld.global")
    assert found.count("griddepcontrol.wait;") == 1
