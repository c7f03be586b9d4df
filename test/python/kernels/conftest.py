"""64-bit types in jax: they are among what is tested."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def wide_types() -> Iterator[None]:
    with jax.enable_x64(True):
        yield
