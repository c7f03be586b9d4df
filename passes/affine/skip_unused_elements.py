"""skip-unused-elements: iterations of kernels that compute nothing that is in use are left out.

A kernel whose `kernel.extents` (`mark-open-extents`) say that only s0 of 512 rows of its result are
needed runs a task only where one of the rows it writes is below s0:

    affine.parallel (%task) = (0) to (86) {          affine.parallel (%task) = (0) to (86) {
      affine.for %j ... {                              %row = affine.apply (6 * %task)
        affine.vector_store %v, %out[%task * 6, ..]    %needed = arith.cmpi slt, %row, %s0
      }                                          ->    scf.if %needed {
    }                                                    affine.for %j ... } }

The same is done in loops and branches that hold loops, and for several dimensions, all of which
have to be in use; innermost loops end where what they write is not needed any more. The threads
share what is left, since they take tasks from each other.

On GPUs a thread is such a task; where threads wait for each other, a block is: all of its threads
do what they do, or none. Emitters that write by other means than stores ask by themselves
(`kernels/gpu/used_tiles.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from stepwell.extents import Extent
from stepwell.frontends.open_sizes import SCALARS
from stepwell.kernels.builder import APART, REWRITTEN
from stepwell.kernels.gpu import hopper
from stepwell.kernels.index import Index, Variable, delinearize
from stepwell.kernels.used_elements import KERNEL_SIZES
from stepwell.mlir import dialect, ir, nested_operations
from stepwell.open_dimensions import Layout, capacity
from stepwell.passes.affine._loop_indices import LOOPS, STORES, LoopIndices
from stepwell.passes.affine.lower_groups_to_affine import EXACT_READS
from stepwell.passes.base import Pass, State
from stepwell.passes.buffers.plan_arena import VIEWS
from stepwell.passes.linalg.mark_open_extents import UNFILLED_EXTENTS, kernel_extents

affine = dialect("affine")
arith = dialect("arith")
memref = dialect("memref")
scf = dialect("scf")

_BRANCHES = ("affine.if", "scf.if")
_READS = ("affine.load", "affine.vector_load", "memref.load", "vector.load", "affine.prefetch")
_VIEWS = (*VIEWS, "builtin.unrealized_conversion_cast")

_MOST_CONDITIONS = 8
"""Of a loop: with more, its iterations run as they are."""

_Condition = tuple[Extent, Index]
"""The index is below the extent."""

_Conditions = tuple[_Condition, ...]
"""An element is needed when all of these hold."""


@dataclass(frozen=True)
class SkipUnusedElements(Pass):
    """Run on a module of buffers: a host function and kernels."""

    name: ClassVar[str] = "skip-unused-elements"

    def run(self, op: ir.Operation, state: State) -> None:
        functions = [child.operation for child in op.regions[0].blocks[0].operations]
        hosts = [function for function in functions if SCALARS in function.attributes]
        if not hosts:
            return
        for function in functions:
            layouts = kernel_extents(function)
            if _is_read_exactly(hosts[0], function, functions):
                layouts = kernel_extents(function, UNFILLED_EXTENTS) or layouts
            if layouts and KERNEL_SIZES in function.attributes:
                _Kernel(function, layouts).run()


def _is_read_exactly(
    host: ir.Operation, kernel: ir.Operation, functions: list[ir.Operation]
) -> bool:
    """Whether what `kernel` writes is read by kernels alone that read no more than is in use."""
    exact = {
        ir.StringAttr(function.attributes["sym_name"]).value: set(
            ir.DenseI64ArrayAttr(function.attributes[EXACT_READS])
        )
        for function in functions
        if EXACT_READS in function.attributes
    }
    if not exact or UNFILLED_EXTENTS not in kernel.attributes:
        return False
    results = ir.IntegerAttr(kernel.attributes["kernel.results"]).value
    name = ir.StringAttr(kernel.attributes["sym_name"]).value
    for call in nested_operations(host):
        if call.name != "func.call" or _callee(call) != name:
            continue
        for value in list(call.operands)[len(call.operands) - results :]:
            buffer = _buffer(value)
            if isinstance(buffer.owner, ir.Block):
                return False
            for reader, number in _readers(buffer):
                is_exact = reader.name == "func.call" and number in exact.get(_callee(reader), ())
                if reader != call and not is_exact:
                    return False
    return True


def _callee(call: ir.Operation) -> str:
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def _readers(buffer: ir.Value) -> Iterator[tuple[ir.Operation, int]]:
    """The operations that use `buffer`, through views, and as which operand."""
    for use in buffer.uses:
        user = use.owner.operation
        if user.name in VIEWS:
            yield from _readers(user.results[0])
        else:
            yield user, use.operand_number


@dataclass
class _Store:
    """A write of a kernel's result, and what has to hold for one of its elements to be needed."""

    needed: list[_Condition]
    lane: Variable
    """Of the elements that it writes, the place of one."""


