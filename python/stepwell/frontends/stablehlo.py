"""The StableHLO frontend: text, MLIR bytecode, portable artifacts and modules.

Calls are inlined into `@main`, open dimensions refined to given shapes, CHLO legalized (but for
what `stepwell.dialects.chlo` keeps), and large constants moved into the weight table, so that
passes can read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from stepwell import dtypes
from stepwell.dense import has_buffer, is_complex, read_dense, read_resources
from stepwell.dialects import chlo
from stepwell.errors import LoweringError, ModelError, OpenModelError
from stepwell.frontends import (
    Imported,
    Shapes,
    TensorSpec,
    checks,
    dynamic_calls,
    open_values,
    platforms,
    probes,
    quantized,
    shape_assertions,
    tuples,
)
from stepwell.frontends.bounds import open_bounded
from stepwell.frontends.channels import refuse_channels
from stepwell.frontends.quantized_arithmetic import is_quantized
from stepwell.frontends.shardy import (
    erase_shardy,
    is_for_several_devices,
    without_shardy,
    without_shardy_syntax,
)
from stepwell.frontends.sparse_rows import legalize_sparse_rows
from stepwell.frontends.top_k import legalize_top_k
from stepwell.frontends.weak_order import (
    has_weak_order,
    legalize_weak_order,
    without_weak_order_syntax,
)
from stepwell.mlir import deserialize_portable_artifact, ir, new_context, run_upstream
from stepwell.specialization import OpenSpec
from stepwell.weights import INLINE_ELEMENTS, WeightTable

Values = Mapping[str, np.ndarray]

_BYTECODE = b"ML\xefR"
_PORTABLE = b"StableHLO_v"
_VERSIONED = b"\0vhlo\0"
"""The dialect of portable artifacts: those of before version 0.9 do not say that they are some."""

_DYNAMIC = ir.ShapedType.get_dynamic_size()

_KEPT = frozenset(["mhlo.attributes", "mhlo.backend_config"])
"""What custom calls are told."""

_SEPARATOR = re.compile(rb"^// -----", re.MULTILINE)
"""What stands between the programs of a file that tools split."""

_SLICES = frozenset(["stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"])
_STATIC_OPS = "func.func(stablehlo-canonicalize-dynamism),canonicalize"
_REFINE = (
    "func.func(cse),stablehlo-refine-shapes,func.func(stablehlo-canonicalize-dynamism),"
    "func.func(stablehlo-check-shape-assertions),canonicalize"
)


def from_bytes(
    data: bytes,
    source: str,
    shapes: Shapes | None = None,
    values: Values | None = None,
    platform: int | None = None,
) -> Imported:
    """Import StableHLO text, MLIR bytecode or a portable artifact.

    Inputs are called arg0, arg1, ... and outputs out0, out1, ...; `shapes` uses these names, and so
    does `values`, the data of inputs that shapes depend on. Raises OpenModelError when such shapes
    or values are missing. `platform` is that of `platforms.choose`.
    """
    if is_for_several_devices(data):
        raise ModelError(f"{source} has parts for each of several devices (sdy.manual_computation)")
    context = new_context()
    with context:
        try:
            module = parse(data, context)
        except (ir.MLIRError, ValueError) as error:
            if _SEPARATOR.search(data):
                raise ModelError(
                    f"{source} holds several programs, with lines `// -----` between them; put "
                    "each into a file of its own"
                ) from None
            if data.startswith(_BYTECODE):
                raise ModelError(
                    f"{source} is bytecode that cannot be read, because it is damaged, cut short "
                    f"or newer than this compiler: {first_line(error)}"
                ) from None
            raise ModelError(f"{source} is not StableHLO: {first_line(error)}") from None
        resources = {} if data.startswith(_BYTECODE) else read_resources(data)
        return from_parsed(module, source, resources, shapes, values, platform)


def from_module(module: ir.Module, shapes: Shapes | None = None) -> Imported:
    """Import a copy of `module`, in a context of its own."""
    text = module.operation.get_asm(enable_debug_info=True)
    return from_bytes(text.encode(), "the MLIR module", shapes)


def parse(data: bytes, context: ir.Context) -> ir.Module:
    """The program as it is written, in `context`; what is not known there (checks, probes, Shardy,
    orders of sorting) in the form that `from_parsed` takes. Raises MLIRError, ValueError."""
    if checks.has_checks(data) and not data.startswith(_BYTECODE):
        context.allow_unregistered_dialects = True  # nor is the dialect of checks
        data = checks.without_check_syntax(data.decode()).encode()
    if probes.has_probes(data) and not data.startswith(_BYTECODE):
        context.allow_unregistered_dialects = True  # nor is that of the interpreter
        data = probes.without_probe_syntax(data.decode()).encode()
    if has_weak_order(data) and not data.startswith(_BYTECODE):
        data = without_weak_order_syntax(data.decode()).encode()
    if b"sdy" not in data:
        return _parse_known(data, context)
    context.allow_unregistered_dialects = True  # Shardy is not in the wheel
    if data.startswith(_BYTECODE):
        data = without_shardy(data)
    else:
        data = without_shardy_syntax(data.decode()).encode()
    module = _parse_known(data, context)
    erase_shardy(module)
    return module


def _parse_known(data: bytes, context: ir.Context) -> ir.Module:
    if data.startswith(_BYTECODE) and (_PORTABLE in data[:64] or _VERSIONED in data):
        return deserialize_portable_artifact(context, data)
    return ir.Module.parse(data)


def from_parsed(
    module: ir.Module,
    source: str,
    resources: dict[str, bytes] | None = None,
    shapes: Shapes | None = None,
    values: Values | None = None,
    platform: int | None = None,
) -> Imported:
    """Import `module` itself, in its context, which has to be current. `resources` has the data of
    its `dense_resource`s; the rest is as in `from_bytes`."""
    weights = WeightTable()
    with ir.Location.unknown():
        main = rename_main(module, source)
        platforms.choose(module, main, platform)
        _drop_attributes(module, main)
        probes.pass_by(module)
        checks.make_custom_calls(module)
        try:
            chlo.restore_composites(module.operation)
            run_upstream(module.operation, "func.func(stablehlo-legalize-composite-to-call)")
            run_upstream(module.operation, "inline{default-pipeline=},symbol-dce")
            refuse_channels(main)
            tuples.flatten(main)
            if open_bounded(main):
                run_upstream(module.operation, _REFINE)
            _refine(module, main, shapes or {}, values or {})
            legalize_top_k(module)
            legalize_sparse_rows(module)
            legalize_weak_order(module)
            run_upstream(module.operation, "symbol-dce")
            _legalize_dynamic_and_quantized(module, main)
            chlo.legalize(main)
        except ir.MLIRError as error:
            reason = first_line(error)
            _, asserted, sentence = reason.partition(f'"{shape_assertions.TARGET}": ')
            if asserted:
                raise ModelError(f"the inputs do not fit the model: {sentence}") from None
            raise ModelError(f"{source} cannot be normalised: {reason}") from None
        made = checks.take_checks(main)
        _collect_constants(main, weights, resources or {})
        module.operation.verify()
        main = module.body.operations[0]
        kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        inputs = _specs(kind.inputs, "arg")
        outputs = _specs(kind.results, "out")
    return Imported(module.context, module, weights, inputs, outputs, source, checks=made)


def rename_main(module: ir.Module, source: str) -> ir.Operation:
    """The one public function, called main from here on; all others become private."""
    if not list(module.body.operations):  # a program that does nothing
        module.body.append(ir.Operation.parse("func.func @main() { return }"))
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    names = {ir.StringAttr(op.attributes["sym_name"]).value: op for op in functions}
    public = [name for name, op in names.items() if _is_public(op)]
    entry = "main" if "main" in names else public[0] if len(public) == 1 else None
    if entry is None:
        listed = ", ".join(public) or "none"
        raise ModelError(
            f"{source} has no function main (public functions: {listed}); call the one to compile "
            "@main, or make the others private"
        )
    for name, op in names.items():
        if name != entry:
            op.attributes["sym_visibility"] = ir.StringAttr.get("private")
    main = names[entry].operation
    main.attributes["sym_name"] = ir.StringAttr.get("main")
    if "sym_visibility" in main.attributes:
        del main.attributes["sym_visibility"]
    return main


def _is_public(function: ir.OpView) -> bool:
    if "sym_visibility" not in function.attributes:
        return True
    return ir.StringAttr(function.attributes["sym_visibility"]).value == "public"


def _drop_attributes(module: ir.Module, main: ir.Operation) -> None:
    """Remove attributes of other systems (mhlo, jax, sdy) from the module and its signature."""
    for name in ("arg_attrs", "res_attrs"):
        if name in main.attributes:
            del main.attributes[name]
    for operation in (module.operation, *_walk(module.operation)):
        for name in list(operation.attributes):  # iteration gives names
            if "." in name and name not in _KEPT:
                del operation.attributes[name]


def _refine(module: ir.Module, main: ir.Operation, shapes: Shapes, values: Values) -> None:
    """Give open dimensions of the inputs their sizes from `shapes`, and propagate them and the
    `values` of inputs that other dimensions depend on."""
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    unknown = sorted(set(shapes) - {f"arg{i}" for i in range(len(kind.inputs))})
    if unknown:
        raise ModelError(
            f'shapes= names "{unknown[0]}", which is no input of the model '
            f"(inputs: arg0 to arg{len(kind.inputs) - 1})"
        )
    try:
        types = [_refined(t, f"arg{i}", shapes) for i, t in enumerate(kind.inputs)]
    except OpenModelError as error:
        names = shape_assertions.names(main)
        inputs, outputs = _open_specs(kind.inputs, "arg", names), _open_specs(kind.results, "out")
        limits = shape_assertions.limits(main)
        raise OpenModelError(str(error), inputs, outputs, limits=limits) from None
    if types != list(kind.inputs):
        text = ",".join(str(t) for t in types)
        run_upstream(module.operation, f"stablehlo-refine-arguments{{types={text}}},{_REFINE}")
    if values:
        open_values.make_known(main, values)
        run_upstream(module.operation, _REFINE)
    while dynamic_calls.fix_shapes(module, main):
        run_upstream(module.operation, _REFINE)
    missing = tuple(name for name in open_values.needed(main) if name not in values)
    if missing:
        inputs, outputs = _open_specs(kind.inputs, "arg"), _open_specs(kind.results, "out")
        raise OpenModelError(
            f"shapes depend on the value of input {missing[0]}, which only a call can tell",
            inputs,
            outputs,
            values=missing,
        )


def _legalize_dynamic_and_quantized(module: ir.Module, main: ir.Operation) -> None:
    """Give ops with constant shape operands their static form, and quantized ones integers."""
    found = {op.name for op in _walk(main)}
    if any("dynamic_" in name and name not in _SLICES for name in found):
        run_upstream(module.operation, _STATIC_OPS)
    values = (value for op in _walk(main) for value in (*op.operands, *op.results))
    if any(map(is_quantized, values)):
        quantized.legalize(main)
        run_upstream(main, "stablehlo-legalize-quant-to-math,canonicalize")


def _refined(kind: ir.Type, name: str, shapes: Shapes) -> ir.Type:
    if not isinstance(kind, ir.RankedTensorType):
        raise ModelError(f"input {name} is a {kind}; only ranked tensors are supported")
    declared = [None if n == _DYNAMIC else n for n in kind.shape]
    given = shapes.get(name)
    if given is None and None in declared:
        example = tuple(1 if n is None else n for n in declared)
        raise OpenModelError(
            f"input {name} has open dimensions ({kind}); give its shape, for instance "
            f'shapes={{"{name}": {example}}}, on the command line '
            f"--shape {name}={'x'.join(map(str, example))}"
        )
    given = tuple(declared) if given is None else tuple(given)
    if len(given) != len(declared) or any(
        n not in (None, m) for n, m in zip(declared, given, strict=True)
    ):
        raise ModelError(f"input {name} is a {kind} in the model, but shapes= gives {given}")
    return ir.RankedTensorType.get(list(given), kind.element_type)


def _open_specs(
    types: Sequence[ir.Type],
    prefix: str,
    names: Mapping[tuple[int, int], str] = MappingProxyType({}),
) -> tuple[OpenSpec, ...]:
    """The signature as declared; an open dimension is called "?" unless it is in `names`."""
    tensors = [ir.RankedTensorType(kind) for kind in types]
    return tuple(
        OpenSpec(
            f"{prefix}{i}",
            dtypes.to_numpy(kind.element_type).name,
            tuple(names.get((i, d), "?") if n == _DYNAMIC else n for d, n in enumerate(kind.shape)),
        )
        for i, kind in enumerate(tensors)
    )


def _walk(operation: ir.Operation) -> Iterator[ir.Operation]:
    for region in operation.regions:
        for block in region.blocks:
            for op in list(block.operations):
                yield op.operation
                yield from _walk(op.operation)


def _collect_constants(
    main: ir.Operation, weights: WeightTable, resources: dict[str, bytes]
) -> None:
    """Move the data of large constants into `weights`."""
    for op in _walk(main):
        if op.name != "stablehlo.constant" or is_complex(op):
            continue
        attribute = op.attributes["value"]
        hint = _hint(op.location)
        try:
            array = _large(attribute, resources)
        except LoweringError as error:
            raise ModelError(f"the constant {hint}: {error}") from None
        if array is not None:
            op.attributes["value"] = weights.attribute(array, hint)


def _large(attribute: ir.Attribute, resources: dict[str, bytes]) -> np.ndarray | None:
    """The data of a constant that belongs into the table, else None."""
    kind = ir.RankedTensorType(attribute.type)  # pyright: ignore[reportAttributeAccessIssue]
    dtype = dtypes.to_numpy(kind.element_type)
    if isinstance(attribute, ir.DenseElementsAttr):
        if attribute.is_splat or (
            int(np.prod(kind.shape)) <= INLINE_ELEMENTS and has_buffer(dtype)
        ):
            return None
        return read_dense(attribute)
    name = re.match(r'dense_resource<"?([^">]+)', str(attribute)[:400])
    if name is None or name.group(1) not in resources:
        raise LoweringError(
            "its data is a resource of MLIR bytecode, which cannot be read; save the model as a "
            "StableHLO portable artifact or as text"
        )
    return np.frombuffer(resources[name.group(1)], dtype).reshape(tuple(kind.shape))


def _hint(location: ir.Location) -> str:
    match = re.match(r'loc\("([^"]+)"', str(location)[:200])
    return match.group(1).rsplit("/", 1)[-1] if match else "constant"


def _specs(types: list[ir.Type], prefix: str) -> tuple[TensorSpec, ...]:
    specs: list[TensorSpec] = []
    for i, kind in enumerate(types):
        if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
            raise ModelError(f"{prefix}{i} is a {kind}; only tensors of static shape are supported")
        try:
            dtype = dtypes.to_numpy(kind.element_type)
        except LoweringError as error:
            raise ModelError(f"{prefix}{i}: {error}") from None
        specs.append(TensorSpec(f"{prefix}{i}", dtype, tuple(kind.shape)))
    return tuple(specs)


def first_line(error: Exception) -> str:
    """What an error of MLIR says first."""
    lines = [line.strip() for line in str(error).splitlines() if "error:" in line]
    text = lines[0] if lines else str(error).strip().split("\n")[0]
    return text.removeprefix("error: ")
