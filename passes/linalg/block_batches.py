"""`block-batches`: run layers whose activations no cache holds on a few images of the batch at a
time, one layer after the other, before the next images.

    %y = stablehlo.convolution(%x, %w) .. : (tensor<8x56x56x64xf32>, ..) -> tensor<8x56x56x256xf32>
    %z = stablehlo.convolution(%y, %v) .. : .. -> tensor<8x56x56x64xf32>
      ->  %z = stablehlo.while(%i = 0, %out = tensor.empty()) cond { %i < 8 } do {
            %part = stablehlo.dynamic_slice %x, %i, .., sizes = [1, 56, 56, 64]
            %1 = stablehlo.convolution(%part, %w) .. -> tensor<1x56x56x256xf32>
            %2 = stablehlo.convolution(%1, %v) .. -> tensor<1x56x56x64xf32>
            %next = stablehlo.dynamic_update_slice %out, %2, %i, ..
            stablehlo.return %i + 1, %next
          }

What one layer writes is then still in the cache when the next one reads it; but weights that no
cache holds are read once for every part of the batch. So the first layers of a network, of large
images and few channels, go in parts, and the last ones do not. Where to cut, and how many images
at a time, is estimated from the computing and the bytes that move to and from memory.

With several threads, each has images of its own (`stepwell.parts` on the loop), so that none waits
for another from the first layer to the last: threads that share each layer wait at its end, and for
what another one's cache holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from stepwell.attributes import PARTS, i64_array
from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.open_sizes import EXTENTS
from stepwell.kernels.cpu.winograd_shape import FILTERS, TILES
from stepwell.kernels.structured import defining_op
from stepwell.mlir import dialect, ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._batch_rules import batched_operands, on_part
from stepwell.passes.linalg._captured import captured
from stepwell.passes.stablehlo._values import (
    ELEMENTWISE,
    integers,
    optional_integers,
    producer,
    rebuild,
    splat,
)
from stepwell.targets import Target

tensor = dialect("tensor")

_WRITE = 2
"""How often memory is touched for a byte that is written: it is read first."""

_COPY = 0.5
"""What copying a byte takes that lies in the cache, beside reading one from memory."""

_SHARING = 0.06
"""What it takes more, of a layer's computing, if threads share it."""

_EXPOSED = 0.5
"""How much of the time that results take to and from memory, computing does not hide."""

_ITERATION = 4000
"""Cycles that an iteration takes beside its layers: for the kernels that cut its images out of the
batch and put the results in their place."""

_LEAST_GAIN, _CUT = 0.02, 0.01
"""What a division has to gain, and each place costs where it changes, beside the whole time."""

_FIRST = ("stablehlo.convolution", "stablehlo.dot_general", "stablehlo.reduce_window")
"""Operations that begin a kernel."""

_TRANSFORMING, _SMALL = 1.6, 3
"""How many times its multiplications Winograd's algorithm takes, and the terms of filters that have
larger tiles."""


@dataclass(frozen=True)
class BlockBatches(Pass):
    """Look at the convolutions of a function's body, and at what hangs together with them."""

    name: ClassVar[str] = "block-batches"
    anchor: ClassVar[str] = "func.func"
    cache_bytes: int | None = None
    """What stays in the cache from one layer to the next; by default of the target."""

    threads: int | None = None
    """How many there are; by default those that the model is compiled for."""

    def run(self, op: ir.Operation, state: State) -> None:
        if not len(op.regions[0].blocks) or EXTENTS in op.attributes:
            return  # of an open batch, few images may be in use
        cache = self.cache_bytes or state.target.l3_bytes // 2
        chains = list(_chains(op.regions[0].blocks[0]))
        threads = self.threads or state.threads
        divisions = [_fastest(chain, cache, state.target, threads) for chain in chains]
        for chain, division in zip(chains, divisions, strict=True):
            for part in division:
                if part.images < chain.batch:
                    _in_parts(chain.layers[part.begin : part.end], chain.batch, part)


