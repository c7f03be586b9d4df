"""How a contraction is tiled and blocked: its strategy, chosen by a cost model of the target.

Blocking: with a small rhs (it fits half of L2) a block of rows meets all panels; else a block is as
many rows as keep it in half of L2. Then all blocks meet a panel before they meet the next, or each
block meets all panels: the lhs is read once a panel, or the rhs once a block. Few rows meet panel
after panel as well, each asked for while they meet the one before.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stepwell.kernels.cpu import halo
from stepwell.kernels.evaluate import slice_source
from stepwell.kernels.index import Index, Variable, apply_map
from stepwell.kernels.slices import slices_behind
from stepwell.kernels.structured import (
    Structured,
    defining_op,
    element_type,
    elements,
    map_dims,
    shape_of,
)
from stepwell.kernels.used_elements import needed_layout
from stepwell.kernels.widened_weights import WidenedWeights
from stepwell.mlir import ir
from stepwell.open_dimensions import is_open
from stepwell.packing import WORD_CODES
from stepwell.targets import Target

SMALL_BYTES = "kernel.small_bytes"
"""Marks a product of unsigned bytes by signed ones that are so small that two of its terms fit 16
bits."""

LARGEST_SMALL = 64
"""Of those signed bytes: 2 * 64 * 255 has 16 bits."""

PARTIAL_SUM, SHORTEST_PARTIAL = 256, 16
"""Longest sum that is taken in one chain, and shortest that is worth summing apart."""

BYTES, SHORTS, BFLOATS = 4, 2, 2
"""Terms of a word of bytes, and of one of integers or floats of 16 bits."""

GATHERED_BYTES, GATHERING_TILES, WIDENING_TILES = 640 << 10, 8, 2
"""Largest panel that is copied to scratch, and how many row tiles have to share it; one that is
widened so."""

_L1_WAYS, _L1_WAY_BYTES = 8, 4096
"""Associativity of the first level of the cache, and the bytes of one way."""

_UNROLLED = 48
"""Multiply-adds of an iteration at most."""

_SCATTERED, _SCATTERED_COST = 6, 1.03
"""Most rows of a tile that lie at no constant distance, each of which takes a register for its
address; and what that costs."""

_MOST_WAITING, _SHORTEST_APART, _LEAST_APART = 0.8, 64, 4
"""Where passes over the rhs take more than that part of the multiply-adds' time, and chains are so
long, they are summed apart, of so many tiles of rows at least, if there are."""

SHORT_CHAIN = 64
"""Terms that are a chain of their own at least, as a rule."""

_MOST_COLUMNS = 8
"""Columns of a register tile whose vectors lie along the terms."""

_JOINED = 4.0
"""What adding up the parts of one of its sums takes."""

_ADDED, _SPILLED = 1.0, 3.0
"""What adding a chain's sum to the others takes, with registers for both and without."""

TURN = WORD_CODES
"""Terms of widened weights that one of several sums takes before the next one does: those of a
word, if any are."""

ASKING_STEPS = 32
ASKING_EXTENTS = range(ASKING_STEPS, 257)
"""The lines of a tile's results are asked for in the first steps of its sum. With fewer steps they
come too late, with more than the range holds they are a small part of the tile's time."""


_WIDENED, _COPIED = 1.4, 3.6
"""Multiply-adds that a vector of weights takes to be widened, where all rows that there are use it,
and to be copied for several tiles of rows besides."""

_COLD = 0.05
"""Where reading the weights once takes more than that part of the multiply-adds' time, a panel is
asked for while the one before is multiplied."""

_PARTS = (0.55, 0.7, 0.85, 1.0)
"""Of a capacity: sizes that code for any size meets as often as others."""

_GAIN, _LEAST_TASKS = 2, 16
"""All panels at once have to save so many times what they cost; and there are at least so many
tasks, of about the same size, for threads to share."""


