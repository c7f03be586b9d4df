"""Models of PyTorch into exported programs, and these, at static shapes, into program files."""

# pyright: reportMissingImports=false
from __future__ import annotations

import contextlib
import importlib
import logging
import re
import sys
import traceback
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.utils import _pytree

from stepwell.errors import (
    ModelError,
    OpenModelError,
    Unsupported,
    UnsupportedError,
    UsageError,
)
from stepwell.frontends import check_file
from stepwell.frontends.torch.checked_functions import without_checks
from stepwell.frontends.torch.decompositions import decompositions
from stepwell.frontends.torch.decompositions.rules import own_rules
from stepwell.frontends.torch.graph import Argument, dtype_name, to_program
from stepwell.frontends.torch.program_file import Program
from stepwell.specialization import OpenSpec

Shapes = Mapping[str, Sequence[int]]

_UNKNOWN_OPERATOR = re.compile(r"failed to resolve (torch\.ops\.[\w.]+)")


def export(module: torch.nn.Module, example_inputs: object) -> ExportedProgram:
    """`module` exported for inputs like `example_inputs`: a tensor, a tuple or list of positional
    arguments, or a dict of keyword arguments. Raises ModelError with PyTorch's reason."""
    arguments, keywords = _call(example_inputs)
    if module.training and _differs_in_training(module):
        raise UsageError(
            f"the module {type(module).__name__} is in training mode, in which dropout and batch "
            "normalization make another result at each call; call .eval() first"
        )
    return _export(module, arguments, keywords, f"the module {type(module).__name__}")


def load(file: Path | IO[bytes], source: str | None = None) -> ExportedProgram:
    """The program that `torch.export.save` wrote; errors call it `source`. Raises ModelError."""
    name = source or file
    if isinstance(file, Path):
        check_file(file)
    is_zip = zipfile.is_zipfile(file)  # PyTorch would log a traceback
    if not isinstance(file, Path):
        file.seek(0)
    if not is_zip:
        raise ModelError(f"{name} is no exported program, which is a zip file, or it is cut short")
    with contextlib.suppress(ImportError):  # the operators of quantised programs
        importlib.import_module("torch.ao.quantization.fx._decomposed")
    logged: list[BaseException] = []
    try:
        with _errors_logged_to(logged):
            return torch.export.load(file)
    except Exception as error:  # zip, JSON, pickle and torch have their own kinds
        unknown = _UNKNOWN_OPERATOR.search("\n".join(map(str, logged)))
        if unknown:
            raise ModelError(
                f"{name} calls {unknown[1]}, which PyTorch does not know here: in Python, import "
                "the library that defines it, and compile what torch.export.load gives"
            ) from error
        raise ModelError(f"{name} is no exported program: {_first_line(error)}") from error


@contextlib.contextmanager
def _errors_logged_to(found: list[BaseException]) -> Iterator[None]:
    """Enter in `found`, and do not print, the errors that PyTorch logs, and does not raise, while
    it reads a file."""

    def keep(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            found.append(error)
        return error is None

    logger = logging.getLogger("torch.export")
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)


def program_of(exported: ExportedProgram, shapes: Shapes | None = None) -> Program:
    """The program of an export at static shapes: its own, or those that `shapes` gives its inputs.

    Raises OpenModelError while dimensions are open, UnsupportedError and ModelError.
    """
    names = input_names(exported)
    values = _placeholder_values(exported)
    unknown = sorted(set(shapes or {}) - set(names))
    if unknown:
        listed = ", ".join(names) or "none"
        raise ModelError(f'shapes= names "{unknown[0]}", which is no input (inputs: {listed})')
    wanted = {name: (shapes or {}).get(name, values[name].shape) for name in names}
    for name in names:
        _check_shape(name, values[name].shape, wanted[name])
    symbolic = any(_is_open(value) for value in _graph_values(exported))
    if symbolic and any(not isinstance(n, int) for shape in wanted.values() for n in shape):
        raise OpenModelError(
            "the program leaves dimensions open; give the shapes of its inputs",
            tuple(_open_spec(name, values[name]) for name in names),
            tuple(_open_spec(n, v) for n, v in zip(*_outputs(exported), strict=True)),
            limits=_limits(exported),
        )
    outputs = _outputs(exported)[0]
    if symbolic:
        exported = _at_shapes(exported, wanted)
    return _static_program(exported, names, outputs)


