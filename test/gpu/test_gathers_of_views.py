"""Gathers from slices, repetitions and other orders of what lies in memory: kernels of the whole
grid, that compute where each element lies."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from jax import numpy as jnp
from models import assert_same_as_cpu

ROWS, COLUMNS = 9, 24


def sliced(x: jax.Array) -> jax.Array:
    return lax.slice(x, (1, 2), (ROWS, COLUMNS), (1, 3))


def repeated(x: jax.Array) -> jax.Array:
    return jnp.tile(x, (2, 3))


def broadcast(x: jax.Array) -> jax.Array:
    return jnp.broadcast_to(x[:, None], (ROWS, 4, COLUMNS)).reshape(ROWS * 4, COLUMNS)


VIEWS = {view.__name__: view for view in (sliced, repeated, broadcast)}
READS: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "rows": lambda x, places: jnp.take(x, places[:, 0], axis=0, mode="clip"),
    "columns": lambda x, places: jnp.take(x, places[0], axis=1, mode="clip"),
    "along rows": lambda x, places: jnp.take_along_axis(
        x, jnp.resize(places, (6, x.shape[1])), axis=0, mode="clip"
    ),
    "elements": lambda x, places: x.reshape(-1).at[places * 5].get(mode="clip"),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("view", VIEWS)
def test_gather(view: str, read: str, emulator: Emulator) -> None:
    x = np.random.default_rng(0).integers(-99, 100, (ROWS, COLUMNS)).astype(np.float32)
    places = np.random.default_rng(1).integers(0, 40, (6, 7)).astype(np.int32)
    function = jax.jit(lambda x, places: READS[read](VIEWS[view](x), places))
    model = str(jax.export.export(function)(x, places).mlir_module())
    compiled = assert_same_as_cpu(model, [x, places], emulator, rtol=0, atol=0)
    assert not compiled.remarks
