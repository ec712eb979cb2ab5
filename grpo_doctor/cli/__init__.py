"""The command line: one module per command, dispatched here."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence

from grpo_doctor.cli.confined import in_child, is_wanted
from grpo_doctor.cli.console import Quiet, say
from grpo_doctor.errors import GrpoDoctorError, UsageError

_INTERRUPTED = 130
_NOTHING_LOST = "interrupted; nothing that was recorded is lost."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. A user's mistake is a message, no traceback."""
    options: argparse.Namespace | None = None
    try:
        options = _parsed(list(sys.argv[1:] if argv is None else argv))
        # With arguments given we are part of another program, which is not doubled.
        if argv is None and is_wanted(options) and (code := in_child()) is not None:
            return code
        return int(options.run(options))
    except GrpoDoctorError as error:
        say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        say(getattr(options, "interrupted", _NOTHING_LOST) if options else "interrupted.")
        return _INTERRUPTED
    except MemoryError:
        say("not enough memory for this input; use a machine with more, or a smaller one.")
        return GrpoDoctorError.exit_code
    except RecursionError:
        say("the input nests too deeply to be read; check the file that you gave.")
        return GrpoDoctorError.exit_code


def _parsed(arguments: list[str]) -> argparse.Namespace:
    """Our own arguments read; `job_arguments` is what follows the first `--`, None without one."""
    # A tenth of a second, in which Ctrl-C is to be no traceback either.
    from grpo_doctor.cli.parser import make_parser  # noqa: PLC0415

    own = list(itertools.takewhile(lambda argument: argument != "--", arguments))
    parser = make_parser()
    if not own:
        parser.exit(UsageError.exit_code, parser.format_help())
    options, unknown = parser.parse_known_args([*own[1:], "--help"] if own[0] == "help" else own)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    Quiet.wanted = options.quiet
    options.job_arguments = arguments[len(own) + 1 :] if len(own) < len(arguments) else None
    if options.job_arguments and not options.takes_job:
        raise UsageError(f"{options.name} takes no arguments after `--`.")
    return options