@dataclass(frozen=True)
class ContractionStrategy:
    """Every choice of a contraction kernel.

    `box` is the register tile's extent in the last two m dimensions, `vectors` its vectors in n;
    `row_tiles` tiles of rows and `panels` panels make one task; `merge_rows` walks all m dimensions
    as one; `ask_results` and `ask_panels` prefetch what a tile writes and the panel that comes
    next, or what follows of weights that are widened; `ask_rows` the rows of the next task. With
    `apart`, the chains that a long sum is taken in are loops around the tiles of a block; of those
    of one tile, `chains` are summed side by side. With `panels_first`, all of a batch meet a panel
    before they meet the next: neighbours may read the same one. An instruction adds `terms`
    products to each sum; with more than that, it has as many parts of a sum of one row and column,
    which are added up at the end, and `vectors` are columns.
    """

    box: tuple[int, int]
    vectors: int
    row_tiles: int
    panels: int
    merge_rows: bool
    ask_results: bool = False
    ask_panels: bool = False
    ask_rows: bool = False
    apart: bool = False
    panels_first: bool = False
    chains: int = 1
    terms: int = 1

    @property
    def along(self) -> bool:
        """Whether vectors lie along the terms."""
        return self.terms > BYTES

    def columns(self, lanes: int) -> int:
        """Columns of a panel."""
        return self.vectors if self.along else self.vectors * lanes

    def to_attribute(self) -> ir.Attribute:
        """As a dictionary attribute, to stand on a kernel function."""
        flags = ", ".join(f"{name} = {str(getattr(self, name)).lower()}" for name in _FLAGS)
        return ir.Attribute.parse(
            f"{{box = array<i64: {self.box[0]}, {self.box[1]}>, vectors = {self.vectors} : i64, "
            f"row_tiles = {self.row_tiles} : i64, panels = {self.panels} : i64, "
            f"chains = {self.chains} : i64, terms = {self.terms} : i64, {flags}}}"
        )

    @staticmethod
    def from_attribute(attribute: ir.Attribute) -> ContractionStrategy:
        """The inverse of `to_attribute`; flags that are left out are off, `chains` and `terms`
        then 1."""
        entries = ir.DictAttr(attribute)
        number = {
            name: ir.IntegerAttr(entries[name]).value
            for name in ("vectors", "row_tiles", "panels", "chains", "terms")
            if name in entries
        }
        flags = {n: n in entries and ir.BoolAttr(entries[n]).value for n in _FLAGS}
        low, high = list(entries["box"])
        return ContractionStrategy((low, high), **number, **flags)


_FLAGS = ("merge_rows", "ask_results", "ask_panels", "ask_rows", "apart", "panels_first")


@dataclass(frozen=True)
class ContractionShape:
    """The loops of a contraction by role: positions in the op's iteration space, and extents.

    Where an instruction takes `terms` products, they make one word, and the last reduced extent
    counts words: like a number of f32, one has four bytes. Sums of integers are `exact`. Words that
    are multiplied by one instruction and added by another are `unfused`. Words of more terms than
    an instruction adds lie `along` a vector, with a sum for each of them.
    """

    lhs: int
    rhs: int
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    column: int
    reduced: tuple[int, ...]
    sizes: tuple[int, ...]
    terms: int = 1
    exact: bool = False
    unfused: bool = False
    widened: bool = False
    rhs_bytes: float = 4.0
    block: int = 0

    @staticmethod
    def of(op: Structured, operands: tuple[int, int], terms: int = 1) -> ContractionShape:
        """Sort the loops of `op`; dimensions of the output that only the rhs has, beside the last,
        count as batch dimensions."""
        lhs, rhs = operands
        in_lhs, in_rhs = map_dims(op.maps[lhs]), map_dims(op.maps[rhs])
        output = [e.position for e in op.output_map.results]
        column = output[-1]
        rows = tuple(d for d in output if d in in_lhs and d not in in_rhs)
        batch = tuple(d for d in output if d != column and d not in rows)
        reduced = tuple(i for i, kind in enumerate(op.iterators) if kind == "reduction")
        sizes = op.loop_sizes()
        if terms > 1:
            sizes[reduced[-1]] //= terms
        exact = isinstance(element_type(op.op.results[0]), ir.IntegerType)
        unfused = exact and (terms == SHORTS or (terms > 1 and SMALL_BYTES in op.op.attributes))
        shape = ContractionShape(
            lhs, rhs, batch, rows, column, reduced, tuple(sizes), terms, exact, unfused
        )
        narrow = WidenedWeights.of(op.inputs[rhs])
        if narrow is None:
            return shape
        block = narrow.block if narrow.scales is not None else 0
        return dataclasses.replace(
            shape,
            widened=True,
            rhs_bytes=narrow.bytes,
            block=block if block and chains_of_block(block) else 0,
        )

    @property
    def chain(self) -> int:
        """Terms of a chain of widened weights: within a block, where chains are scaled."""
        size = self.sizes[self.reduced[0]]
        return next(iter(chains_of_block(self.block or size)), size)

    @property
    def along(self) -> bool:
        """Whether words are vectors."""
        return self.terms > BYTES

    def lanes(self, target: Target) -> int:
        """Columns that a vector has sums of."""
        return 1 if self.along else target.vector_lanes

    @property
    def word_bytes(self) -> int:
        """Bytes of what a step reads of a row."""
        return 4 * self.terms if self.along else 4

    def extent(self, dims: tuple[int, ...]) -> int:
        return math.prod(self.sizes[d] for d in dims)

    @property
    def m(self) -> int:
        return self.extent(self.rows)

    @property
    def n(self) -> int:
        return self.sizes[self.column]

    @property
    def k(self) -> int:
        return self.extent(self.reduced)


