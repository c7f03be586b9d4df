"""NVIDIA targets: the tables, and that LLVM takes every combination that they allow."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from emulator import Emulator

from stepwell import targets
from stepwell.errors import UsageError
from stepwell.targets.nvidia import (
    FIRST_PTX,
    TARGETS,
    TOOLKIT_OF_PTX,
    NvidiaTarget,
    for_capability,
)

_EMIT = """
import json, sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
written = []
for cpu, version in json.loads(sys.argv[1]):
    machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(
        cpu=cpu, features=f"+ptx{version}")
    text = machine.emit_assembly(llvm.parse_assembly("define ptx_kernel void @k() { ret void }"))
    written.append(f".version {version // 10}.{version % 10}" in text and f".target {cpu}" in text)
print(json.dumps(written))
"""


def test_llvm_takes_every_allowed_combination():
    """In a process of its own: LLVM ends it for a combination that cannot be."""
    allowed = [
        (target.cpu, version)
        for target in TARGETS
        for version in TOOLKIT_OF_PTX
        if version >= FIRST_PTX[target.cpu]
    ]
    done = subprocess.run(
        [sys.executable, "-c", _EMIT, json.dumps(allowed)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "not a recognized" not in done.stderr
    assert all(json.loads(done.stdout))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_tables_agree(target: NvidiaTarget):
    assert targets.get(target.name) is targets.available()[target.name]
    assert target.ptx >= FIRST_PTX[target.cpu]
    assert target.features == (f"ptx{target.ptx}",)
    assert target.block_shared_bytes == target.sm_shared_bytes - 1024
    assert "mma.sync" in dict(target.matrix_instructions)


def test_capabilities():
    assert [t.compute_capability for t in TARGETS] == [
        (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0),
    ]  # fmt: skip
    assert [t.cpu for t in TARGETS if t.runs_on_one_capability] == ["sm_90a", "sm_100a"]


@pytest.mark.parametrize(
    ("capability", "cpu"),
    [((8, 0), "sm_80"), ((8, 7), "sm_86"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a"),
     ((10, 3), "sm_89"), ((12, 1), "sm_120")],
)  # fmt: skip
def test_target_of_a_gpu(capability: tuple[int, int], cpu: str):
    """Code for sm_90a and sm_100a runs on no other GPU."""
    assert for_capability(capability).cpu == cpu


def test_old_gpu():
    with pytest.raises(UsageError, match=r"capability 7.5, and 8.0 is the oldest known"):
        for_capability((7, 5))


def test_gpu_of_this_machine(emulator: Emulator):
    assert targets.get("cuda").name == "cuda:sm_90a"


def test_other_ptx_version():
    target = targets.get("cuda:sm_86+ptx78")
    assert isinstance(target, NvidiaTarget)
    assert target.feature_string() == "+ptx78"
    assert target.toolkit == (11, 8)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("cuda:sm_90", "there is no target cuda:sm_90 (sm_90a is there)"),
        ("cuda:sm_70", "of NVIDIA's architectures there are: sm_80, sm_86"),
        ("cuda:sm_100a+ptx80", "PTX 8.0 does not know sm_100a; 8.6 is the first version that does"),
        ("cuda:sm_80+ptx99", "PTX 9.9 cannot be written"),
        ("cuda:sm_80+fast", "+fast is no PTX version"),
    ],
)
def test_impossible_targets_are_sentences(name: str, sentence: str):
    with pytest.raises(UsageError) as caught:
        targets.get(name)
    assert sentence in str(caught.value)