class _Kernel:
    """A kernel of whose results the parts of `layouts` are needed."""

    def __init__(self, function: ir.Operation, layouts: Sequence[Layout]) -> None:
        self.function = function
        arguments = list(function.regions[0].blocks[0].arguments)
        first = len(arguments) - ir.IntegerAttr(function.attributes["kernel.results"]).value
        self.outputs = dict(zip(arguments[first:], layouts, strict=True))
        self.sizes = arguments[first - 1]
        texts = function.attributes[KERNEL_SIZES]
        self.extents = [Extent.parse(ir.StringAttr(text).value) for text in texts]
        self.loops = LoopIndices(function)
        self.entry = function.regions[0].blocks[0]
        self.told: dict[Extent, ir.Value] = {}
        self.grid = _grid(function)
        """Of a GPU's kernel: a thread may have to ask in its innermost loop."""

    def run(self) -> None:
        """Put conditions around what loops do, and end the innermost ones early."""
        if self.grid is not None and any(map(_meets, nested_operations(self.grid))):
            self._skip_blocks(self.grid)
            return
        inner = [op for op in nested_operations(self.function) if _is_innermost(op)]
        for block, options in self._plans(self.entry, []):
            self._guard(block, options)
        for loop in inner:
            self._shorten(loop)

    def _skip_blocks(self, grid: ir.Operation) -> None:
        """Leave out blocks of which no thread writes what is needed. Those left out wait for the
        kernel before all the same: others count on that."""
        body = grid.regions[0].blocks[0]
        inside = [op for child in _guarded(body) for op in nested_operations(child)]
        inner = set(self.loops.variables.values()) - {self.loops.variables[body.arguments[0]]}
        options = self._needed(inside, inner)
        if options:
            self._guard(body, options, waits=any(map(_is_wait, inside)))

    def _size(self, extent: Extent) -> ir.Value:
        """One of the sizes, as an index."""
        if extent not in self.told:
            with ir.InsertionPoint.at_block_begin(self.entry):
                number = self.extents.index(extent)
                place = arith.ConstantOp(ir.IndexType.get(), number).result
                stored = memref.LoadOp(self.sizes, [place]).result
                self.told[extent] = arith.IndexCastOp(ir.IndexType.get(), stored).result
        return self.told[extent]

    def _plans(
        self, block: ir.Block, around: list[_Conditions]
    ) -> list[tuple[ir.Block, list[_Conditions]]]:
        """The blocks in `block` to run under conditions; `around` are those it is under."""
        plans = []
        for child in block.operations:
            op = child.operation
            if op.results or op.name not in (*LOOPS, *_BRANCHES):
                continue
            for region in op.regions:
                for inner in region.blocks:
                    options = self._options(op, inner)
                    if options and options != around:
                        plans.append((inner, options))
                    plans += self._plans(inner, options or around)
        return plans

    def _options(self, owner: ir.Operation, block: ir.Block) -> list[_Conditions]:
        """When `block` of `owner` has to run: all conditions of one of these hold. None of them:
        always."""
        inside = [op for child in _guarded(block) for op in nested_operations(child)]
        is_innermost = all(op.name not in LOOPS for op in inside)
        if is_innermost and owner.name != "affine.parallel" and self.grid is None:
            return []
        inner = {self._variable(op) for op in inside if op.name in LOOPS}
        return self._needed(inside, inner)

    def _variable(self, loop: ir.Operation) -> Variable:
        return self.loops.variables[loop.regions[0].blocks[0].arguments[0]]

    def _needed(self, inside: list[ir.Operation], inner: set[Variable]) -> list[_Conditions]:
        """When anything that operations write is needed, for some value of `inner` variables, as
        `_options` has it."""
        found: dict[tuple, list[int]] = {}
        for store in self._stores(inside):
            least = [(e, index.least({*inner, store.lane})) for e, index in store.needed]
            least = [(e, i) for e, i in least if not i.is_constant or i.constant > 0]
            moving = [(extent, index) for extent, index in least if not index.is_constant]
            if not least:
                return []
            ordered = sorted(moving or least, key=lambda c: str(c[0]))
            key = tuple((extent, index.terms) for extent, index in ordered)
            constants = [index.constant for _, index in ordered]
            found[key] = list(map(min, found.get(key, constants), constants))
        if len(found) > _MOST_CONDITIONS:
            return []
        return [
            tuple(
                (extent, Index(terms, constant))
                for (extent, terms), constant in zip(key, constants, strict=True)
            )
            for key, constants in found.items()
        ]

    def _guard(
        self, block: ir.Block, options: Sequence[_Conditions], *, waits: bool = False
    ) -> None:
        """Run `block` where all conditions of one of `options` hold; else, if it `waits` for the
        kernel before, do that alone."""
        body = _guarded(block)

        def below(condition: _Condition) -> ir.Value:
            extent, index = condition
            size = self._size(extent)
            return arith.CmpIOp(arith.CmpIPredicate.slt, _value(index), size).result

        with ir.InsertionPoint(body[0]):
            alternatives = [
                functools.reduce(lambda a, b: arith.AndIOp(a, b).result, map(below, conditions))
                for conditions in options
            ]
            needed = functools.reduce(lambda a, b: arith.OrIOp(a, b).result, alternatives)
            branch = scf.IfOp(needed, has_else=waits)
        if waits:
            with ir.InsertionPoint(branch.else_block):
                hopper.wait_for_kernel()
                scf.YieldOp([])
        with ir.InsertionPoint(branch.then_block):
            end = scf.YieldOp([]).operation
        for op in body:
            op.move_before(end)

    def _shorten(self, loop: ir.Operation) -> None:
        """End a loop where what it writes is not needed from there on."""
        body = _guarded(loop.regions[0].blocks[0])
        options = self._needed([op for child in body for op in nested_operations(child)], set())
        if len(options) != 1:
            return
        variable = self._variable(loop)
        for extent, index in options[0]:
            index, scale = _undivided(index)
            factor = index.coefficient(variable)
            if factor > 0 and index.is_linear:
                rest = index - Index.of(variable) * factor
                loop = _ending_at(loop, (self._size(extent), scale), rest, factor)

    def _stores(self, inside: list[ir.Operation]) -> list[_Store]:
        """What operations write to results; nothing where they write what others read."""
        found = []
        operations = set(inside)
        for op in inside:
            if op.name in STORES:
                buffer = _buffer(op.operands[1])
                if buffer in self.outputs:
                    found.append(self._store(op, self.outputs[buffer]))
                elif not (_is_rewritten(buffer) or _stays_inside(buffer, operations)):
                    return []
            elif op.name not in _READS and _may_write(op):
                return []
        return found

    def _store(self, op: ir.Operation, layout: Layout) -> _Store:
        """A write, with conditions that each have to hold for an element of it to be needed."""
        stored = op.operands[0].type
        lanes = ir.VectorType(stored).shape[-1] if isinstance(stored, ir.VectorType) else 1
        lane = Variable("lane", 0, lanes - 1)
        indices = self.loops.accessed(op)
        if not indices:
            return _Store([], lane)
        indices[-1] = indices[-1] + Index.of(lane)
        sizes = list(map(capacity, layout))
        if len(indices) != len(sizes):
            indices = delinearize(indices[0], sizes) if len(indices) == 1 else []
        conditions = []
        for index, dimension in zip(indices, layout, strict=False):
            parts = delinearize(index, [factor.capacity for factor in dimension or ()])
            for part, factor in zip(parts, dimension or (), strict=True):
                if factor.is_open:
                    conditions += self._below(part, factor.extent)
        return _Store(conditions, lane)

    def _below(self, index: Index, extent: Extent) -> Iterator[_Condition]:
        """`index < extent` by one of the sizes that the kernel is told, where that can be said."""
        for known in self.extents:
            rest = extent.plus(known, -1)
            if rest.is_constant:
                yield known, index + -rest.at(())
                return


