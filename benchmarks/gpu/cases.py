"""What is timed on GPUs: kernels beside the libraries' ones, and two models."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

FLOATS = {"f32": "float32", "tf32": "float32", "f16": "float16", "bf16": "bfloat16"}
TYPES = {**FLOATS, "s8": "int8"}
"""Names of precisions, and the dtype that arrays have in memory."""

_BYTES = {"f32": 4, "tf32": 4, "f16": 2, "bf16": 2, "s8": 1}
_SUM_BYTES = {**_BYTES, "s8": 4}
_INTEGERS = 40
"""What normal numbers are multiplied by to become integers of 8 bits."""

GROUP = 4
"""Heads of queries that share one of keys in `decode`."""

_RESNET_FLOPS, _BERT_FLOPS, BERT_LENGTH = 8.2e9, 22.4e9, 128
"""Of one image, and of one sequence of 128 tokens."""


@dataclass(frozen=True)
class Case:
    """One row of the benchmark. `sizes` are m, n, k of a gemm; batch, heads, length and head size
    of attention (`causal`: queries see the keys up to their own; `decode`: one query, whose heads
    share those of the keys); rows and their length of softmax and layer norm; the batch of a
    model."""

    family: str
    precision: str
    sizes: tuple[int, ...]

    @property
    def name(self) -> str:
        return "-".join([self.family, "x".join(map(str, self.sizes)), self.precision])

    @property
    def is_model(self) -> bool:
        return self.family in MODELS

    @property
    def flops(self) -> float:
        """Arithmetic of one call; 0 for what memory bounds."""
        if self.family == "gemm":
            return 2.0 * math.prod(self.sizes)
        if self.family in ("attention", "causal"):
            pairs = 4.0 * math.prod(self.sizes) * self.sizes[2]
            return pairs / 2 if self.family == "causal" else pairs
        return MODELS.get(self.family, 0.0) * self.sizes[0]

    @property
    def bytes(self) -> int:
        """What has to be read and written at least; 0 for models."""
        if self.family == "gemm":
            m, n, k = self.sizes
            inputs = (m * k + k * n) * _BYTES[self.precision]
            return inputs + m * n * _SUM_BYTES[self.precision]
        if self.is_model:
            return 0
        if self.family == "decode":
            batch, heads, length, width = self.sizes
            rows = 2 * heads + 2 * heads // GROUP * length
            return batch * rows * width * _BYTES[self.precision]
        arrays = 4 if self.family in ("attention", "causal") else 2
        return arrays * math.prod(self.sizes) * _BYTES[self.precision]

    def inputs(self) -> list[np.ndarray]:
        """Seeded inputs: float32, which those who run the case round to its type; token numbers."""
        generator = np.random.default_rng(0)
        if self.family == "bert":
            return [generator.integers(0, 30522, (self.sizes[0], BERT_LENGTH))]
        if self.family == "resnet50":
            shapes = [(self.sizes[0], 3, 224, 224)]
        elif self.family == "gemm":
            m, n, k = self.sizes
            # Weights of 8 bits lie along k, as layers have them.
            shapes = [(m, k), (n, k) if self.precision == "s8" else (k, n)]
        elif self.family in ("attention", "causal"):
            shapes = [self.sizes] * 3
        elif self.family == "decode":
            batch, heads, length, width = self.sizes
            shapes = [(batch, heads, 1, width), *[(batch, heads // GROUP, length, width)] * 2]
        else:
            shapes = [self.sizes]
        arrays = [generator.standard_normal(shape, dtype=np.float32) for shape in shapes]
        if self.precision == "s8":
            return [(array * _INTEGERS).clip(-127, 127) for array in arrays]
        return arrays


MODELS = {"resnet50": _RESNET_FLOPS, "bert": _BERT_FLOPS}

CASES = (
    *(
        Case("gemm", precision, (n, n, n))
        for precision in TYPES
        for n in (512, 1024, 2048, 4096, 8192)
    ),
    *(
        Case("attention", precision, sizes)
        for precision in FLOATS
        for sizes in ((8, 12, 128, 64), (8, 16, 512, 64), (2, 16, 2048, 64), (2, 16, 2048, 128))
    ),
    *(
        Case("causal", precision, sizes)
        for precision in ("tf32", "f16", "bf16")
        for sizes in ((8, 16, 512, 64), (2, 16, 2048, 128), (1, 16, 8192, 128))
    ),
    *(
        Case("decode", precision, sizes)
        for precision in ("f16", "bf16")
        for sizes in ((1, 32, 4096, 128), (16, 32, 4096, 128), (1, 32, 32768, 128))
    ),
    *(
        Case(family, precision, sizes)
        for family in ("softmax", "layer-norm")
        for precision in ("f32", "f16")
        for sizes in ((8192, 768), (8192, 4096), (256, 65536))
    ),
    *(
        Case(family, precision, (batch,))
        for family in MODELS
        for precision in ("f32", "tf32", "f16")
        for batch in (1, 8, 32)
    ),
)


def chosen(patterns: str) -> list[Case]:
    """The cases whose names contain one of the comma-separated `patterns`; all for none."""
    words = [word for word in patterns.split(",") if word]
    return [case for case in CASES if not words or any(word in case.name for word in words)]