def input_names(exported: ExportedProgram) -> list[str]:
    """Names of the tensors that a call gives, in the order of the signature."""
    return [
        spec.arg.name
        for spec in exported.graph_signature.input_specs
        if spec.kind == InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
    ]


def _call(example_inputs: object) -> tuple[tuple, dict]:
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if isinstance(example_inputs, (tuple, list)):
        return tuple(example_inputs), {}
    return (example_inputs,), {}


def _differs_in_training(module: torch.nn.Module) -> bool:
    kinds = (torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._NormBase)
    return any(
        isinstance(part, kinds) and part.training and getattr(part, "p", 1) > 0
        for part in module.modules()
    )


def _export(
    module: torch.nn.Module, arguments: tuple, keywords: dict, source: str
) -> ExportedProgram:
    _register_caches()
    try:
        with (
            torch.no_grad(),
            warnings.catch_warnings(),
            own_rules(),
            without_checks(),
        ):
            warnings.simplefilter("ignore")
            return torch.export.export(module, arguments, keywords, strict=False)
    except Exception as error:  # whatever the module's own code raises, too
        if _packs_sequences(error):
            raise ModelError(
                f"{source} packs sequences, and the shape of a packed sequence depends on data; "
                "compile it for padded ones"
            ) from error
        if "torch.classes.quantized." in str(error):
            raise ModelError(
                f"{source} holds weights that PyTorch's eager or FX quantisation packed, which "
                "torch.export cannot export; quantise the module by torchao: quantize_, or "
                "prepare_pt2e and convert_pt2e"
            ) from error
        raise ModelError(f"torch.export cannot export {source}: {_first_line(error)}") from error


