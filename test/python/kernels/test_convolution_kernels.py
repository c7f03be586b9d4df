"""Convolutions of every form: strides, dilations, pads, groups, dimensions, odd channels."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from programs import Batch, Case, normal

import stepwell

NHWC = ("NHWC", "HWIO", "NHWC")
NCHW = ("NCHW", "OIHW", "NCHW")


def convolution(
    name: str,
    spatial: tuple[int, ...],
    window: tuple[int, ...],
    channels: tuple[int, int],
    *,
    batch: int = 1,
    stride: int | tuple[int, ...] = 1,
    pads: int | list[tuple[int, int]] = 0,
    dilation: int = 1,
    input_dilation: int = 1,
    groups: int = 1,
    layout: tuple[str, str, str] = NHWC,
    epilogue=None,
) -> Case:
    """A convolution of `channels` (in, out); inputs scaled so that results are of order one."""
    rank = len(spatial)
    strides = (stride,) * rank if isinstance(stride, int) else stride
    padding = [(pads, pads)] * rank if isinstance(pads, int) else pads

    def order(text: str, spatial_sizes: tuple[int, ...], first: str, sizes: dict[str, int]):
        letters = iter(spatial_sizes)
        return tuple(sizes[c] if c in sizes else next(letters) for c in text)

    taps = int(np.prod(window)) * channels[0] // groups
    x_shape = order(layout[0], spatial, "N", {"N": batch, "C": channels[0]})
    w_shape = order(layout[1], window, "O", {"O": channels[1], "I": channels[0] // groups})

    def function(x, w, *rest):
        y = lax.conv_general_dilated(
            x,
            w,
            strides,
            padding,
            (input_dilation,) * rank,
            (dilation,) * rank,
            layout,
            groups,
        )
        return y if epilogue is None else epilogue(y, *rest)

    w = (normal(*w_shape) / np.sqrt(taps)).astype(np.float32)
    return Case(name, function, (normal(*x_shape), w))


def relu(y):
    return jnp.maximum(y, 0)


BASIC = [
    convolution(f"{kind}-{side}x{side}-{c}to{n}", (9, 11), (side, side), (c, n), pads=side // 2,
                layout=layout)
    for kind, layout in (("nhwc", NHWC), ("nchw", NCHW))
    for side in (1, 3, 5)
    for c, n in ((3, 17), (17, 40), (40, 64), (1, 1))
]  # fmt: skip

FORMS = [
    convolution("strided", (9, 11), (3, 3), (8, 17), stride=2, pads=1),
    convolution("strided-1x1", (9, 11), (1, 1), (8, 17), stride=2),
    convolution("strided-nchw", (9, 11), (3, 3), (8, 17), stride=2, pads=1, layout=NCHW),
    convolution("stem", (32, 32), (7, 7), (3, 24), stride=2, pads=3),
    convolution("stem-nchw", (32, 32), (7, 7), (3, 24), stride=2, pads=3, layout=NCHW),
    convolution("patches", (32, 32), (8, 8), (3, 24), stride=8),
    convolution("strides-differ", (9, 11), (3, 3), (8, 17), stride=(2, 3), pads=1),
    convolution("stride-above-window", (9, 11), (2, 2), (8, 17), stride=3),
    convolution("dilated", (9, 11), (3, 3), (8, 17), dilation=2, pads=2),
    convolution("dilated-strided", (13, 15), (3, 3), (8, 17), dilation=2, stride=2, pads=1),
    convolution("dilated-near-size", (9, 11), (3, 3), (16, 17), dilation=8, pads=8, batch=2),
    convolution("dilated-strided-short", (9, 11), (3, 3), (16, 24), dilation=6, pads=6, stride=2),
    convolution("pads-beyond-window", (3, 11), (5, 5), (20, 24), pads=[(4, 3), (2, 5)]),
    convolution("asymmetric-pads", (9, 11), (3, 3), (8, 17), pads=[(0, 1), (2, 0)]),
    convolution("no-pads", (9, 11), (3, 3), (8, 17)),
    convolution("negative-pads", (9, 11), (3, 3), (8, 17), pads=[(-1, 0), (0, -2)]),
    convolution("window-is-input", (5, 5), (5, 5), (8, 17)),
    convolution("batch", (9, 11), (3, 3), (8, 17), batch=3, pads=1),
    convolution("rectangular-1x7", (9, 11), (1, 7), (8, 17), pads=[(0, 0), (3, 3)]),
    convolution("rectangular-7x1", (9, 11), (7, 1), (8, 17), pads=[(3, 3), (0, 0)]),
    convolution("transposed", (5, 6), (3, 3), (8, 17), input_dilation=2, pads=[(1, 2), (1, 2)]),
    convolution("transposed-4x4", (5, 6), (4, 4), (8, 17), input_dilation=2, pads=2),
    convolution("grouped-2", (9, 11), (3, 3), (8, 34), groups=2, pads=1),
    convolution("grouped-4-nchw", (9, 11), (3, 3), (20, 12), groups=4, pads=1, layout=NCHW),
    convolution("grouped-strided", (9, 11), (3, 3), (32, 32), groups=4, pads=1, stride=2),
    convolution("grouped-1x1", (9, 11), (1, 1), (12, 24), groups=3),
    convolution("grouped-narrow", (9, 21), (3, 3), (48, 48), groups=12, pads=1, batch=2),
    convolution("grouped-pairs-to-one", (9, 11), (3, 3), (32, 16), groups=16, pads=1),
    convolution("grouped-dilated", (9, 11), (3, 3), (32, 40), groups=2, dilation=8, pads=8),
    convolution("grouped-relu-mean", (9, 11), (3, 3), (32, 40), groups=2, pads=1,
                epilogue=lambda y: jnp.maximum(y, 0).mean((1, 2))),
    convolution("grouped-one-dimension", (40,), (5,), (24, 32), pads=2, stride=2, groups=8,
                layout=("NCH", "OIH", "NCH")),
    convolution("grouped-three-dimensions", (5, 6, 7), (3, 3, 3), (18, 17 * 3), pads=1, groups=3,
                layout=("NDHWC", "DHWIO", "NDHWC")),
    convolution("depthwise", (9, 11), (3, 3), (17, 17), groups=17, pads=1),
    convolution("depthwise-40", (9, 11), (3, 3), (40, 40), groups=40, pads=1),
    convolution("depthwise-5x5", (9, 11), (5, 5), (33, 33), groups=33, pads=2),
    convolution("depthwise-7x7", (9, 21), (7, 7), (40, 40), groups=40, pads=3, batch=2),
    convolution("depthwise-9x9-in-parts", (20, 40), (9, 9), (520, 520), groups=520, pads=4),
    convolution("depthwise-9x9-strided", (17, 20), (9, 9), (17, 17), groups=17, pads=4, stride=2),
    convolution("depthwise-13x13-dilated", (9, 11), (13, 13), (8, 8), groups=8, pads=12,
                dilation=2),
    convolution("depthwise-strided", (9, 11), (3, 3), (40, 40), groups=40, pads=1, stride=2),
    convolution("depthwise-dilated", (9, 11), (3, 3), (40, 40), groups=40, pads=2, dilation=2),
    convolution("depthwise-72-of-7x7", (7, 7), (3, 3), (72, 72), groups=72, pads=1),
    convolution("depthwise-nchw", (9, 11), (3, 3), (17, 17), groups=17, pads=1, layout=NCHW),
    convolution("depthwise-1x1", (9, 11), (1, 1), (40, 40), groups=40, epilogue=relu),
    convolution("depthwise-1x1-strided-nchw", (9, 11), (1, 1), (17, 17), groups=17, stride=2,
                layout=NCHW),
    convolution("depthwise-multiplied", (9, 11), (3, 3), (6, 18), groups=6, pads=1),
    convolution("depthwise-relu6", (9, 11), (3, 3), (40, 40), groups=40, pads=1,
                epilogue=lambda y: jnp.clip(y, 0, 6)),
    convolution("one-dimension", (40,), (3,), (8, 17), pads=1, layout=("NHC", "HIO", "NHC")),
    convolution("one-dimension-ncw", (40,), (5,), (3, 17), pads=2, stride=2,
                layout=("NCH", "OIH", "NCH")),
    convolution("one-dimension-depthwise", (40,), (3,), (17, 17), pads=1, groups=17,
                layout=("NHC", "HIO", "NHC")),
    convolution("three-dimensions", (5, 6, 7), (3, 3, 3), (3, 17), pads=1,
                layout=("NDHWC", "DHWIO", "NDHWC")),
    convolution("three-dimensions-short", (2, 3, 7), (3, 3, 3), (16, 17), pads=1,
                layout=("NDHWC", "DHWIO", "NDHWC")),
    convolution("three-dimensions-nc", (5, 6, 7), (3, 2, 1), (4, 9), pads=1, stride=2,
                layout=("NCDHW", "OIDHW", "NCDHW")),
    convolution("relu", (9, 11), (3, 3), (8, 17), pads=1, epilogue=relu),
    convolution("residual", (9, 11), (3, 3), (17, 17), pads=1, epilogue=lambda y: relu(y + 2 * y)),
    convolution("transposed-result", (9, 11), (3, 3), (8, 17), pads=1,
                epilogue=lambda y: y.transpose(0, 3, 1, 2)),
    convolution("mean-result", (9, 11), (3, 3), (8, 17), pads=1, epilogue=lambda y: y.mean((1, 2))),
    convolution("mean-result-nchw", (9, 11), (3, 3), (8, 17), layout=NCHW, pads=1,
                epilogue=lambda y: y.mean((2, 3))),
]  # fmt: skip


def _weights(*shape: int) -> np.ndarray:
    return (normal(*shape) / np.sqrt(np.prod(shape[:-1]))).astype(np.float32)


def conv(x, w, stride=1, groups=1, sums=None):
    side = w.shape[0] // 2
    pads = [(side, side)] * 2
    return lax.conv_general_dilated(
        x,
        w,
        (stride, stride),
        pads,
        dimension_numbers=NHWC,
        feature_group_count=groups,
        preferred_element_type=sums,
    )


IMAGE = normal(1, 12, 13, 16)
NETWORKS = [
    Case("conv-conv", lambda x, a, b: conv(relu(conv(x, a)), b),
         (IMAGE, _weights(3, 3, 16, 24), _weights(3, 3, 24, 17))),
    Case("block", lambda x, a, b: relu(conv(relu(conv(x, a)), b) + x),
         (IMAGE, _weights(3, 3, 16, 16), _weights(1, 1, 16, 16))),
    Case("inverted-residual",
         lambda x, a, b, c: x + conv(jnp.clip(conv(jnp.clip(conv(x, a), 0, 6), b, 1, 32), 0, 6), c),
         (IMAGE, _weights(1, 1, 16, 32), _weights(3, 3, 1, 32), _weights(1, 1, 32, 16))),
    Case("grouped-bottleneck",
         lambda x, a, b, c: x + conv(relu(conv(relu(conv(x, a)), b, 1, 8)), c),
         (IMAGE, _weights(1, 1, 16, 32), _weights(3, 3, 4, 32), _weights(1, 1, 32, 16))),
    Case("grouped-integers", lambda x, w: conv((x * 9).astype(jnp.int8), (w * 9).astype(jnp.int8),
                                               1, 4, jnp.int32),
         (IMAGE, _weights(3, 3, 4, 32))),
    Case("grouped-unsigned", lambda x, w: conv((x * 9).astype(jnp.uint8), (w * 9).astype(jnp.uint8),
                                               1, 4, jnp.uint32),
         (jnp.abs(IMAGE), np.abs(_weights(3, 3, 4, 32)))),
    Case("grouped-half",
         lambda x, w: conv(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16), 2, 4).astype(x.dtype),
         (IMAGE, _weights(3, 3, 4, 32)), tolerance=2e-2),
    Case("concatenated", lambda x, a, b: jnp.concatenate([conv(x, a), relu(conv(x, b)), x], 3),
         (IMAGE, _weights(1, 1, 16, 7), _weights(3, 3, 16, 9))),
    Case("dense-block", lambda x, a, b: conv(relu(jnp.concatenate([x, conv(x, a)], 3)), b),
         (IMAGE, _weights(3, 3, 16, 8), _weights(1, 1, 24, 12))),
    Case("squeeze-excite",
         lambda x, a, b: (y := conv(x, a)) * lax.logistic(y.mean((1, 2)) @ b)[:, None, None],
         (IMAGE, _weights(3, 3, 16, 20), _weights(20, 20))),
]  # fmt: skip

BASIC_BATCH = Batch(BASIC)
FORM_BATCH = Batch(FORMS)
NETWORK_BATCH = Batch(NETWORKS)


@BASIC_BATCH.parametrize()
def test_windows_and_channels(name: str) -> None:
    BASIC_BATCH.check(name)


@FORM_BATCH.parametrize()
def test_forms(name: str) -> None:
    FORM_BATCH.check(name)


@NETWORK_BATCH.parametrize()
def test_networks(name: str) -> None:
    NETWORK_BATCH.check(name)


@pytest.mark.parametrize("dilation", [1, 2])
def test_infinities_of_one_group_stay_in_it(dilation: int) -> None:
    image, weights = IMAGE.copy(), _weights(3, 3, 4, 32)
    image[0, 5, 6, 2] = np.inf

    def grouped(x):
        return lax.conv_general_dilated(
            x,
            weights,
            (1, 1),
            "SAME",
            rhs_dilation=(dilation, dilation),
            dimension_numbers=NHWC,
            feature_group_count=4,
        )

    (result,) = stepwell.compile(jax.jit(grouped).trace(image), options={"precision": "strict"})(
        image
    )
    finite = np.isfinite(result)
    reached = (5 + dilation * np.arange(-1, 2), 6 + dilation * np.arange(-1, 2))
    expected = np.ones(result.shape, bool)
    expected[0, reached[0][:, None], reached[1], :8] = False
    np.testing.assert_array_equal(finite, expected)
    np.testing.assert_allclose(result[finite], np.asarray(grouped(image))[finite], atol=1e-5)