def rows_merge(op: Structured, shape: ContractionShape) -> bool:
    """Whether all m dimensions can be walked as one: the lhs is as contiguous in them as the output
    (a matrix product, a 1x1 convolution of stride 1)."""
    if len(shape.rows) < 2:
        return True
    flat, dims = flat_lhs(op, shape)
    stride = None
    for position in reversed(shape.rows):
        if shape.sizes[position] == 1:
            continue
        step = flat.coefficient(dims[position])
        if stride is not None and step != stride:
            return False
        stride = step * shape.sizes[position]
    return True


def has_unneeded_rows(op: Structured, shape: ContractionShape) -> bool:
    """Whether rows are left out between others, as those at the end of each row of an image."""
    layout = needed_layout(op.op)
    walked = [d for d in shape.rows if shape.sizes[d] != 1]
    places = [expression.position for expression in op.output_map.results]
    parts = [d for d, dimension in zip(places, layout, strict=False) if is_open(dimension)]
    return any(d in parts for d in walked[1:])


def flat_lhs(op: Structured, shape: ContractionShape) -> tuple[Index, list[Variable]]:
    """The element of the lhs that a point of the iteration space reads, and that space's loops."""
    dims = [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(shape.sizes)]
    point = [Index.of(d) for d in dims]
    lhs, indices = op.inputs[shape.lhs], apply_map(op.maps[shape.lhs], point)
    while (part := defining_op(lhs)) is not None and part.name == "tensor.extract_slice":
        lhs, indices = part.operands[0], slice_source(part, indices)
    flat = Index()
    for index, size in zip(indices, shape_of(lhs), strict=True):
        flat = flat * size + index
    return flat, dims