@dataclass
class _Layer:
    """An operation on a batch, and what the choice where to cut has to know of it."""

    op: ir.Operation
    batched: list[int]
    """Numbers of the operands that hold the batch."""

    sources: set[int]
    """The layers among them, by their number in the chain."""

    outside: list[ir.Value]
    """The others, but for those that are the same for every image."""

    bytes: int
    """Of the result."""

    weights: int
    """Bytes that are read for every part of the batch."""

    work: float
    """Multiply-adds."""

    readers: list[int] = field(default_factory=list)
    is_read_outside: bool = False
    is_stored: bool = True
    """Whether the result lies in memory or a cache; else the kernel goes on with it."""


@dataclass
class _Chain:
    """Layers in their order, with nothing between them that reads what one of them makes."""

    batch: int
    layers: list[_Layer] = field(default_factory=list)


def _chains(block: ir.Block) -> Iterator[_Chain]:
    """The layers of the block that depend on the image of a convolution. Where another operation
    reads one of them, a chain ends."""
    operations = [child.operation for child in block.operations]
    convolutions = [op for op in operations if _batch_of(op)]
    if not convolutions:
        return
    batch = _batch_of(convolutions[0])
    images = {_source(op.operands[0], batch) for op in convolutions if _batch_of(op) == batch}
    chain, numbers = _Chain(batch), {}
    for op in operations:
        batched = batched_operands(op, batch)
        if any(op.operands[n] in images for n in batched):
            images.add(op.results[0])
            chain.layers.append(_layer(op, batched, numbers))
            numbers[op.results[0]] = len(numbers)
        elif chain.layers and any(value in images for value in (*op.operands, *captured(op))):
            yield _with_readers(chain)
            chain, numbers = _Chain(batch), {}
    if chain.layers:
        yield _with_readers(chain)


def _batch_of(op: ir.Operation) -> int:
    """The batch of a convolution of more than one image, 0 of anything else."""
    if op.name != "stablehlo.convolution":
        return 0
    batch = hlo.shape(op.operands[0])[0]
    return batch if batch > 1 and batched_operands(op, batch) else 0


def _source(value: ir.Value, batch: int) -> ir.Value:
    """What `value` is made from along the first operands that hold the batch."""
    while (op := defining_op(value)) is not None and (numbers := batched_operands(op, batch)):
        value = op.operands[numbers[0]]
    return value


def _layer(op: ir.Operation, batched: list[int], numbers: dict[ir.Value, int]) -> _Layer:
    read = {op.operands[n] for n in batched}
    whole = sum(_bytes(value) for n, value in enumerate(op.operands) if n not in batched)
    return _Layer(
        op,
        batched,
        {numbers[value] for value in read if value in numbers},
        [value for value in read if value not in numbers and not _is_repeated(value)],
        _bytes(op.results[0]),
        round(whole * _winograd(op)[0]),
        _work(op),
    )


def _with_readers(chain: _Chain) -> _Chain:
    layers = chain.layers
    for number, layer in enumerate(layers):
        for source in layer.sources:
            layers[source].readers.append(number)
    within = {layer.op for layer in layers}
    for number, layer in enumerate(layers):
        uses = layer.op.results[0].uses
        layer.is_read_outside = any(use.owner.operation not in within for use in uses)
        if not layer.is_read_outside and len(layer.readers) == 1:
            reader = layers[layer.readers[0]]
            elementwise = reader.op.name.removeprefix("stablehlo.") in ELEMENTWISE
            layer.is_stored = not (elementwise and max(reader.sources) == number)
    return chain


def _work(op: ir.Operation) -> float:
    count = math.prod(hlo.shape(op.results[0]))
    if op.name == "stablehlo.convolution":
        numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        filters = hlo.shape(op.operands[1])
        sums = math.prod(filters) // filters[numbers.kernel_output_feature_dimension]
        return count * sums * _winograd(op)[1]
    if op.name == "stablehlo.dot_general":
        lhs, rhs = (math.prod(hlo.shape(operand)) for operand in op.operands)
        return math.sqrt(lhs * rhs * count)
    if op.name == "stablehlo.reduce_window":
        return count * math.prod(integers(op, "window_dimensions"))
    return count if op.name.removeprefix("stablehlo.") in ELEMENTWISE else 0