def _packs_sequences(error: Exception) -> bool:
    """Whether it was raised while sequences were packed, or by a network that was given packed
    ones: it counts on numbers where sizes are data."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(
        frame.name == "pack_padded_sequence" or frame.filename == torch.nn.modules.rnn.__file__
        for frame in frames
    )


def _register_caches() -> None:
    """Have transformers tell PyTorch what its key-value caches are made of."""
    if "transformers" in sys.modules:
        from transformers.integrations import executorch  # pyright: ignore[reportMissingImports]

        executorch.register_dynamic_cache_export_support()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _placeholder_values(exported: ExportedProgram) -> dict[str, torch.Tensor]:
    return {
        node.name: node.meta["val"]
        for node in exported.graph.nodes
        if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor)
    }


def _graph_values(exported: ExportedProgram) -> list[torch.Tensor]:
    values = (node.meta.get("val") for node in exported.graph.nodes)
    return [value for value in values if isinstance(value, torch.Tensor)]


def _outputs(exported: ExportedProgram) -> tuple[list[str], list[torch.Tensor]]:
    """Names and values of the tensors that a call returns; a name that comes again is numbered."""
    nodes = {node.name: node for node in exported.graph.nodes}
    names: list[str] = []
    values: list[torch.Tensor] = []
    for spec in exported.graph_signature.output_specs:
        if spec.kind == OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument):
            name, count = spec.arg.name, 1
            while name in names:
                name, count = f"{spec.arg.name}_{count}", count + 1
            names.append(name)
            values.append(nodes[spec.arg.name].meta["val"])
    return names, values


def _is_open(tensor: torch.Tensor) -> bool:
    return any(not isinstance(size, int) for size in tensor.shape)


def _limits(exported: ExportedProgram) -> dict[str, int]:
    """The largest that dimensions may be, by name: what `torch.export.Dim` was given as `max`."""
    return {
        str(symbol): int(values.upper)
        for symbol, values in exported.range_constraints.items()
        if values.upper.is_Integer
    }


def _open_spec(name: str, tensor: torch.Tensor) -> OpenSpec:
    sizes = tuple(size if isinstance(size, int) else str(size) for size in tensor.shape)
    return OpenSpec(name, dtype_name(tensor.dtype), sizes)


def _check_shape(name: str, declared: Sequence, given: Sequence) -> None:
    fixed = [size if isinstance(size, int) else None for size in declared]
    if len(fixed) != len(given) or any(
        n is not None and n != m for n, m in zip(fixed, given, strict=True)
    ):
        text = ", ".join("?" if n is None else str(n) for n in fixed)
        raise ModelError(f"input {name} has the shape ({text}), but shapes= gives {tuple(given)}")


def _at_shapes(exported: ExportedProgram, shapes: Mapping[str, Sequence[int]]) -> ExportedProgram:
    """The program exported again, for inputs of these shapes."""
    values = _placeholder_values(exported)
    flat: list[object] = []
    for spec in exported.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT:
            continue
        if isinstance(spec.arg, TensorArgument):
            value = values[spec.arg.name]
            flat.append(torch.zeros(tuple(shapes[spec.arg.name]), dtype=value.dtype))
        else:
            flat.append(getattr(spec.arg, "value", None))
    in_spec = exported.call_spec.in_spec
    if in_spec is None:
        raise ModelError("the exported program does not say how it is called")
    arguments, keywords = _pytree.tree_unflatten(flat, in_spec)
    listed = ", ".join(f"{name}: {tuple(shape)}" for name, shape in shapes.items())
    return _export(exported.module(), arguments, keywords, f"the program for {listed}")


def _static_program(
    exported: ExportedProgram, names: Sequence[str], outputs: Sequence[str]
) -> Program:
    # PyTorch looks for the constants of submodules without the module's path when it decomposes.
    taken = {spec.target for spec in exported.graph_signature.input_specs}
    for target, value in list(exported.constants.items()):
        if (name := target.rsplit(".", 1)[-1]) not in taken:
            exported.constants.setdefault(name, value)
    try:
        with warnings.catch_warnings(), own_rules():
            warnings.simplefilter("ignore")
            core = exported.run_decompositions(decompositions())
    except Exception as error:  # what operators raise for numbers that are known only at run time
        text = f"the operators of the program cannot be broken down: {_first_line(error)}"
        raise ModelError(text) from error
    signature = core.graph_signature
    mutated = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if mutated:
        raise ModelError(
            f"the module changes {', '.join(sorted(mutated))} in place when it is called, and "
            "compiled code keeps no state; return the new value, or call .eval() first if it is "
            "a running statistic"
        )
    targets = {spec.arg.name: spec.target for spec in exported.graph_signature.input_specs}
    remaining = iter(names)
    arguments: list[Argument] = []
    for spec in signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            is_tensor = isinstance(spec.arg, TensorArgument)
            arguments.append(next(remaining) if is_tensor else "")
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            target = targets.get(spec.arg.name) or spec.target
            arguments.append(_tensor_of(core, str(target)))
        elif spec.kind == InputKind.TOKEN:
            raise UnsupportedError(_effects(core))
        else:
            raise ModelError(f"an argument of kind {spec.kind.name} is not supported")
    return to_program(core.graph_module, arguments, outputs)


def _effects(exported: ExportedProgram) -> list[Unsupported]:
    return [
        Unsupported(node.name, str(node.args[1]), "operators with side effects are not supported")
        for node in exported.graph.nodes
        if node.op == "call_function" and "with_effects" in str(node.target)
    ]


def _tensor_of(exported: ExportedProgram, target: str) -> torch.Tensor:
    """A parameter, buffer or constant by its name; buffers that are not persistent are among the
    constants."""
    if target in exported.state_dict:
        return exported.state_dict[target]
    value = exported.constants[target]
    if not isinstance(value, torch.Tensor):
        raise ModelError(f"the constant {target}, a {type(value).__name__}, is not supported")
    return value