def _buffer(value: ir.Value) -> ir.Value:
    """The buffer that `value` is a view of."""
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name in _VIEWS:
        value = value.owner.operation.operands[0]
    return value


def _is_rewritten(buffer: ir.Value) -> bool:
    """Whether no block reads of `buffer` what another has written."""
    return not isinstance(buffer.owner, ir.Block) and REWRITTEN in buffer.owner.attributes


def _stays_inside(buffer: ir.Value, operations: set[ir.Operation]) -> bool:
    """Whether all that uses `buffer`, through views, is among `operations`."""
    for use in buffer.uses:
        user = use.owner.operation
        if user.name in _VIEWS:
            if not _stays_inside(user.results[0], operations):
                return False
        elif user not in operations:
            return False
    return True


def _may_write(op: ir.Operation) -> bool:
    """Whether an operation that is no plain store may write to memory."""
    if op.name == "llvm.call_intrinsic":
        return any(str(operand.type).startswith("!llvm.ptr") for operand in op.operands)
    if op.name == "llvm.inline_asm":
        return "has_side_effects" in op.attributes and not _is_wait(op)
    prefix = op.name.split(".")[0]
    if prefix in ("arith", "math", "affine", "scf", "ub", "complex"):
        return False
    return op.name not in (*_PURE_VECTORS, *_VIEWS, *_OF_A_BLOCK, "memref.alloca")


