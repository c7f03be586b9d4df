"""Sizes that a program sets, and operations that wait for the host."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell
from stepwell.errors import UnsupportedError

SIZES = """func.func @main(%a: tensor<4x?xELEMENT, #stablehlo.bounds<?, 6>>, %n: tensor<i32>)
    -> (tensor<4x?xELEMENT>, tensor<i32>, tensor<4x6xELEMENT>) {
  %six = stablehlo.constant dense<6> : tensor<i32>
  %0 = stablehlo.set_dimension_size %a, %n, dim = 1
    : (tensor<4x?xELEMENT, #stablehlo.bounds<?, 6>>, tensor<i32>)
    -> tensor<4x?xELEMENT, #stablehlo.bounds<?, 6>>
  %1 = stablehlo.add %0, %0 : tensor<4x?xELEMENT, #stablehlo.bounds<?, 6>>
  %2 = stablehlo.get_dimension_size %1, dim = 1
    : (tensor<4x?xELEMENT, #stablehlo.bounds<?, 6>>) -> tensor<i32>
  %3 = stablehlo.set_dimension_size %1, %six, dim = 1
    : (tensor<4x?xELEMENT, #stablehlo.bounds<?, 6>>, tensor<i32>) -> tensor<4x6xELEMENT>
  %4 = stablehlo.convert %1
    : (tensor<4x?xELEMENT, #stablehlo.bounds<?, 6>>) -> tensor<4x?xELEMENT>
  return %4, %2, %3 : tensor<4x?xELEMENT>, tensor<i32>, tensor<4x6xELEMENT>
}"""


@pytest.mark.parametrize(
    ("element", "kind"), [("f32", np.float32), ("complex<f32>", np.complex64), ("ui8", np.uint8)]
)
def test_sizes_that_a_call_tells(element: str, kind: type) -> None:
    exe = stepwell.compile(SIZES.replace("ELEMENT", element))
    for had, size in ((5, 3), (6, 6), (5, 0), (3, 5), (0, 0)):
        a = np.arange(4 * had).reshape(4, had).astype(kind)
        result, count, full = exe(a, np.array(size, np.int32))
        want = np.zeros((4, 6), kind)
        want[:, : min(had, size)] = 2 * a[:, :size]
        np.testing.assert_array_equal(result, want[:, :size])
        np.testing.assert_array_equal(full, want)
        assert count == size


@pytest.mark.parametrize("kind", ["tensor<3xf32>", "tensor<?xf32, #stablehlo.bounds<5>>"])
def test_size_that_is_known(kind: str) -> None:
    text = f"""func.func @main(%a: tensor<5xf32>) -> tensor<f32> {{
      %n = stablehlo.constant dense<3> : tensor<i32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.set_dimension_size %a, %n, dim = 0 : (tensor<5xf32>, tensor<i32>) -> {kind}
      %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0]
        : ({kind}, tensor<f32>) -> tensor<f32>
      return %1 : tensor<f32>
    }}"""
    (result,) = stepwell.compile(text)(np.arange(5, dtype=np.float32))
    assert result == 3


CHANNELS = {
    "infeed": """%r:2 = "stablehlo.infeed"(%t) {infeed_config = ""}
        : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)""",
    "outfeed": """%r = "stablehlo.outfeed"(%x, %t) {outfeed_config = ""}
        : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token""",
    "send": """%r = "stablehlo.send"(%x, %t) {is_host_transfer = true,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>}
        : (tensor<3xf32>, !stablehlo.token) -> !stablehlo.token""",
    "recv": """%r:2 = "stablehlo.recv"(%t) {is_host_transfer = true,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 3>}
        : (!stablehlo.token) -> (tensor<3xf32>, !stablehlo.token)""",
}


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("location", ["", 'loc("the channel")'])
@pytest.mark.parametrize("given", [True, False])
def test_channels_are_refused(name: str, location: str, given: bool) -> None:
    """By name and place, whether the token is an argument or not."""
    token = "" if given else "%t = stablehlo.create_token : !stablehlo.token"
    text = f"""func.func @main(%x: tensor<3xf32>{", %t: !stablehlo.token" * given})
        -> tensor<3xf32> {{
      {token}
      {CHANNELS[name]} {location}
      return %x : tensor<3xf32>
    }}"""
    place = "the channel" if location else r"-:4:\d+"
    with pytest.raises(
        UnsupportedError, match=rf"{place}: error: stablehlo.{name}: .* an? (in|re)"
    ):
        stepwell.compile(text)
