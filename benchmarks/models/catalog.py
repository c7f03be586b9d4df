"""Names of the models, and their files on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.folders import ROOT, bench_folder

SEED = 7

TORCH_MODELS = (
    "resnet50_b1",
    "resnet50_b8",
    "mobilenetv2_b1",
    "unet_256_b1",
    "bert_base_s128",
    "minilm6_s128",
    "gpt2_prefill_s128",
    "gpt2_decode_p128",
    "lstm2_t64",
)
LIGHT_MODELS = (
    "light_squeezenet",
    "light_densenet121",
    "light_inception_v1",
    "light_resnet50",
    "light_zfnet512",
)
QUANTIZED = "_q4"
"""Behind the name of the model that one of 4-bit weights was made of."""

QUANTIZED_MODELS = (f"gpt2_decode_p128{QUANTIZED}",)

PRUNED = "_pruned90"
"""Behind the name of the model that one without 90 % of its weights was made of."""

PRUNED_MODELS = (f"bert_base_s128{PRUNED}",)
JAX_MODELS = (
    "jax_mlp",
    "jax_block_s128",
    "jax_resnet50_nhwc",
    "jax_lstm_scan",
    "jax_while_256",
)
MODELS = TORCH_MODELS + QUANTIZED_MODELS + PRUNED_MODELS + LIGHT_MODELS + JAX_MODELS


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model. `path` is what a compiler reads, `data` the arrays, `facts` JSON."""

    name: str
    folder: Path

    @property
    def path(self) -> Path:
        suffix = ".mlirbc" if family(self.name) == "jax" else ".onnx"
        return self.folder / f"{self.name}{suffix}"

    @property
    def portable(self) -> Path:
        """The model as a StableHLO portable artifact, whatever it came from."""
        return self.folder / f"{self.name}.mlirbc"

    @property
    def data(self) -> Path:
        return self.folder / f"{self.name}.npz"

    @property
    def facts(self) -> Path:
        return self.folder / f"{self.name}.json"

    def write_data(
        self,
        inputs: Mapping[str, np.ndarray],
        references: Sequence[np.ndarray],
        *,
        gflop: float,
        weights_bytes: int,
    ) -> None:
        """Write inputs (in signature order), reference outputs and facts; the facts come last and
        mark the model as complete."""
        arrays = {f"in:{name}": array for name, array in inputs.items()}
        arrays |= {f"out:{index}": array for index, array in enumerate(references)}
        np.savez(self.data, **arrays)  # pyright: ignore[reportArgumentType]
        facts = {"gflop": gflop, "weights_bytes": weights_bytes}
        scratch = self.facts.with_suffix(f".{os.getpid()}.tmp")
        scratch.write_text(json.dumps(facts))
        scratch.replace(self.facts)

    def read_inputs(self) -> dict[str, np.ndarray]:
        """The inputs by name."""
        arrays = np.load(self.data)
        return {
            name.removeprefix("in:"): arrays[name]
            for name in arrays.files
            if name.startswith("in:")
        }

    def read_facts(self) -> dict[str, float]:
        """GFLOP of one run and the bytes of all weights."""
        return json.loads(self.facts.read_text())


def family(name: str) -> str:
    """Which scripts make the model: "torch", "quantized", "pruned", "light" or "jax". Raises
    KeyError for no model."""
    if name in TORCH_MODELS:
        return "torch"
    if name in QUANTIZED_MODELS:
        return "quantized"
    if name in PRUNED_MODELS:
        return "pruned"
    if name in LIGHT_MODELS:
        return "light"
    if name in JAX_MODELS:
        return "jax"
    raise KeyError(f"there is no model {name}; there are: {', '.join(MODELS)}")


def files(name: str) -> ModelFiles:
    """The files of model `name`, made or not."""
    family(name)
    folder = bench_folder() / "models"
    folder.mkdir(exist_ok=True)
    return ModelFiles(name, folder)


def ensure_made(names: Iterable[str]) -> None:
    """Make the models of `names` that are missing, each in a process of its own."""
    for name in names:
        if not files(name).facts.exists():
            subprocess.run([sys.executable, "-m", "benchmarks.models", name], cwd=ROOT, check=True)


def ensure_portable(name: str) -> Path:
    """The model as a StableHLO portable artifact, written by `stepwell export` when missing."""
    found = files(name)
    if not found.portable.exists():
        command = [sys.executable, "-m", "stepwell.tools.stepwell", "export"]
        subprocess.run([*command, str(found.path), "-o", str(found.portable)], check=True)
    return found.portable
