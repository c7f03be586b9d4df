"""Shapes, indexing, gather, scatter and sort."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from .case import BF16, case, integers, numbers

X = numbers(4, 6, 5)
M = numbers(9, 13)

case("transpose", lambda x: x.transpose(2, 0, 1), X)
case("transpose_2d", lambda x: x.T, M)
case("reshape", lambda x: x.reshape(6, 20), X)
case("broadcast", lambda x: jnp.broadcast_to(x[:, None], (9, 3, 13)), M)
case("slice_strided", lambda x: x[1:8:2, 3::4], M)
case("reverse", lambda x: x[::-1, ::-1], M)
case("pad", lambda x: jnp.pad(x, ((1, 2), (0, 3)), constant_values=7), M)
case("pad_interior", lambda x: lax.pad(x, np.float32(1), [(1, 0, 2), (-1, 2, 1)]), M)
case("concatenate", lambda x: jnp.concatenate([x, x * 2, x[:, :3]], axis=1), M)
case("concatenate_rows", lambda x: jnp.concatenate([x, x[:2]], axis=0), M)
case("stack", lambda x: jnp.stack([x, -x], axis=1), M)
case("iota", lambda x: x + lax.broadcasted_iota(jnp.float32, x.shape, 1), M)
case("tril", jnp.tril, M)
case("roll", lambda x: jnp.roll(x, 3, axis=1), M)
case("tile", lambda x: jnp.tile(x, (2, 3)), M)
case("repeat", lambda x: jnp.repeat(x, 3, axis=0), M)

INT = np.int32
case("dynamic_slice", lambda x, i, j: lax.dynamic_slice(x, (i, j), (3, 4)), M, INT(2), INT(99))
case("dynamic_slice_negative", lambda x, i: lax.dynamic_slice(x, (i, i), (3, 4)), M, INT(-5))
case(
    "dynamic_update_slice",
    lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i)),
    M,
    numbers(2, 3),
    INT(4),
)
case(
    "dynamic_update_clamped",
    lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i)),
    M,
    numbers(2, 3),
    INT(50),
)
case("dynamic_index", lambda x, i: lax.dynamic_index_in_dim(x, i, 0, keepdims=False), X, INT(2))

INDICES = integers(3, 0, -1, 8, 3)
case("take_rows", lambda x, i: x[i], M, INDICES)
case("take_columns", lambda x, i: x[:, i], M, INDICES)
case("take_clip", lambda x, i: jnp.take(x, i, axis=0, mode="clip"), M, integers(0, 55, -7))
case("take_fill", lambda x, i: jnp.take(x, i, axis=0, mode="fill"), M, integers(0, 55, 2))
case(
    "take_along_axis",
    lambda x, i: jnp.take_along_axis(x, i, axis=1),
    M,
    numbers(9, 4, dtype=np.int32, low=0, high=12),
)
case("gather_pairs", lambda x, i, j: x[i, j], M, INDICES, INDICES)
case(
    "embedding",
    lambda table, i: table[i],
    numbers(50, 16),
    numbers(3, 7, dtype=np.int32, low=0, high=49),
)

for _name in ("set", "add", "multiply", "min", "max"):
    case(
        f"scatter_{_name}",
        lambda x, i, u, name=_name: getattr(x.at[i], name)(u),
        M,
        integers(3, 0, 7, 2),
        numbers(4, 13),
    )
case("scatter_add_repeated", lambda x, i, u: x.at[i].add(u), M, INDICES, numbers(5, 13))
case(
    "scatter_out_of_bounds",
    lambda x, i, u: x.at[i].add(u, mode="drop"),
    M,
    integers(3, 90, -50),
    numbers(3, 13),
)
case("scatter_columns", lambda x, i, u: x.at[:, i].set(u), M, integers(3, 5), numbers(9, 2))
case("scatter_points", lambda x, i, j, u: x.at[i, j].add(u), M, INDICES, INDICES, numbers(5))
case("scatter_window", lambda x, u: x.at[2:5, 4:9].add(u), M, numbers(3, 5))
case("scatter_int", lambda x, i: x.at[i].add(1), numbers(11, dtype=np.int32), INDICES)
case("scatter_bool", lambda x, i: x.at[i].set(True), numbers(11, dtype=np.bool_), INDICES)
case("scatter_bf16", lambda x, i: x.at[i].add(1), numbers(11, dtype=BF16), INDICES)
case("scatter_uint8", lambda x, i: x.at[i].max(2), numbers(11, dtype=np.uint8), INDICES)
case("scatter_apply", lambda x, i: x.at[i].apply(jnp.sin), numbers(11), INDICES)
case("histogram", lambda x: jnp.bincount(x, length=8), numbers(40, dtype=np.int32, low=0, high=7))
case("one_hot", lambda i: jnp.eye(9)[i], INDICES)
case(
    "scatter_batched",
    lambda x, i, u: _batched_set(x, i, u),
    M,
    numbers(9, 2, dtype=np.int32, low=0, high=12),
    numbers(9, 2),
)


def _batched_set(x, i, u):
    import jax

    return jax.vmap(lambda row, at, value: row.at[at].set(value, mode="drop"))(x, i, u)


KEYS = numbers(6, 37)
for _kind in (np.float32, np.int32, np.uint8, np.float64, BF16, np.int64):
    case(f"sort_{np.dtype(_kind).name}", jnp.sort, numbers(6, 37, dtype=_kind, high=50))
case("sort_first_axis", lambda x: jnp.sort(x, axis=0), KEYS)
case("sort_descending", lambda x: jnp.sort(x, descending=True), KEYS)
case("sort_1", jnp.sort, numbers(1))
case("sort_1000", jnp.sort, numbers(1000))
case("argsort", jnp.argsort, KEYS)
case(
    "argsort_stable",
    lambda x: jnp.argsort(x, stable=True),
    numbers(300, dtype=np.int32, low=0, high=5),
)
case("sort_pairs", lambda k, v: lax.sort((k, v), num_keys=1), KEYS, numbers(6, 37, low=0))
case(
    "sort_two_keys",
    lambda k, v: lax.sort((k, v), num_keys=2),
    numbers(50, dtype=np.int32, low=0, high=3),
    numbers(50),
)
case("sort_nan", jnp.sort, np.array([3, np.nan, -1, np.inf, -np.inf, 0, -0.0], np.float32))
case("top_k", lambda x: lax.top_k(x, 5), KEYS)
case("top_k_1d", lambda x: lax.top_k(x, 1), numbers(12))
case("median", lambda x: jnp.median(x, axis=1), KEYS)
case(
    "unique",
    lambda x: jnp.unique(x, size=6, fill_value=-1),
    numbers(20, dtype=np.int32, low=0, high=5),
)
case("searchsorted", lambda x, q: jnp.searchsorted(jnp.sort(x), q), numbers(30), numbers(7))
case("nonzero", lambda x: jnp.nonzero(x, size=8), numbers(20, dtype=np.int32, low=0, high=1))

ROWS = integers(2, 5, 2, 9, -3, 0)
case(
    "scatter_add_wide_rows",
    lambda x, i, u: x.at[i].add(u),
    numbers(7, 37), ROWS, numbers(6, 37),
)  # fmt: skip
case(
    "scatter_max_columns",
    lambda x, i, u: x.at[:, i].max(u, mode="drop"),
    numbers(3, 7, 5), ROWS, numbers(3, 6, 5),
)  # fmt: skip
