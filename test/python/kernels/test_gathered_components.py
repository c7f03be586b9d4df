"""Gathers of elements whose start indices are made of components, as PyTorch's importer writes
them: places that count, arguments and constants, along any dimensions of the result."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

import stepwell


@dataclass
class Program:
    """A random gather of elements, its arguments, and its result by numpy."""

    seed: int
    lines: list[str] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)
    arguments: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)
        rank, sides = int(random.integers(2, 5)), int(random.integers(1, 5))
        shape = random.choice([1, 2, 3, 5, 7], rank).tolist()
        result = random.choice([1, 2, 3, 4], sides).tolist()
        counting = random.permutation(sides)[: int(random.integers(0, min(rank, sides) + 1))]
        for dim, side in enumerate(counting):
            result[side] = shape[dim]
        x = random.standard_normal(shape).astype(np.float32)
        self.parameters.append(f"%x: {tensor(shape, 'f32')}")
        self.arguments.append(x)
        places = []
        for dim, size in enumerate(shape):
            if dim < len(counting):
                along, numbers = [int(counting[dim])], np.arange(size)
                self.lines.append(f"%n{dim} = stablehlo.iota dim = 0 : {tensor([size])}")
            else:
                along = [b for b in range(sides) if random.random() < 0.5]
                numbers = random.integers(-2, size + 2, [result[b] for b in along])
                self._enter(dim, numbers, constant=random.random() < 0.3)
            self._spread(dim, along, numbers.shape, result)
            own = [result[b] if b in along else 1 for b in range(sides)]
            bounded = np.clip(numbers, 0, size - 1).reshape(own)
            places.append(np.broadcast_to(bounded, result))
        self._gather(random.permutation(rank).tolist(), shape, result)
        self.want = x[tuple(places)]

    def _enter(self, dim: int, numbers: np.ndarray, *, constant: bool) -> None:
        kind = tensor(numbers.shape)
        if constant:
            self.lines.append(f"%n{dim} = stablehlo.constant dense<{numbers.tolist()}> : {kind}")
        else:
            self.parameters.append(f"%n{dim}: {kind}")
            self.arguments.append(numbers)

    def _spread(self, dim: int, along: list[int], own: tuple, result: list[int]) -> None:
        self.lines += [
            f"%b{dim} = stablehlo.broadcast_in_dim %n{dim}, dims = {along}"
            f" : ({tensor(own)}) -> {tensor(result)}",
            f"%r{dim} = stablehlo.reshape %b{dim} : ({tensor(result)}) -> {tensor([*result, 1])}",
        ]

    def _gather(self, order: list[int], shape: list[int], result: list[int]) -> None:
        sides, rank = len(result), len(shape)
        parts = ", ".join(f"%r{dim}" for dim in order)
        kinds = ", ".join([tensor([*result, 1])] * rank)
        start = tensor([*result, rank])
        self.lines += [
            f"%s = stablehlo.concatenate {parts}, dim = {sides} : ({kinds}) -> {start}",
            '%y = "stablehlo.gather"(%x, %s) <{dimension_numbers = #stablehlo.gather<'
            f"collapsed_slice_dims = {list(range(rank))}, start_index_map = {order}, "
            f"index_vector_dim = {sides}>, slice_sizes = array<i64: {', '.join('1' * rank)}>}}>"
            f" : ({tensor(shape, 'f32')}, {start}) -> {tensor(result, 'f32')}",
        ]
        self.kind = tensor(result, "f32")

    def __str__(self) -> str:
        head = f"func.func @main({', '.join(self.parameters)}) -> {self.kind} {{"
        return "\n".join([head, *self.lines, f"return %y : {self.kind}", "}"])


def tensor(shape: list[int] | tuple, element: str = "i64") -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


@pytest.mark.parametrize("seed", range(24))
def test_random_gather(seed: int) -> None:
    program = Program(seed)
    exe = stepwell.compile(str(program), threads=1)
    np.testing.assert_array_equal(exe(*program.arguments)[0], program.want)
