"""The host program of a model on a GPU as data: launches, copies, and jumps on conditions.

An artifact for CUDA holds one; runtime/cuda_program.c runs it. This module imports no MLIR.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

LAUNCH, COPY, LOAD, JUMP, JUMP_UNLESS, CALL = range(6)
"""Instructions, each a run of integers:

    LAUNCH kernel blocks threads shared resident cluster count maps place*count map*maps
    COPY source target bytes                           LOAD slot place
    JUMP position                                      JUMP_UNLESS slot position
    CALL function batch buffers works arguments buffer*buffers work*works argument*arguments

A place is three integers: a base, the number of an input or output, and an offset in bytes. LOAD
reads a byte of device memory into one of the program's slots; positions count integers. A launch
asks for `shared` bytes of shared memory beside what the kernel declares; where `resident` is not 0,
it makes no more than so many blocks a multiprocessor. `cluster` neighbouring blocks run together. A
map describes an array of which the GPU copies boxes by itself, or what a window sees
(cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col; innermost dimension first, strides in bytes,
windows in all dimensions between the first and last):

    place type rank TILED  size*rank stride*(rank-1) box*rank
    place type rank IM2COL size*rank stride*(rank-1) lower*(rank-2) upper*(rank-2) step*(rank-2)
                           channels pixels

CALL lets the host call a library function (by its number among those of the artifact) on each
matrix of a batch. A buffer is a place, its bytes, and COPIED_IN, COPIED_OUT or both; `work` is the
bytes of working memory, for all matrices the same. An argument of the function is four integers:

    NO_ADDRESS 0 0 0                         LITERAL and two integers whose 16 bytes it points to, 0
    BUFFER_PLACE buffer offset stride        WORK_PLACE work offset 0

with offset and stride, from one matrix to the next, in bytes."""

TILED, IM2COL = range(2)
"""Kinds of maps."""

LAUNCH_HEADER, CALL_HEADER, _MAP_HEADER = 9, 6, 6

NO_ADDRESS, LITERAL, BUFFER_PLACE, WORK_PLACE = range(4)
"""Kinds of arguments of library functions."""

COPIED_IN, COPIED_OUT = 1, 2
"""What happens to a buffer before and after the call."""

INPUT, OUTPUT, WEIGHTS, ARENA = range(4)
"""Bases of places."""

_LENGTHS = {COPY: 8, LOAD: 5, JUMP: 2, JUMP_UNLESS: 3}


def instructions(code: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """The instructions of a launch program in the order of its text: operation, and position."""
    at = 0
    while at < len(code):
        yield code[at], at
        length = _VARIABLE_LENGTHS.get(code[at])
        at += _LENGTHS[code[at]] if length is None else length(code, at)


def _launch_length(code: tuple[int, ...], at: int) -> int:
    end = at + LAUNCH_HEADER + 3 * code[at + 7]
    for _ in range(code[at + 8]):
        rank, kind = code[end + 4 : end + 6]
        end += _MAP_HEADER + (3 * rank - 1 if kind == TILED else 5 * rank - 5)
    return end - at


def _call_length(code: tuple[int, ...], at: int) -> int:
    buffers, works, arguments = code[at + 3 : at + CALL_HEADER]
    return CALL_HEADER + 5 * buffers + works + 4 * arguments


_VARIABLE_LENGTHS = {LAUNCH: _launch_length, CALL: _call_length}


def timed_kernels(code: tuple[int, ...]) -> list[int | None]:
    """What is timed, in the order of the program's text: the number of the kernel of a launch; None
    for the call of a library function."""
    return [
        code[at + 1] if operation == LAUNCH else None
        for operation, at in instructions(code)
        if operation in _VARIABLE_LENGTHS
    ]


@dataclass(frozen=True)
class Image:
    """The code of one kernel: where its PTX and its cubin stand among the parts of the artifact's
    code (no cubin: None). One that is `early` waits itself for the kernel before it, and may begin
    while that ends."""

    kernel: str
    ptx: int
    cubin: int | None
    early: bool = False


@dataclass(frozen=True)
class LaunchProgram:
    """What the GPU does in one call. `slots` counts conditions; `architecture` is the target's,
    `sm_90a`; `toolkit` the first CUDA release whose driver takes the PTX; with `exact`, no other
    compute capability than `capability` runs it, else later ones do. `findings` are sentences on
    what is wrong with kernels (stepwell.inspection.gpu_lint). So many `zeroed_bytes` of the arena
    are zeros before the first call; each call leaves them so."""

    code: tuple[int, ...]
    slots: int
    images: tuple[Image, ...]
    architecture: str
    capability: tuple[int, int]
    exact: bool
    toolkit: tuple[int, int]
    findings: tuple[str, ...] = ()
    zeroed_bytes: int = 0

    @staticmethod
    def from_dict(data: Mapping) -> LaunchProgram:
        """A program that `dataclasses.asdict` made plain data of."""
        images = tuple(Image(**image) for image in data["images"])
        lists = {name: tuple(data[name]) for name in ("code", "capability", "toolkit", "findings")}
        return LaunchProgram(**{**data, **lists, "images": images})

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether a device of this compute capability runs the code."""
        return capability == self.capability if self.exact else capability >= self.capability