def _rows_in_l1(op: Structured, shape: ContractionShape) -> int:
    """How many rows of the lhs, neighbours in the last row dimension, do not push one another out
    of L1: rows a power of two apart share its sets."""
    flat, dims = flat_lhs(op, shape)
    if not shape.rows:
        return _L1_WAYS
    stride = shape.word_bytes // shape.terms * flat.coefficient(dims[shape.rows[-1]])
    return _L1_WAYS * (_L1_WAY_BYTES // math.gcd(stride, _L1_WAY_BYTES) if stride else 1)


def is_packed(op: Structured, shape: ContractionShape) -> bool:
    """Whether the rhs is stored in panels: its last index is the column modulo the panel."""
    last = list(op.maps[shape.rhs].results)[-1]
    return not isinstance(last, ir.AffineDimExpr | ir.AffineConstantExpr) and "mod" in str(last)


def choose(
    op: Structured, shape: ContractionShape, target: Target, packed: bool
) -> ContractionStrategy:
    """The strategy with the least estimated time on `target` (deterministic)."""
    return with_tile(_best_tile(op, shape, target), op, shape, target, packed)


def with_tile(
    tile: Tile, op: Structured, shape: ContractionShape, target: Target, packed: bool
) -> ContractionStrategy:
    """How the cost model blocks a register tile."""
    flat, box, vectors, _ = tile
    strategy = ContractionStrategy(box, vectors, 1, 1, flat, terms=shape.terms)
    word = shape.word_bytes
    lhs = word * elements(op.inputs[shape.lhs]) // shape.terms
    strategy = _block(strategy, shape, target, packed, min(lhs, word * shape.m * shape.k))
    shares = slices_behind(op.inputs[shape.rhs]) is not None and lhs <= target.l3_bytes // 2
    return dataclasses.replace(strategy, panels_first=shares)


def estimated_time(op: Structured, shape: ContractionShape, target: Target) -> float:
    """Of the best strategy on one core, in vector multiply-adds; the rhs comes from memory."""
    *_, cost = _best_tile(op, shape, target)
    products = shape.extent(shape.batch) * shape.m * shape.n * shape.k * cost
    if shape.terms == BFLOATS and not shape.exact:
        products /= target.bfloat_rate
    weights = shape.word_bytes * shape.extent(shape.batch) * shape.n * shape.k / target.memory_rate
    return max(products, weights) + target.waiting * min(products, weights)


Tile = tuple[bool, tuple[int, int], int, float]
"""Whether the rows are walked as one, box, vectors, cost."""


def _best_tile(op: Structured, shape: ContractionShape, target: Target) -> Tile:
    """The cheapest register tile; of equal ones, the first."""
    best: Tile = (True, (1, 1), 1, math.inf)
    for tile in register_tiles(op, shape, target):
        if tile[-1] < best[-1] - 1e-9:
            best = tile
    return best


def register_tiles(op: Structured, shape: ContractionShape, target: Target) -> Iterator[Tile]:
    """All register tiles that the target has registers for, and the op rows."""
    merge, windows = rows_merge(op, shape), halo.windows(op, shape)
    is_part = has_unneeded_rows(op, shape)
    walks = (False,) if is_part else (True,) if merge else (False, True)
    for flat in walks:
        m_sizes = [shape.m] if flat else [shape.sizes[d] for d in shape.rows]
        last = m_sizes[-1] if m_sizes else 1
        before = m_sizes[-2] if len(m_sizes) > 1 else 1
        parts = _PARTS if is_part else (1.0,)
        needed = [(math.ceil(before * part), math.ceil(last * part)) for part in parts]
        most_rows = _L1_WAYS if merge else _SCATTERED if flat else min(14, _rows_in_l1(op, shape))
        for vectors in range(1, 1 + min(shape.n, _MOST_COLUMNS) if shape.along else 5):
            for rows in range(1, most_rows + 1):
                if not fits_registers(rows, vectors, target, shape.unfused) or rows > last:
                    continue
                boxes = [(1, rows)]
                if rows == last and before > 1:
                    boxes += [
                        (h, rows)
                        for h in range(2, min(8, before, 14 // rows) + 1)
                        if fits_registers(h * rows, vectors, target, shape.unfused)
                    ]
                for box in boxes:
                    used = (1.0, 1.0) if flat else halo.used_parts(windows, shape, box)
                    cost = statistics.mean(
                        tile_cost(box, vectors, last, before, shape, target, used, part)
                        for part in needed
                    )
                    if flat and not merge:
                        cost *= _SCATTERED_COST
                    yield flat, box, vectors, cost


def fits_registers(rows: int, vectors: int, target: Target, unfused: bool = False) -> bool:
    """Whether a register tile's sums, a vector of each column and one of the lhs have registers,
    and, if it is `unfused`, products and what multiplies them. Where several steps make an
    iteration, LLVM loads up to four vectors together."""
    sums = rows * vectors
    loaded = max(vectors, 4) if steps_at_once(sums, unfused) > 1 else vectors
    return sums + loaded + (3 if unfused else 1) <= target.vector_registers


def tile_cost(
    box: tuple[int, int],
    vectors: int,
    last: int,
    before: int,
    shape: ContractionShape,
    target: Target,
    used: tuple[float, float] = (1.0, 1.0),
    needed: tuple[int, int] | None = None,
) -> float:
    """Cycles per useful multiply-add, up to a factor: waste at the edges, and per step of k the
    larger of multiply-adds (never fewer than their latency) and loads, plus a little overhead.
    `used` are the parts of the steps that whole tiles take, and those at the end of a row; `needed`
    are the first rows of `before` and of `last` of which anything is needed. Vectors of a panel
    that is larger than L1 come from L2; those of one that L2 cannot hold beside the next, from
    further away."""
    columns = vectors * shape.lanes(target)
    panel_bytes = shape.k * columns * shape.word_bytes
    load = target.l2_load if panel_bytes > target.l1_bytes // 2 else 1.0
    if 2 * panel_bytes > target.l2_bytes * 3 // 4:
        load = target.far_load

    def step(rows: int) -> float:
        time = step_time(rows, vectors, target, load) + 0.02 * rows + 0.35
        adding = _adding_time(rows * vectors, shape, target)
        if shape.along:
            adding += _JOINED * rows * vectors
        return time + adding / shape.k

    some, many = needed or (before, last)
    down, across = math.ceil(some / box[0]), math.ceil(many / box[1])
    whole, tail = divmod(last, box[1])
    panels = math.ceil(shape.n / columns)
    cycles = down * min(across, whole) * step(box[0] * box[1]) * used[0]
    if across > whole:
        cycles += down * step(box[0] * tail) * used[1]
    if shape.widened:
        cycles += vectors * (_WIDENED if down * across == 1 else _COPIED)
    return panels * cycles / (some * many * shape.n)


def _adding_time(sums: int, shape: ContractionShape, target: Target) -> float:
    """Of the chains of a register tile's sums, to one another."""
    extents = [shape.sizes[d] for d in shape.reduced]
    return adding_time(sums, extents, target, exact=shape.exact)


def adding_time(sums: int, extents: list[int], target: Target, *, exact: bool = False) -> float:
    """Of the chains of so many sums of a register tile, over terms of these extents."""
    levels = summation_levels(extents, exact=exact)
    chains = math.prod(size for _, size, _, apart in levels if apart)
    chains = min(chains, math.ceil(math.prod(extents) / SHORT_CHAIN))
    return sums * (chains - 1) * (_ADDED if 2 * sums < target.vector_registers else _SPILLED)


def step_time(rows: int, vectors: int, target: Target, load: float = 1.0) -> float:
    """Of a step of k of a register tile, the larger of its multiply-adds, never fewer than hide
    their latency, and its loads, of which a vector of the panel takes the time `load`."""
    loads = rows * target.broadcast_time + vectors * load
    return max(rows * vectors, target.in_flight, loads)


def _block(
    strategy: ContractionStrategy,
    shape: ContractionShape,
    target: Target,
    packed: bool,
    lhs_bytes: int,
) -> ContractionStrategy:
    """Fill in how many row tiles and panels a task takes."""
    gathered = _block_gathered(strategy, shape, target)
    apart = row_tiles_apart(strategy, shape, target) if shape.widened else 0
    if apart >= WIDENING_TILES:
        return dataclasses.replace(strategy, row_tiles=apart, panels=1, apart=True)
    in_place = packed and not shape.widened
    if not in_place and gathers_panels(shape, gathered, target.vector_lanes):
        return gathered
    half = target.l2_bytes // 2
    rows = strategy.box[0] * strategy.box[1]
    row_tiles = math.ceil(shape.m / rows)
    columns = strategy.columns(target.vector_lanes)
    panels = math.ceil(shape.n / columns)
    rhs_bytes = int(shape.k * panels * columns * shape.rhs_bytes * shape.word_bytes / 4)
    lhs_tile_bytes = rows * shape.k * shape.word_bytes
    cold = packed and row_tiles > 1 and _is_cold(strategy, shape, target, lhs_bytes)
    if cold and rhs_bytes <= half:
        taken = _even_blocks(row_tiles, row_tiles, panels * shape.extent(shape.batch))
        return dataclasses.replace(strategy, row_tiles=taken, ask_panels=True)
    writes = shape.m * shape.n * shape.extent(shape.batch) * 4
    if rhs_bytes <= half or not packed:
        taken, width = 1, panels
        in_order = packed and writes > half  # results that go further than L2
        while not in_order and row_tiles // taken > 64:
            taken *= 2
        if row_tiles // taken < 8:
            width = max(1, panels // max(1, 8 // max(row_tiles, 1)))
    else:
        taken, width = max(1, min(row_tiles, half // max(lhs_tile_bytes, 1))), 1
    if not strategy.merge_rows:
        taken = 1 if rhs_bytes <= half else taken
    streams = packed and rhs_bytes > half
    share = taken if shape.k * columns * shape.word_bytes <= half else 1  # tiles that a panel meets
    passes = math.ceil(row_tiles / share) * rhs_bytes / target.memory_rate
    products = shape.m * shape.n * shape.k / shape.lanes(target)
    if streams and not shape.along and passes > _MOST_WAITING * products:
        apart = row_tiles_apart(strategy, shape, target)
        if apart > share:
            return dataclasses.replace(strategy, row_tiles=apart, panels=1, apart=True)
    blocks = math.ceil(row_tiles / taken)
    lhs_again = (panels - 1) * _read_time(lhs_bytes, target)
    rhs_again = (blocks - 1) * _read_time(rhs_bytes, target)
    if streams and lhs_again > _GAIN * rhs_again:
        width = math.ceil(panels / math.ceil(_LEAST_TASKS / blocks))
    if streams:
        groups = math.ceil(panels / width) * shape.extent(shape.batch)
        taken = _even_blocks(row_tiles, taken, groups)
    return dataclasses.replace(
        strategy,
        row_tiles=taken,
        panels=width,
        ask_results=(
            strategy.merge_rows and shape.terms == 1 and writes > half and shape.k in ASKING_EXTENTS
        ),
        ask_panels=streams and (taken > 1 or shape.widened),
        ask_rows=(
            in_place
            and rhs_bytes <= half < lhs_bytes
            and shape.k > shape.n
            and reads_whole_rows(strategy, shape)
        ),
        chains=_chains(strategy, shape, target, streams) if row_tiles == 1 else 1,
    )


def reads_whole_rows(strategy: ContractionStrategy, shape: ContractionShape) -> bool:
    """Whether the terms of a sum lie side by side in the lhs, and rows are walked as one."""
    one = all(shape.sizes[d] == 1 for d in shape.reduced[:-1])
    return one and strategy.merge_rows and shape.terms == 1


def _even_blocks(row_tiles: int, most: int, groups: int) -> int:
    """Row tiles of a task, `most` at the most, of which each of so many groups of panels has as
    many: blocks of the same size, and enough of them."""
    least = min(row_tiles, math.ceil(_LEAST_TASKS / groups))
    return math.ceil(row_tiles / max(least, math.ceil(row_tiles / most)))


def _is_cold(
    strategy: ContractionStrategy, shape: ContractionShape, target: Target, lhs_bytes: int
) -> bool:
    """Whether a network's weights, which come from memory at every call, are worth asking for, and
    the lhs and two panels stay in L2 meanwhile."""
    reading = 4 * shape.n * shape.k / target.memory_rate
    products = shape.m * shape.n * shape.k / shape.lanes(target)
    panel_bytes = shape.k * strategy.columns(target.vector_lanes) * shape.word_bytes
    fits = lhs_bytes + 2 * panel_bytes <= target.l2_bytes * 3 // 4
    return fits and strategy.merge_rows and reading > _COLD * products


def _chains(
    strategy: ContractionStrategy, shape: ContractionShape, target: Target, streams: bool
) -> int:
    """How many chains of a sum to take side by side where a panel is used once: more than one where
    it is read from memory (a core has more from there when it reads in two places at a time), or
    where the sums of a tile are too few to hide the latency of one another's multiply-adds."""
    rows = strategy.box[0] * strategy.box[1]
    few = 2 * rows * strategy.vectors <= target.in_flight
    return most_chains(strategy, shape, target) if streams or few else 1


def most_chains(strategy: ContractionStrategy, shape: ContractionShape, target: Target) -> int:
    """How many chains there are registers for, and terms."""
    rows = strategy.box[0] * strategy.box[1]
    if not fits_registers(2 * rows, strategy.vectors, target, shape.unfused):
        return 1
    if shape.widened:
        return 2 if shape.chain % (2 * TURN) == 0 else 1
    levels = summation_levels([shape.sizes[d] for d in shape.reduced], 2, exact=shape.exact)
    apart = [size for _, size, _, restart in levels if restart]
    return 2 if apart and apart[0] % 2 == 0 else 1


def _read_time(count: int, target: Target) -> float:
    """Cycles to read so many bytes again that were read as often before; none where they stay in
    L2."""
    if count <= target.l2_bytes:
        return 0.0
    return count / (target.l3_rate if count <= target.l3_bytes // 4 else target.memory_rate)


def row_tiles_apart(strategy: ContractionStrategy, shape: ContractionShape, target: Target) -> int:
    """Row tiles of a task that keeps the totals of a panel in scratch; 0 where chains are short."""
    extents = [shape.sizes[d] for d in shape.reduced]
    *outer, (_, chain, _, _) = summation_levels(extents, exact=shape.exact)
    if shape.exact or not outer or chain < _SHORTEST_APART:
        return 0
    rows = strategy.box[0] * strategy.box[1]
    most = min(
        target.l1_bytes // (rows * strategy.vectors * target.vector_lanes * 4),
        max(_LEAST_APART, target.l3_bytes // 4 // (rows * shape.k * 4)),
    )
    row_tiles = shape.m // rows
    return math.ceil(row_tiles / math.ceil(row_tiles / max(1, most)))


def _block_gathered(
    strategy: ContractionStrategy, shape: ContractionShape, target: Target
) -> ContractionStrategy:
    """Blocking for an rhs in its own layout: a panel meets as many row tiles as leave enough tasks,
    so that gathering it pays."""
    rows = strategy.box[0] * strategy.box[1]
    row_tiles = math.ceil(shape.m / rows)
    panels = math.ceil(shape.n / strategy.columns(target.vector_lanes))
    tasks = panels * shape.extent(shape.batch)
    blocks = max(1, math.ceil(8 / tasks))
    return dataclasses.replace(strategy, row_tiles=max(1, row_tiles // blocks), panels=1)


def gathers_panels(shape: ContractionShape, strategy: ContractionStrategy, lanes: int) -> bool:
    """Whether a panel that is not packed is copied to scratch: it is read by several row tiles, and
    its copy stays in L2. Terms are brought side by side so."""
    if shape.terms > 1:
        return True
    panel_bytes = shape.k * strategy.vectors * lanes * 4
    return (
        strategy.row_tiles >= (WIDENING_TILES if shape.widened else GATHERING_TILES)
        and strategy.panels == 1
        and panel_bytes <= GATHERED_BYTES
    )


def summation_levels(
    extents: Sequence[int], chains: int = 1, *, exact: bool = False
) -> list[tuple[int, int, int, bool]]:
    """The loops over k, outermost first: (position in the reduced dimensions, iterations, factor of
    the loop variable, whether each iteration sums apart). Where one dimension is cut into chains
    and that can be, their number is a multiple of `chains`; `exact` sums are one chain."""
    if exact:
        return [(axis, size, 1, False) for axis, size in enumerate(extents)]
    return list(_levels(tuple(extents), chains))


@functools.lru_cache(256)
def _levels(extents: tuple[int, ...], chains: int) -> Sequence[tuple[int, int, int, bool]]:
    levels: list[tuple[int, int, int, bool]] = []
    for axis, size in enumerate(extents):
        inner = math.prod(extents[axis + 1 :])
        apart = SHORTEST_PARTIAL <= inner <= PARTIAL_SUM and inner * size > 2 * SHORTEST_PARTIAL
        shortest = PARTIAL_SUM // 4 if size > PARTIAL_SUM else SHORTEST_PARTIAL - 1
        chunks = [c for c in range(PARTIAL_SUM, shortest, -1) if size % c == 0]
        several = [c for c in chunks if size // c % chains == 0]
        chunk = next(iter([*several, *chunks]), size)
        if inner == 1 and chunk < size:
            levels += [(axis, size // chunk, chunk, True), (axis, chunk, 1, False)]
        else:
            levels.append((axis, size, 1, apart))
    return levels


def chains_of_block(block: int) -> list[int]:
    """The lengths of chains that a block of terms can be cut into, the longest first."""
    return [c for c in range(PARTIAL_SUM, SHORTEST_PARTIAL - 1, -1) if block % c == 0]


def steps_at_once(sums: int, unfused: bool = False) -> int:
    """Steps of k to an iteration of its loop, a power of two: the loop itself takes a tenth of what
    a core can issue where a step has few multiply-adds. Those of two instructions are enough, and
    LLVM keeps products of several steps where there are no registers for them."""
    if unfused:
        return 1
    return 1 << (_UNROLLED // sums).bit_length() - 1 if sums <= _UNROLLED else 1