def _winograd(op: ir.Operation) -> tuple[float, float]:
    """How many times larger the filters of a convolution become by Winograd's transform, and the
    part of its time that is left, if it may be computed so; else 1 and 1."""
    if op.name != "stablehlo.convolution":
        return 1, 1
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    filters = hlo.shape(op.operands[1])
    spatial = [filters[d] for d in numbers.kernel_spatial_dimensions]
    strides = optional_integers(op, "window_strides", len(spatial), 1)
    sides = [size for size in spatial[-2:] if size in FILTERS]
    if filters[numbers.kernel_input_feature_dimension] == 1 or set(strides) != {1} or not sides:
        return 1, 1
    tiles = [max(TILES) if size <= _SMALL else min(TILES) for size in sides]
    windows = math.prod(tile + size - 1 for tile, size in zip(tiles, sides, strict=True))
    products = windows / math.prod(tiles) / math.prod(sides)
    return windows / math.prod(sides), min(1, _TRANSFORMING * products)


def _is_repeated(value: ir.Value) -> bool:
    """Whether `value` is one number, or holds the same for every image."""
    if splat(value) is not None:
        return True
    op = producer(value, "broadcast_in_dim")
    return op is not None and 0 not in integers(op, "broadcast_dimensions")


def _bytes(value: ir.Value) -> int:
    return math.prod(hlo.shape(value)) * hlo.dtype(value).itemsize


