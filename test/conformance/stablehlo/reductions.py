"""Reductions, windows, cumulative operations, contractions and convolutions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .case import BF16, case, numbers

M = numbers(9, 33)
T = numbers(3, 8, 10)

for _kind in (np.float32, np.float64, BF16, np.int32, np.int64, np.uint8):
    _label = np.dtype(_kind).name
    _x = numbers(9, 33, dtype=_kind, low=1, high=3)
    case(f"sum_{_label}", lambda x: lax.reduce_sum(x, axes=(1,)), _x)
    case(f"sum_first_{_label}", lambda x: lax.reduce_sum(x, axes=(0,)), _x)
    case(f"max_reduce_{_label}", lambda x: x.max(axis=1), _x)
    case(f"min_reduce_{_label}", lambda x: x.min(axis=0), _x)
    case(f"argmax_{_label}", lambda x: jnp.argmax(x, axis=1), _x)
case("sum_all", lambda x: x.sum(), T)
case("sum_middle", lambda x: x.sum(axis=1), T)
case("sum_outer", lambda x: x.sum(axis=(0, 2)), T)
case("prod", lambda x: x.prod(axis=1), numbers(4, 12, low=0.5, high=1.5))
case("mean_var", lambda x: (x.mean(axis=1), x.var(axis=1)), M)
case("any_all", lambda x: (jnp.any(x > 2.5, axis=1), jnp.all(x > -2.9, axis=1)), M)
case("argmin_first", lambda x: jnp.argmin(x, axis=0), M)
case("logsumexp", lambda x: jax.nn.logsumexp(x, axis=1), M)
case("softmax", lambda x: jax.nn.softmax(x, axis=-1), M)
case("norm", lambda x: jnp.linalg.norm(x, axis=1), M)
case("xor_reduce", lambda x: lax.reduce_xor(x, axes=(1,)), numbers(4, 9, dtype=np.int32, high=90))

for _name, _function in {"sum": jnp.cumsum, "prod": jnp.cumprod}.items():
    case(f"cum{_name}", lambda x, f=_function: f(x, axis=1), numbers(4, 21, low=0.5, high=1.5))
    case(
        f"cum{_name}_first", lambda x, f=_function: f(x, axis=0), numbers(21, 4, low=0.5, high=1.5)
    )
case("cummax", lambda x: lax.cummax(x, axis=1), M)
case("cummin_reverse", lambda x: lax.cummin(x, axis=0, reverse=True), M)
case("cumlogsumexp", lambda x: lax.cumlogsumexp(x, axis=1), M)
case("cumsum_int", lambda x: jnp.cumsum(x), numbers(50, dtype=np.int32))
LONG = numbers(70, 3)
for _kind in (np.float32, np.float16, BF16, np.complex64, np.uint8):
    _x = numbers(3, 70, 2, dtype=np.float32, low=0, high=3).astype(_kind)
    case(f"cumsum_long_{np.dtype(_kind).name}", lambda x: jnp.cumsum(x, axis=1, dtype=x.dtype), _x)
case("cumsum_long_reverse", lambda x: lax.cumsum(x, axis=0, reverse=True), LONG)
case("cumprod_long", lambda x: lax.cumprod(x, axis=0), numbers(70, 3, low=0.9, high=1.1))
case("cummax_long", lambda x: lax.cummax(x, axis=0), LONG)
case("cummin_long_reverse", lambda x: lax.cummin(x, axis=0, reverse=True), LONG)
case("cummin_of_uint64", lambda x: lax.cummin(x, axis=0), numbers(7, 3, dtype=np.uint64, low=0))
case("cumlogsumexp_long", lambda x: lax.cumlogsumexp(x, axis=0), LONG)
case("associative_scan", lambda x: lax.associative_scan(jnp.add, x, axis=1), M)

IMAGE = numbers(2, 9, 9, 4)
WINDOW = (1, 3, 3, 1)
case(
    "max_pool",
    lambda x: lax.reduce_window(x, -jnp.inf, lax.max, WINDOW, (1, 2, 2, 1), "SAME"),
    IMAGE,
)
case("avg_pool", lambda x: lax.reduce_window(x, 0.0, lax.add, WINDOW, (1, 1, 1, 1), "VALID"), IMAGE)
case(
    "min_pool_dilated",
    lambda x: lax.reduce_window(
        x, jnp.inf, lax.min, WINDOW, (1, 1, 1, 1), "VALID", window_dilation=(1, 2, 2, 1)
    ),
    IMAGE,
)
case(
    "window_base_dilation",
    lambda x: lax.reduce_window(
        x, 0.0, lax.add, WINDOW, (1, 1, 1, 1), "VALID", base_dilation=(1, 2, 1, 1)
    ),
    IMAGE,
)
case(
    "max_pool_grad",
    jax.grad(
        lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, WINDOW, (1, 2, 2, 1), "SAME") ** 2).sum()
    ),
    IMAGE,
)
case(
    "avg_pool_grad",
    jax.grad(
        lambda x: (lax.reduce_window(x, 0.0, lax.add, WINDOW, (1, 2, 2, 1), "SAME") ** 2).sum()
    ),
    IMAGE,
)

A, B = numbers(17, 23), numbers(23, 31)
for _kind in (np.float32, np.float64, np.int32, BF16, np.float16):
    case(
        f"matmul_{np.dtype(_kind).name}",
        jnp.matmul,
        numbers(17, 23, dtype=_kind),
        numbers(23, 31, dtype=_kind),
    )
EINSUMS = {
    "transposed_b": ("ij,kj->ik", (17, 23), (31, 23)),
    "transposed_a": ("ji,jk->ik", (23, 17), (23, 31)),
    "matvec": ("ij,j->i", (17, 23), (23,)),
    "vecmat": ("j,jk->k", (23,), (23, 31)),
    "dot": ("j,j->", (23,), (23,)),
    "outer": ("i,j->ij", (17,), (23,)),
    "batched": ("bij,bjk->bik", (3, 7, 9), (3, 9, 11)),
    "heads": ("bqhd,bkhd->bhqk", (2, 6, 3, 8), (2, 5, 3, 8)),
    "two_contracted": ("ijk,jkl->il", (5, 6, 7), (6, 7, 8)),
    "batch_last": ("ijb,jkb->ikb", (7, 9, 3), (9, 11, 3)),
    "full": ("ij,ij->", (17, 23), (17, 23)),
}
for _name, (_text, _left, _right) in EINSUMS.items():
    case(
        f"einsum_{_name}",
        lambda a, b, t=_text: jnp.einsum(t, a, b),
        numbers(*_left),
        numbers(*_right),
    )

NHWC = ("NHWC", "HWIO", "NHWC")
NCHW = ("NCHW", "OIHW", "NCHW")
KERNEL = numbers(3, 3, 4, 6)


def _conv(**options):
    def function(x, w):
        return lax.conv_general_dilated(
            x,
            w,
            **{"dimension_numbers": NHWC, "padding": "SAME", "window_strides": (1, 1), **options},
        )

    return function


case("conv_same", _conv(), IMAGE, KERNEL)
case("conv_valid_strided", _conv(padding="VALID", window_strides=(2, 2)), IMAGE, KERNEL)
case("conv_dilated", _conv(rhs_dilation=(2, 2)), IMAGE, KERNEL)
case("conv_transposed", _conv(lhs_dilation=(2, 2), padding=[(2, 2), (1, 2)]), IMAGE, KERNEL)
case("conv_depthwise", _conv(feature_group_count=4), IMAGE, numbers(3, 3, 1, 8))
case("conv_grouped", _conv(feature_group_count=2), IMAGE, numbers(3, 3, 2, 6))
case("conv_batch_groups", _conv(batch_group_count=2), IMAGE, KERNEL)
case("conv_nchw", _conv(dimension_numbers=NCHW), numbers(2, 4, 9, 9), numbers(6, 4, 3, 3))
case("conv_pointwise", _conv(), IMAGE, numbers(1, 1, 4, 6))
case("conv_padding_negative", _conv(padding=[(-1, 0), (2, -1)]), IMAGE, KERNEL)
case("conv_1d", lambda x, w: lax.conv(x, w, (1,), "SAME"), numbers(2, 3, 15), numbers(5, 3, 4))
case(
    "conv_3d",
    lambda x, w: lax.conv(x, w, (1, 1, 1), "SAME"),
    numbers(1, 2, 5, 6, 7),
    numbers(3, 2, 3, 3, 3),
)
case("conv_grads", jax.grad(lambda x, w: (_conv()(x, w) ** 2).sum(), argnums=(0, 1)), IMAGE, KERNEL)
case(
    "conv_grads_strided",
    jax.grad(lambda x, w: (_conv(window_strides=(2, 2))(x, w) ** 2).sum(), argnums=(0, 1)),
    IMAGE,
    KERNEL,
)

for _kind, _rounding in ((np.float16, 2.0**-11), (BF16, 2.0**-8)):
    _x, _w = numbers(6, 300, dtype=_kind), numbers(300, 5, dtype=_kind)
    case(f"long_dot_{np.dtype(_kind).name}", lax.dot, _x, _w, tolerance=_rounding)
