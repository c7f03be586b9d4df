"""The side table of weights: constant data by resource name, beside the module that uses it.

Large constants stand in the IR as `dense_resource<name>`; the bindings cannot read such data back,
so the arrays live here too, under the same name, as views of the mapped source file where possible.
"""

from __future__ import annotations

import re

import numpy as np

from stepwell import dtypes
from stepwell.dense import has_buffer, is_complex, read_dense, read_resources
from stepwell.errors import LoweringError
from stepwell.mlir import ir, nested_operations

INLINE_ELEMENTS = 16
"""Constants up to this many elements, and splats, are written into the IR itself."""

_RESOURCE = re.compile(r'dense_resource<("?)([^">]+)\1>')


class WeightTable:
    """Arrays by resource name; one table belongs to one module."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._arrays:
            raise LoweringError(f"the data of weight {name} is not at hand")
        return self._arrays[name]

    def __len__(self) -> int:
        return len(self._arrays)

    def names(self) -> list[str]:
        """All resource names, in order of entry."""
        return list(self._arrays)

    def keep_only(self, names: set[str]) -> None:
        """Forget all arrays but `names`."""
        self._arrays = {name: a for name, a in self._arrays.items() if name in names}

    def add(self, hint: str, array: np.ndarray) -> str:
        """Enter `array` under a fresh name made from `hint`; returns the name."""
        base = re.sub(r"[^A-Za-z0-9_.]", "_", hint) or "weight"
        if not base[0].isalpha():
            base = "w" + base
        name, count = base, 0
        while name in self._arrays:
            count += 1
            name = f"{base}_{count}"
        self._arrays[name] = array
        return name

    def attribute(self, array: np.ndarray, hint: str = "weight") -> ir.Attribute:
        """The attribute of a constant: inline where small or a splat, else a resource entered here.

        `array` may be a view of a mapped file: its bytes are not copied when it is contiguous.
        """
        kind = dtypes.tensor_type(array.shape, array.dtype)
        if array.size and is_splat(array):
            return _dense(array.reshape(-1)[:1].reshape(()), kind, splat=True)
        small = array.size <= INLINE_ELEMENTS and has_buffer(array.dtype)
        if small or array.dtype == np.bool_:
            return _dense(array, kind, splat=False)
        data = np.ascontiguousarray(array)
        name = self.add(hint, data)
        return ir.DenseResourceElementsAttr.get_from_buffer(
            data.reshape(-1).view(np.uint8).data, name, kind
        )

    def name_of(self, attribute: ir.Attribute) -> str | None:
        """The table's name for a resource attribute; None for inline data and unknown names."""
        if isinstance(attribute, ir.DenseElementsAttr):
            return None
        match = _RESOURCE.match(str(attribute)[:400])
        return match.group(2) if match and match.group(2) in self._arrays else None

    def array(self, attribute: ir.Attribute) -> np.ndarray:
        """The data of a constant's attribute: from this table or from the IR itself (splats
        expanded as broadcast views). Raises LoweringError when a resource is not in the table."""
        match = (
            None
            if isinstance(attribute, ir.DenseElementsAttr)
            else _RESOURCE.match(str(attribute)[:400])
        )
        if match:
            if match.group(2) not in self._arrays:
                raise LoweringError(
                    f"the data of dense_resource<{match.group(2)}> cannot be read from IR text; "
                    "write it as dense<...> or compile the model from its own file"
                )
            return self._arrays[match.group(2)]
        return _read_dense(attribute)


def enter_resources(module: ir.Module, text: bytes, weights: WeightTable) -> None:
    """Enter the data of `dense_resource` constants, printed at the end of `text`, as weights."""
    blobs = read_resources(text)
    for op in nested_operations(module.operation):
        if op.name != "stablehlo.constant" or is_complex(op):
            continue
        value = op.attributes["value"]
        dense = isinstance(value, ir.DenseElementsAttr)
        match = None if dense else _RESOURCE.match(str(value)[:400])
        if match and match[2] in blobs and match[2] not in weights:
            kind = ir.RankedTensorType(op.results[0].type)
            data = np.frombuffer(blobs[match[2]], dtypes.to_numpy(kind.element_type))
            weights.add(match[2], data.reshape(kind.shape))


def is_splat(array: np.ndarray) -> bool:
    """Whether all elements have the same bits (checked cheaply: first against last, then all)."""
    if array.size <= 1:
        return True
    flat = array.reshape(-1)
    if flat[:1].tobytes() != flat[-1:].tobytes():
        return False
    first = flat[:1].tobytes()
    step = 1 << 20
    width = flat.dtype.itemsize
    return (
        all(
            flat[i : i + step].tobytes() == first * (min(i + step, flat.size) - i)
            for i in range(0, flat.size, step)
        )
        if width
        else False
    )


def _dense(array: np.ndarray, kind: ir.RankedTensorType, *, splat: bool) -> ir.Attribute:
    if splat:
        return ir.DenseElementsAttr.get_splat(kind, _scalar(array.item(), kind.element_type))
    if array.size == 0:
        return ir.Attribute.parse(f"dense<> : {kind}")
    element, values = kind.element_type, array.reshape(-1).tolist()
    if isinstance(element, ir.IntegerType):  # few are different, of masks for instance
        scalars = {value: _scalar(value, element) for value in set(values)}
        return ir.DenseElementsAttr.get([scalars[value] for value in values], kind)
    return ir.DenseElementsAttr.get([_scalar(value, element) for value in values], kind)


def _scalar(value: bool | int | float, element: ir.Type) -> ir.Attribute:
    if isinstance(element, ir.IntegerType):
        if element.width == 64 and element.is_unsigned and value >= 1 << 63:
            return ir.Attribute.parse(f"{int(value)} : {element}")
        return ir.IntegerAttr.get(element, int(value))
    return ir.FloatAttr.get(element, float(value))


def _read_dense(attribute: ir.Attribute) -> np.ndarray:
    kind = ir.RankedTensorType(attribute.type)  # pyright: ignore[reportAttributeAccessIssue]
    dtype = dtypes.to_numpy(kind.element_type)
    shape = tuple(kind.shape)
    dense = ir.DenseElementsAttr(attribute)
    if dense.is_splat:
        value = dense.get_splat_value()
        is_float = dtypes.is_float(dtype)
        raw = ir.FloatAttr(value).value if is_float else ir.IntegerAttr(value).value
        return np.broadcast_to(np.asarray(raw).astype(dtype), shape)
    return read_dense(dense)
