"""Rewrite rules come to an end: none makes what it matches again, or what it then leaves unused."""

from __future__ import annotations

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import stepwell
from stepwell.mlir import ir, new_context
from stepwell.passes.stablehlo import simplify_algebra
from stepwell.weights import WeightTable


def _cycles(model: object, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is logged of rules that go on until their rounds are used up."""
    lowered = stepwell.lower(model, target="host")
    with caplog.at_level(logging.INFO, logger="stepwell"):
        lowered.step("linalg")
    return [record.message for record in caplog.records if "found no end" in record.message]


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


_ONE_BATCH_IS_MERGED = """func.func @main(%q: tensor<3x4x8x16xf32>, %k: tensor<12x8x16xf32>)
    -> tensor<3x4x16x16xf32> {
  %m = stablehlo.reshape %q : (tensor<3x4x8x16xf32>) -> tensor<12x8x16xf32>
  %t = stablehlo.transpose %m, dims = [0, 2, 1] : (tensor<12x8x16xf32>) -> tensor<12x16x8xf32>
  %d = stablehlo.dot_general %t, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1]
      : (tensor<12x16x8xf32>, tensor<12x8x16xf32>) -> tensor<12x16x16xf32>
  %r = stablehlo.reshape %d : (tensor<12x16x16xf32>) -> tensor<3x4x16x16xf32>
  %x = stablehlo.negate %r : tensor<3x4x16x16xf32>
  %y = stablehlo.negate %x : tensor<3x4x16x16xf32>
  %z = stablehlo.constant dense<0.0> : tensor<3x4x16x16xf32>
  %s = stablehlo.subtract %y, %z : tensor<3x4x16x16xf32>
  return %s : tensor<3x4x16x16xf32>
}"""


def test_batches_merged_on_one_side_alone(caplog: pytest.LogCaptureFixture) -> None:
    with new_context(), ir.Location.unknown(), caplog.at_level(logging.INFO, logger="stepwell"):
        module = ir.Module.parse(_ONE_BATCH_IS_MERGED)
        simplify_algebra.RULES.apply(module.operation, WeightTable())
    assert not caplog.records


def test_joined_results_that_are_split(caplog: pytest.LogCaptureFixture) -> None:
    """The distributions of a detector's boxes at two scales: convolutions, joined and split."""

    def boxes(x: jax.Array, y: jax.Array) -> jax.Array:
        parts = []
        for image in (x, y):
            weights, layouts = _weights(1, 1, 8, 64), ("NCHW", "HWIO", "NCHW")
            numbers = lax.conv_dimension_numbers(image.shape, weights.shape, layouts)
            found = lax.conv_general_dilated(
                image, weights, (1, 1), "VALID", dimension_numbers=numbers
            )
            parts.append(found.reshape(1, 64, -1))
        joined = jnp.concatenate(parts, 2)
        return jax.nn.softmax(joined.reshape(1, 4, 16, -1).transpose(0, 2, 1, 3), axis=1)

    images = (_weights(1, 8, 10, 10), _weights(1, 8, 5, 5))
    assert not _cycles(jax.export.export(jax.jit(boxes))(*images), caplog)
