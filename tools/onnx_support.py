"""Writes docs/onnx-support.md: what of ONNX can be compiled, from the registry and the schemas.

python -m stepwell.tools.onnx_support > docs/onnx-support.md
"""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator

import onnx
from onnx import defs

from stepwell.frontends.onnx import registry
from stepwell.frontends.onnx.functions import has_function
from stepwell.frontends.onnx.gradient import expand_gradients
from stepwell.frontends.onnx.host_operators import ON_HOST

_HEAD = """# ONNX operators

This page is made by `python -m stepwell.tools.onnx_support > docs/onnx-support.md`.

*Versions* are those of the operator in its domain that an imported model may use. *Element types*
are what the standard allows of what Stepwell compiles: every type but strings and complex numbers.
Nodes on strings run on the host, in onnx's reference implementation.
*Function* operators are compiled from their body in the standard. `stepwell check model.onnx` says
what of a model cannot be compiled, node by node.
"""

_GROUPS = {
    "floats": ("float", "double", "float16", "bfloat16"),
    "integers": (
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    ),
    "float8": ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"),
    "int4": ("int4", "uint4"),
    "int2": ("int2", "uint2"),
}  # fmt: skip
"""Names for groups of types, used where an operator takes the whole group."""

_EXPANDED = {"Gradient": expand_gradients}
"""Operators that are replaced by others before the import."""

_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft")


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(line for domain in _DOMAINS for line in _domain(domain))])


def _domain(domain: str) -> Iterator[str]:
    builds: dict[str, list[registry.Operator]] = defaultdict(list)
    for entry in registry.registered():
        if entry.domain == domain:
            builds[entry.name].append(entry)
    schemas = _schemas(domain)
    functions = [name for name in schemas if name not in builds and _has_body(name, domain)]
    expanded = [name for name in schemas if name in _EXPANDED]
    yield f"## {domain or 'ai.onnx'}"
    yield ""
    yield "| operator | versions | element types | notes |"
    yield "| --- | --- | --- | --- |"
    for name in sorted({*builds, *functions, *expanded}):
        entries, versions = builds.get(name, []), schemas.get(name, [])
        build = entries[-1].build if entries else _EXPANDED.get(name)
        note = _note(build) if build else "function"
        yield f"| {name} | {_versions(entries, versions)} | {_types(versions)} | {note} |"
    missing = sorted(set(schemas) - set(builds) - set(functions) - set(expanded))
    for words, names in (
        ("On the host", [name for name in missing if name in ON_HOST]),
        ("Not supported", [name for name in missing if name not in ON_HOST]),
    ):
        if names:
            yield ""
            yield f"{words}: {', '.join(names)}."
    yield ""


def _schemas(domain: str) -> dict[str, list[defs.OpSchema]]:
    """All versions of the domain's operators that the installed onnx knows, deprecated ones out."""
    found: dict[str, list[defs.OpSchema]] = defaultdict(list)
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == domain:
            found[schema.name].append(schema)
    ordered = {name: sorted(s, key=lambda v: v.since_version) for name, s in found.items()}
    return {name: s for name, s in ordered.items() if not s[-1].deprecated}


def _has_body(name: str, domain: str) -> bool:
    return not domain and has_function(onnx.helper.make_node(name, [], []))


def _versions(entries: list[registry.Operator], schemas: list[defs.OpSchema]) -> str:
    first = min((entry.since for entry in entries), default=1)
    known = [s.since_version for s in schemas if not s.deprecated]
    usable = [version for version in known if version >= first] or sorted(
        entry.since for entry in entries
    )
    return ", ".join(map(str, usable))


def _types(schemas: list[defs.OpSchema]) -> str:
    if not schemas:
        return ""
    allowed = {
        text.removeprefix("tensor(").removesuffix(")")
        for constraint in schemas[-1].type_constraints
        for text in constraint.allowed_type_strs
        if text.startswith("tensor(")
    }
    words: list[str] = []
    for group, members in _GROUPS.items():
        if allowed.issuperset(members):
            words.append(group)
            allowed -= set(members)
    rest = sorted(name for name in allowed if name != "string" and not name.startswith("complex"))
    return ", ".join(words + rest)


def _note(build: Callable[..., object]) -> str:
    """The first paragraph of a function's docstring; for those made from tables, nothing."""
    if isinstance(build, functools.partial):
        return ""
    text = inspect.getdoc(build) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
