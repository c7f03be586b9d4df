"""What a compilation can be told."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from stepwell.errors import UsageError
from stepwell.tuning_record import TuningRecord

PRECISIONS = ("default", "strict", "tf32", "bf16", "fast")

ROUNDED_TO_TF32 = ("tf32", "fast")
"""Those with which GPUs may round what they multiply to tf32."""

_OPTIONAL = {
    "dump_phases_to": (str, type(None)),
    "tuning": (str, TuningRecord, type(None)),
}
"""Types of the options that may be None."""


@dataclass(frozen=True)
class CompileOptions:
    """Options of `stepwell.compile`; a dict with these keys does as well.

    `opt_level` 0 to 3; `precision` "default" or "strict" (no algorithm that sums otherwise than the
    operator says, Winograd's and Strassen's above all, and on GPUs no products of parts of f32) or
    "tf32" (GPUs multiply f32 operands of contractions with 10 bits of fraction, on tensor cores;
    sums stay f32) or "bf16" (machines that multiply bf16 round f32 operands to it, on CPUs those
    of products by weights; sums stay f32) or "fast" (tf32, and GPUs approximate exp, log, tanh and
    rsqrt by an instruction each); `flush_subnormals` whether CPUs take numbers below 1.2e-38 (f32)
    for zeros, which some are a hundred times slower with (otherwise a call does with them what its
    thread does);
    `dump_phases_to` a folder that gets the IR after each step; `memory_limit_mb` of the compiler's
    process (0: 16 GB plus four times the model); `pack_parameters` whether weights that are
    arguments of the model (those of a JAX function) are packed, which pays when most calls bring
    the same ones; `any_size` whether a model that is called with several shapes is compiled for any
    size, rather than for each; `progress` lines on a terminal; `tuning` a record of what `stepwell
    tune` measured, or the path of its file, which is read at once: on CPUs, its choices replace
    those of the cost models."""

    opt_level: int = 3
    precision: str = "default"
    flush_subnormals: bool = False
    pack_parameters: bool = True
    any_size: bool = True
    dump_phases_to: str | None = None
    use_cache: bool = True
    memory_limit_mb: int = 0
    progress: bool = True
    tuning: TuningRecord | str | None = None

    def __post_init__(self) -> None:
        if self.opt_level not in range(4):
            raise UsageError(f"opt_level is {self.opt_level}; it must be 0, 1, 2 or 3")
        if self.precision not in PRECISIONS:
            raise UsageError(
                f"precision is {self.precision!r}; it must be one of {', '.join(PRECISIONS)}"
            )
        if self.memory_limit_mb < 0:
            raise UsageError(f"memory_limit_mb is {self.memory_limit_mb}; it must not be negative")
        if isinstance(self.tuning, str):
            object.__setattr__(self, "tuning", TuningRecord.read(self.tuning))
        elif isinstance(self.tuning, dict):  # the options came as plain data
            object.__setattr__(self, "tuning", TuningRecord.from_dict(self.tuning))

    @property
    def record(self) -> TuningRecord | None:
        """The tuning record, read."""
        return self.tuning if isinstance(self.tuning, TuningRecord) else None

    def result_key(self) -> dict[str, str | int | bool]:
        """The options that change what is compiled (the others change how)."""
        chosen = self.record if self.record is not None and self.record.entries else None
        return {
            "opt_level": self.opt_level,
            "precision": self.precision,
            "flush_subnormals": self.flush_subnormals,
            "pack_parameters": self.pack_parameters,
            "tuning": chosen.digest if chosen is not None else "",
        }


def make_options(options: CompileOptions | Mapping[str, object] | None) -> CompileOptions:
    """Options from a dict; raises UsageError that names an unknown key or a wrong type."""
    if options is None:
        return CompileOptions()
    if isinstance(options, CompileOptions):
        return options
    defaults = dataclasses.asdict(CompileOptions())
    for key, value in options.items():
        if key not in defaults:
            raise UsageError(f"there is no option {key!r}; there are: {', '.join(defaults)}")
        kinds = _OPTIONAL.get(key, (type(defaults[key]),))
        if type(value) not in kinds:
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise UsageError(f"option {key} is {value!r}; it must be of type {wanted}")
    return CompileOptions(**options)  # pyright: ignore[reportArgumentType]
