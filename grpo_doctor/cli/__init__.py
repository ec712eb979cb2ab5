"""The command line: one module per command, dispatched here."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from grpo_doctor.cli.console import say
from grpo_doctor.errors import GrpoDoctorError

_INTERRUPTED = 130
_NOTHING_LOST = "interrupted; nothing that was recorded is lost."


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. A user's mistake is a message, no traceback."""
    options: argparse.Namespace | None = None
    try:
        options, theirs = _parsed(list(sys.argv[1:] if argv is None else argv))
        return int(options.run(options, theirs))
    except GrpoDoctorError as error:
        say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        say(getattr(options, "interrupted", _NOTHING_LOST) if options else "interrupted.")
        return _INTERRUPTED
    except MemoryError:
        say("not enough memory for this recording; use a machine with more, or a shorter one.")
        return GrpoDoctorError.exit_code


def _parsed(arguments: list[str]) -> tuple[argparse.Namespace, list[str] | None]:
    """Our own arguments read, and the job's."""
    # A tenth of a second, in which Ctrl-C is to be no traceback either.
    from grpo_doctor.cli.parser import make_parser  # noqa: PLC0415

    ours, theirs = _split(arguments)
    options, unknown = make_parser().parse_known_args(ours)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options, theirs


def _split(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """Our own arguments, and the job's: everything after the first `--`; None without one."""
    if "--" not in arguments:
        return arguments, None
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]
