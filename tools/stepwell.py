"""`stepwell`: the command line. Each command stands in tools/commands and is imported when used."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

COMMANDS = {
    "bench": ("bench:bench", "Time a model, alone or beside other runtimes."),
    "check": ("check:check", "List every operator of a model that is not supported."),
    "compare": ("compare:compare_command", "Compare a model with a reference, layer by layer."),
    "compile": ("compile:compile_command", "Compile a model into an artifact, or print a level."),
    "explain": ("explain:explain_command", "Show what compiling a model decides, and why."),
    "export": ("export:export", "Write a model as a StableHLO portable artifact."),
    "inspect": ("inspect:inspect", "Show what an artifact says about itself."),
    "profile": ("profile:profile_command", "Show one run on a line of time, thread by thread."),
    "run": ("run:run", "Run a model or an artifact on given or random inputs."),
    "targets": ("about:targets_command", "List the machines that code can be generated for."),
    "tune": ("tune:tune_command", "Measure other choices than the cost models', for a record."),
    "version": ("about:version", "Show the versions of Stepwell and of what it stands on."),
}
"""Where each command is, and what `--help` says of it without importing it."""


class _LazyGroup(click.Group):
    """A group whose commands are imported when they run: `--help` has to be quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group("stepwell", cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Compile machine-learning models to machine code, with every step in view."""


def load_command(name: str) -> click.Command:
    """The command called `name`."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    return getattr(importlib.import_module(f"stepwell.tools.commands.{module}"), attribute)


def run_command(command: click.Command, argv: Sequence[str] | None = None) -> int:
    """Run `command`; the exit code is 0, 1 (failed), 2 (usage) or 130 (interrupted).

    Errors go to stderr as one line, `error: sentence`; STEPWELL_TRACEBACK=1 shows where from.
    """
    if os.environ.get("STEPWELL_TRACEBACK") == "1":
        return command.main(argv, command.name, standalone_mode=False) or 0
    try:
        return command.main(argv, command.name, standalone_mode=False) or 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        return _fail(command, error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:  # the reader of stdout has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        return _report(command, error)


def _report(command: click.Command, error: Exception) -> int:
    from stepwell import errors

    if isinstance(error, errors.Error):
        return _fail(command, str(error), 2 if isinstance(error, errors.UsageError) else 1)
    if isinstance(error, OSError):
        reason = (error.strerror or str(error)).lower()
        return _fail(command, f"{error.filename}: {reason}" if error.filename else reason, 1)
    text = f"internal error, {type(error).__name__}: {error} (STEPWELL_TRACEBACK=1 shows where)"
    return _fail(command, text, 1)


def _fail(command: click.Command, message: str, code: int) -> int:
    """Messages that name a file or node themselves have their `error:` already."""
    first = message.partition("\n")[0]
    prefix = "" if ": error: " in first else f"{command.name}: error: "
    print(f"{prefix}{message}", file=sys.stderr)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `stepwell`."""
    return run_command(cli, argv)


if __name__ == "__main__":
    sys.exit(main())