# --- Where to cut ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """Layers `begin` to `end` (exclusive), on so many images at a time, by each of so many threads
    that have images of their own."""

    begin: int
    end: int
    images: int
    threads: int = 1


def _fastest(chain: _Chain, cache: int, target: Target, threads: int) -> list[_Part]:
    """The division of the chain that takes the least time; none where it gains little."""
    batch = chain.batch
    least = min(batch, max(1, threads // 4))  # one image is little work for many threads to share
    options = [(n, 1) for n in range(least, batch + 1) if batch % n == 0]
    if threads > 1 and batch % threads == 0:
        share = batch // threads
        options += [(n, threads) for n in range(1, share + 1) if share % n == 0]
    whole = _Part(0, 0, batch)
    *_, (_, together) = _times(chain, whole, cache, target, threads)
    best: dict[int, tuple[float, list[_Part]]] = {0: (0.0, [])}
    for begin in range(len(chain.layers)):
        if begin not in best:
            continue
        time, parts = best[begin]
        time += _CUT * together * bool(begin)
        for images, apart in options:
            part = _Part(begin, begin, images, apart)
            for end, more in _times(chain, part, cache, target, threads):
                if end not in best or time + more < best[end][0]:
                    best[end] = time + more, [*parts, replace(part, end=end)]
    time, parts = best[len(chain.layers)]
    return parts if time < (1 - _LEAST_GAIN) * together else []


def _times(
    chain: _Chain, part: _Part, cache: int, target: Target, threads: int
) -> Iterator[tuple[int, float]]:
    """For each layer after the first of `part` before which one may cut: its number, and how long
    the layers up to it take, in cycles."""
    rate = threads * target.reading(0, threads).memory_rate
    sharing = 1 + _SHARING * (part.threads < threads)
    iterations = chain.batch // part.images
    start = _ITERATION * iterations / part.threads if iterations > 1 else 0.0
    once = each = start  # with weights that are read once, and for each part of the batch
    done = part.begin
    for end, moved, weights in _traffic(chain, part.begin, part.images, cache // part.threads):
        for layer in chain.layers[done:end]:
            computing = layer.work / target.vector_lanes / threads * sharing
            reading = layer.weights / rate
            for_each = reading * iterations
            once += max(computing, reading) + target.waiting * min(computing, reading)
            each += max(computing, for_each) + target.waiting * min(computing, for_each)
        done = end
        stays = weights <= cache // part.threads
        yield end, (once if stays else each) + _EXPOSED * moved / rate


def _traffic(
    chain: _Chain, begin: int, images: int, cache: int
) -> Iterator[tuple[int, float, float]]:
    """For each layer after `begin` before which one may cut: its number, the bytes of results that
    the layers up to it move to and from memory, so many images at a time, and those of weights.

    A result is still in the cache where no more than `cache` bytes were written, and read as
    weights, since it was written or read last."""
    layers, parts = chain.layers, chain.batch // images
    copied = _COPY if parts > 1 else 0.0
    weights = moved = 0.0
    written = 0.0  # results and weights up to here, of one part
    touched: dict[int, float] = {}  # when, in these bytes, a result was touched last
    unread: dict[int, int] = {}  # how many layers further on read a result
    evicted: set[int] = set()
    known: set[ir.Value | int] = set()
    for number in range(begin, len(layers)):
        layer = layers[number]
        for value in layer.outside:
            if value not in known:
                known.add(value)
                moved += _bytes(value) * (1 + copied)
        for source in layer.sources:
            size = layers[source].bytes
            if source not in touched:  # of an earlier part
                moved += size * (1 + copied)
            elif layers[source].is_stored and written - touched[source] > cache:
                moved += size * (1 if source in evicted else 1 + _WRITE)
                evicted.add(source)
            touched[source] = written
            if source in unread:
                unread[source] -= 1
                if not unread[source] and not layers[source].is_read_outside:
                    del unread[source]
        weights += layer.weights
        touched[number] = written
        written += layer.weights + layer.bytes / parts * layer.is_stored
        unread[number] = len(layer.readers)
        end = number + 1
        if end == len(layers) or _begins_kernel(layers[end]):
            left = sum(layers[n].bytes * (_WRITE * (n not in evicted) + copied) for n in unread)
            yield end, moved + left, weights


def _begins_kernel(layer: _Layer) -> bool:
    """Whether what stands before `layer` may end a kernel."""
    return layer.op.name in _FIRST


# --- The loop -------------------------------------------------------------------------------------


def _in_parts(layers: Sequence[_Layer], batch: int, division: _Part) -> None:
    """Replace `layers` by a loop that runs them on some images of the batch at a time."""
    images, threads = division.images, division.threads
    within = {layer.op for layer in layers}
    results = [layer.op.results[0] for layer in layers]
    outputs = [v for v in results if any(u.owner.operation not in within for u in v.uses)]
    last = layers[-1].op
    with ir.InsertionPoint(last), last.location:
        zero, step, end = (hlo.full(n, [], np.int32) for n in (0, images, batch))
        parts = {
            value: part
            for layer in layers
            for value in (layer.op.operands[n] for n in layer.batched)
            if (part := _repeated_part(value, images)) is not None
        }

        def body(begin: ir.Value, *results: ir.Value) -> list[ir.Value]:
            made = dict(parts)

            def place(value: ir.Value) -> list[ir.Value]:
                return [begin, *[zero] * (len(hlo.shape(value)) - 1)]

            for layer in layers:
                operands = list(layer.op.operands)
                with layer.op.location:
                    for number in layer.batched:
                        value = operands[number]
                        if value not in made:
                            sizes = [images, *hlo.shape(value)[1:]]
                            made[value] = hlo.dynamic_slice(value, place(value), sizes)
                        operands[number] = made[value]
                    made[layer.op.results[0]] = on_part(layer.op, operands, images)
            updated = [
                hlo.dynamic_update_slice(result, made[value], place(value))
                for result, value in zip(results, outputs, strict=True)
            ]
            return [hlo.add(begin, step), *updated]

        empty = [tensor.EmptyOp(list(hlo.shape(v)), hlo.element_type(v)).result for v in outputs]
        _, *results = hlo.while_loop(
            [zero, *empty], lambda begin, *_: hlo.compare(begin, end, "LT"), body
        )
        if threads > 1:
            marks = [threads, batch // images // threads, images]
            results[0].owner.attributes[PARTS] = i64_array(marks)
    for value, result in zip(outputs, results, strict=True):
        value.replace_all_uses_with(result)
    for layer in reversed(layers):
        layer.op.erase()


def _repeated_part(value: ir.Value, images: int) -> ir.Value | None:
    """What holds the same for every image, for so many images."""
    shape = (images, *hlo.shape(value)[1:])
    number = splat(value)
    if number is not None:
        return hlo.full(number, shape, hlo.dtype(value))
    op = producer(value, "broadcast_in_dim")
    if op is None or 0 in integers(op, "broadcast_dimensions"):
        return None
    return rebuild(op, list(op.operands), shape)
