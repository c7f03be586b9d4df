"""Run-time inputs: anything array-like into what compiled code takes, or a sentence why not."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np

from stepwell.artifact import TensorSpec
from stepwell.errors import InputError

_NO_ARRAY = (BufferError, TypeError, ValueError, RuntimeError)
"""What objects raise that cannot be taken as arrays."""


class Named(Protocol):
    """A declared input; as text, `x: float32[2, 3]`."""

    @property
    def name(self) -> str: ...


class JaxArray(Protocol):
    """What is asked of a `jax.Array`, whose package may be missing."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...
    @property
    def weak_type(self) -> bool: ...
    def is_deleted(self) -> bool: ...
    def unsafe_buffer_pointer(self) -> int: ...


def numpy_dtype(name: str) -> np.dtype:
    """The numpy dtype called `name`; ml_dtypes' own ("bfloat16") included."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def wrong_count(inputs: Sequence[Named], given: int) -> InputError:
    """The error of a call with a wrong number of arrays."""
    noun = "input" if len(inputs) == 1 else "inputs"
    listed = ", ".join(map(str, inputs)) or "none"
    return InputError(f"the model takes {len(inputs)} {noun} ({listed}) and was given {given}")


def named_inputs(inputs: Sequence[Named], feed: Mapping[str, object]) -> list[object]:
    """The values of `feed` in the order of `inputs`. Raises InputError for a wrong name."""
    names = [spec.name for spec in inputs]
    unknown = [name for name in feed if name not in names]
    missing = [name for name in names if name not in feed]
    if unknown:
        raise InputError(
            f"the model has no input {unknown[0]!r}; its inputs are: {', '.join(names) or 'none'}"
        )
    if missing:
        raise InputError(
            f"the input {missing[0]!r} was not given; it is {_describe(inputs, missing)}"
        )
    return [feed[name] for name in names]


def _describe(inputs: Sequence[Named], missing: list[str]) -> str:
    return str(next(spec for spec in inputs if spec.name == missing[0])).partition(": ")[2]


def as_input(value: object, spec: TensorSpec, dtype: np.dtype) -> np.ndarray:
    """`value` as an aligned, C-contiguous array of `dtype` and `spec.shape`, copied only when its
    layout asks for it. Raises InputError when the dtype, rank or shape is another."""
    array = _array_of(value, spec.name, dtype)
    check_shape(array.shape, spec)
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    return np.require(array, requirements=["C", "A"])


def check_shape(shape: tuple[int, ...], spec: TensorSpec) -> None:
    """Raise InputError when an array of `shape` is none that `spec` takes."""
    if len(shape) != len(spec.shape):
        raise InputError(
            f"input {spec.name!r} has rank {len(shape)} (shape {shape}) and the model takes "
            f"rank {len(spec.shape)} (shape {spec.shape})"
        )
    if shape != spec.shape:
        raise InputError(
            f"input {spec.name!r} has shape {shape} and the model was compiled for {spec.shape}"
        )


def check_dtype(given: np.dtype, name: str, dtype: np.dtype) -> None:
    """Raise InputError when input `name` takes `dtype` and is given another."""
    if given != dtype:
        raise InputError(
            f"input {name!r} has dtype {given} and the model takes {dtype}; "
            f"convert it with .astype({str(dtype)!r})"
        )


def input_array(name: str, value: object, dtype: str) -> np.ndarray:
    """`value` as an array of `dtype` and any shape. Raises InputError when it is none."""
    return _array_of(value, name, numpy_dtype(dtype))


def _array_of(value: object, name: str, dtype: np.dtype) -> np.ndarray:
    array = _as_array(value, name, dtype)
    check_dtype(array.dtype, name, dtype)
    return array


def _as_array(value: object, name: str, dtype: np.dtype) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    try:
        if is_immutable(value):  # JAX keeps what numpy sees, which DLPack makes anew
            return np.asarray(value)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)  # pyright: ignore[reportArgumentType]
        return _from_python(value, dtype)
    except _NO_ARRAY as error:
        with contextlib.suppress(*_NO_ARRAY):
            if hasattr(value, "__array__"):  # one that DLPack cannot carry: bfloat16 of ml_dtypes
                return np.asarray(value)
        with contextlib.suppress(*_NO_ARRAY, AttributeError):
            if "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
                return _by_bits(value)
        raise InputError(
            f"input {name!r}, a {type(value).__name__}, cannot be taken as an array: {error}"
        ) from error


def _by_bits(tensor: Any) -> np.ndarray:
    """A tensor of PyTorch, of a dtype that it hands to numpy as bits alone: bfloat16, floats of 8.

    Raises TypeError or AttributeError for one that numpy and ml_dtypes do not have.
    """
    dtype = numpy_dtype(str(tensor.dtype).removeprefix("torch."))
    integer = getattr(sys.modules["torch"], f"int{8 * dtype.itemsize}")
    return tensor.detach().cpu().contiguous().view(integer).numpy().view(dtype)


def _from_python(value: object, dtype: np.dtype) -> np.ndarray:
    """Python scalars and nested lists take the dtype of the input."""
    if isinstance(value, bool | int | float | complex | list | tuple):
        return np.asarray(value, dtype=dtype)
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError("it is no array")
    return array


def is_immutable(value: object) -> TypeGuard[JaxArray]:
    """Whether `value` is a `jax.Array`; other objects of JAX (references) may change."""
    kind = type(value)
    return kind.__name__ == "ArrayImpl" and kind.__module__.startswith("jax")


class UnchangingInputs:
    """Where the data of each `jax.Array` lies: since these cannot change, one is looked at once for
    as long as it lives, and is given for the same input. A network has hundreds of them."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[JaxArray], int]] = {}

    def address(self, index: int, value: object) -> int | None:
        """That of `value`, if it was input `index` the last time."""
        reference, address = self._known.get(index, (None, 0))
        array = reference and reference()
        return address if array is value and array is not None and not array.is_deleted() else None

    def keep(self, index: int, value: object, address: int) -> None:
        """Remember what is read for `value`, unless that is a copy."""
        if is_immutable(value) and _address(value) == address:
            self._known[index] = weakref.ref(value), address


def _address(array: JaxArray) -> int | None:
    """Where it lies; None for one of several parts."""
    try:
        return array.unsafe_buffer_pointer()
    except ValueError:
        return None
