"""Operators that run on the host: those on strings and maps, and decoders of image files.

No tensor compiler has such values. onnx's reference evaluator runs these nodes in Python, with the
operators of this file in the place of its own, or where it has none.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

ALWAYS_ON_HOST = frozenset({"ImageDecoder"})
"""Operators that run on the host whatever the types of their inputs."""

ON_HOST = ALWAYS_ON_HOST | {
    "CastMap",
    "CategoryMapper",
    "DictVectorizer",
    "RegexFullMatch",
    "StringConcat",
    "StringNormalizer",
    "StringSplit",
    "ZipMap",
}
"""Operators that are not compiled for any type; others run here for strings alone."""


MOVING = frozenset(
    {
        "Add",
        "And",
        "Cast",
        "Concat",
        "Constant",
        "ConstantOfShape",
        "Div",
        "Equal",
        "Expand",
        "Flatten",
        "Gather",
        "Greater",
        "GreaterOrEqual",
        "Identity",
        "Less",
        "LessOrEqual",
        "Max",
        "Min",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "Range",
        "ReduceMax",
        "ReduceMin",
        "Reshape",
        "Shape",
        "Size",
        "Slice",
        "Split",
        "Squeeze",
        "Sub",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
    }
)
"""Operators that numpy runs about as fast: they move elements or compute sizes."""


def is_host_type(kind: onnx.TypeProto) -> bool:
    """Whether a value of this type is or holds strings or maps."""
    if kind.HasField("tensor_type"):
        return kind.tensor_type.elem_type == onnx.TensorProto.STRING
    if kind.HasField("sequence_type"):
        return is_host_type(kind.sequence_type.elem_type)
    if kind.HasField("optional_type"):
        return is_host_type(kind.optional_type.elem_type)
    return kind.HasField("map_type")


class StringNormalizer(OpRun):
    """Without the stop words and in one case, as ai.onnx's specification has it: words are compared
    whole, the locale is not asked, and where none is left there is one empty string."""

    def _run(
        self,
        x: np.ndarray,
        case_change_action: str | None = None,
        is_case_sensitive: int | None = None,
        locale: str | None = None,
        stopwords: Sequence[str] | None = None,
    ) -> tuple[np.ndarray]:
        if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
            raise ValueError(f"its input {list(x.shape)} is neither [C] nor [1, C]")

        def folded(word: str) -> str:
            return word if is_case_sensitive else word.lower()

        stops = {folded(word) for word in stopwords or ()}
        kept = [word for word in map(str, x.reshape(-1)) if folded(word) not in stops]
        if case_change_action == "LOWER":
            kept = [word.lower() for word in kept]
        elif case_change_action == "UPPER":
            kept = [word.upper() for word in kept]
        result = np.array(kept or [""], object)
        return (result.reshape(1, -1) if x.ndim == 2 else result,)


class ZipMap(OpRun):
    """Each row of scores as a map from labels to scores."""

    op_domain = "ai.onnx.ml"

    def _run(
        self,
        x: np.ndarray,
        classlabels_int64s: Sequence[int] | None = None,
        classlabels_strings: Sequence[str] | None = None,
    ) -> tuple[list[dict[int | str, float]]]:
        labels = list(classlabels_strings or classlabels_int64s or ())
        rows = np.atleast_2d(x)
        if rows.shape[-1] != len(labels):
            raise ValueError(f"rows of {rows.shape[-1]} scores do not match {len(labels)} labels")
        return ([dict(zip(labels, row.tolist(), strict=True)) for row in rows],)


class CategoryMapper(OpRun):
    """Strings to their numbers and numbers to their strings, with a default for all others."""

    op_domain = "ai.onnx.ml"

    def _run(
        self,
        x: np.ndarray,
        cats_int64s: Sequence[int] = (),
        cats_strings: Sequence[str] = (),
        default_int64: int = -1,
        default_string: str = "_Unused",
    ) -> tuple[np.ndarray]:
        if x.dtype.kind in "OU":
            numbers = dict(zip(cats_strings, cats_int64s, strict=True))
            found = [numbers.get(word, default_int64) for word in x.reshape(-1)]
            return (np.array(found, np.int64).reshape(x.shape),)
        words = dict(zip(cats_int64s, cats_strings, strict=True))
        found = [words.get(int(number), default_string) for number in x.reshape(-1)]
        return (np.array(found, object).reshape(x.shape),)


class CastMap(OpRun):
    """The values of a map as a row: by ascending keys, or (SPARSE) each at the place of its key."""

    op_domain = "ai.onnx.ml"

    def _run(
        self,
        x: Mapping[int, float | str],
        cast_to: str = "TO_FLOAT",
        map_form: str = "DENSE",
        max_map: int = 1,
    ) -> tuple[np.ndarray]:
        kind = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}[cast_to]
        keys = sorted(x)
        places = range(len(keys)) if map_form == "DENSE" else keys
        row = np.full(
            len(keys) if map_form == "DENSE" else max_map, "" if kind is object else 0, kind
        )
        for place, key in zip(places, keys, strict=True):
            row[place] = str(x[key]) if kind is object else float(x[key])
        return (row.reshape(1, -1),)


class Concat(OpRun):
    """Leaves room behind what it concatenates along the first dimension: a tensor that a loop adds
    to is copied now and then, not in each iteration."""

    _last: weakref.ref[np.ndarray] | None = None
    """The memory of the last result, with room behind, as long as somebody holds a result."""

    _used = 0
    """Elements of it that results have."""

    def _run(self, *arrays: np.ndarray, axis: int) -> tuple[np.ndarray]:
        first = arrays[0]
        row = (first.dtype, first.shape[1:])
        grows = axis == 0 and first.ndim and first.nbytes >= _LEAST_GROWING
        if not grows or any((array.dtype, array.shape[1:]) != row for array in arrays):
            return (np.concatenate(arrays, axis),)
        size = sum(array.size for array in arrays)
        with _GROWING:
            buffer = self._all_of(first)
            if buffer is None or size > buffer.size:
                buffer = np.empty(2 * size, first.dtype)
                self._last = weakref.ref(buffer)
                buffer[: first.size] = first.reshape(-1)
            end = first.size
            for array in arrays[1:]:
                buffer[end : end + array.size] = array.reshape(-1)
                end += array.size
            self._used = size
            return (buffer[:size].reshape(-1, *first.shape[1:]),)

    def _all_of(self, array: np.ndarray) -> np.ndarray | None:
        """The memory of the last result, where `array` is all of that."""
        buffer = None if self._last is None else self._last()
        if buffer is None or array.base is not buffer or array.size != self._used:
            return None
        same = array.ctypes.data == buffer.ctypes.data and array.flags.c_contiguous
        return buffer if same else None


_LEAST_GROWING = 1 << 16
"""Tensors of fewer bytes are copied as fast."""

_GROWING = threading.Lock()


OPERATORS: list[type[OpRun]] = [Concat, CastMap, CategoryMapper, StringNormalizer, ZipMap]
"""What the reference evaluator is given beside its own."""