_OF_A_BLOCK = frozenset(
    (
        "gpu.barrier",
        "gpu.shuffle",
        "nvgpu.device_async_copy",
        "nvgpu.device_async_create_group",
        "nvgpu.device_async_wait",
        "nvgpu.ldmatrix",
        "nvgpu.mma.sync",
        "nvvm.cp.async.commit.group",
        "nvvm.cp.async.wait.group",
    )
)
"""What threads of a GPU do together, none of which writes to memory of others."""


def _grid(function: ir.Operation) -> ir.Operation | None:
    """The loop over blocks and threads of a kernel of a GPU."""
    for child in function.regions[0].blocks[0].operations:
        op = child.operation
        if op.name == "affine.parallel" and len(op.regions[0].blocks[0].arguments) > 1:
            return op
    return None


def _meets(op: ir.Operation) -> bool:
    """Whether threads of a block do `op` together."""
    has_effects = op.name == "llvm.inline_asm" and "has_side_effects" in op.attributes
    return op.name.split(".")[0] in ("gpu", "nvgpu", "nvvm") or has_effects


def _is_wait(op: ir.Operation) -> bool:
    """Whether it waits for the kernel before."""
    if op.name != "llvm.inline_asm":
        return False
    return ir.StringAttr(op.attributes["asm_string"]).value == hopper.WAIT_FOR_KERNEL


_PURE_VECTORS = frozenset(
    f"vector.{name}"
    for name in (
        "broadcast",
        "extract",
        "extract_strided_slice",
        "fma",
        "from_elements",
        "insert",
        "insert_strided_slice",
        "interleave",
        "deinterleave",
        "reduction",
        "shape_cast",
        "shuffle",
        "step",
        "bitcast",
        "to_elements",
    )
)


def _guarded(block: ir.Block) -> list[ir.Operation]:
    """What `block` does, but for what is apart."""
    *body, _ = [child.operation for child in block.operations]
    return [op for op in body if APART not in op.attributes]


def _is_innermost(op: ir.Operation) -> bool:
    """Whether `op` is a loop without results and without loops in it."""
    return (
        op.name == "affine.for"
        and not op.results
        and not any(inner.name in LOOPS for inner in nested_operations(op) if inner != op)
    )


def _undivided(index: Index) -> tuple[Index, int]:
    """An index and a factor, so that it is below so many times a size where `index` is below the
    size: x floordiv d + c < s where x + c d < s d."""
    factor = 1
    while len(index.terms) == 1:
        ((atom, times),) = index.terms
        if isinstance(atom, Variable) or atom.remainder or times != 1:
            break
        factor *= atom.divisor
        index = atom.dividend + index.constant * atom.divisor
    return index, factor


def _ending_at(
    loop: ir.Operation, end_at: tuple[ir.Value, int], rest: Index, factor: int
) -> ir.Operation:
    """The same loop, only while `factor` times its variable and `rest` are below a size, times a
    number."""
    size, scale = end_at
    lower, upper = (
        ir.AffineMapAttr(loop.attributes[name]).value for name in ("lowerBoundMap", "upperBoundMap")
    )
    begin, end = list(loop.operands)[: lower.n_inputs], list(loop.operands)[lower.n_inputs :]
    others = rest.variables()
    offset = rest.to_affine(lambda variable: upper.n_dims + others.index(variable))
    stop = ir.AffineExpr.get_symbol(upper.n_symbols) * scale + (factor - 1) - offset
    stop = ir.AffineExpr.get_floor_div(stop, factor)
    dims, symbols = upper.n_dims + len(others), upper.n_symbols + 1
    bound = ir.AffineMap.get(dims, symbols, [*upper.results, stop])
    outer = [variable.value for variable in others]
    operands = [*end[: upper.n_dims], *outer, *end[upper.n_dims :], size]
    step = ir.IntegerAttr(loop.attributes["step"]).value
    with ir.InsertionPoint(loop), loop.location:
        shorter = affine.AffineForOp(
            lower, bound, step, lower_bound_operands=begin, upper_bound_operands=operands
        )
    with ir.InsertionPoint(shorter.body):
        last = affine.AffineYieldOp([]).operation
    old = loop.regions[0].blocks[0]
    *body, _ = [child.operation for child in old.operations]
    for op in body:
        op.move_before(last)
    old.arguments[0].replace_all_uses_with(shorter.induction_variable)
    loop.erase()
    return shorter.operation


def _value(index: Index) -> ir.Value:
    variables = index.variables()
    affine_map = ir.AffineMap.get(len(variables), 0, [index.to_affine(variables.index)])
    operands = [variable.value for variable in variables]
    return affine.AffineApplyOp(affine_map, operands).result
