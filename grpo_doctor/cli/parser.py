"""The argument parser, made from the list of commands."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from typing import Any, NoReturn

from grpo_doctor import __version__
from grpo_doctor.cli import (
    attach,
    check,
    compare,
    diagnose,
    mcp,
    report,
    rule,
    run,
    schema,
    selftest,
    treat,
    watch,
    whatif,
)
from grpo_doctor.cli.output import STDOUT, write_bytes
from grpo_doctor_probes.procs.printable import visible

COMMANDS = (
    run,
    check,
    attach,
    diagnose,
    treat,
    watch,
    report,
    compare,
    rule,
    whatif,
    schema,
    mcp,
    selftest,
)

_DESCRIPTION = """\
A profiler and hang debugger for GRPO runs: where step time goes, what is wrong, which flags fix it.
"""
_EPILOG = """\
examples:
  grpo-doctor run                                   the bundled trainer's demo, recorded
  grpo-doctor run -- bash train.sh                  your own job, recorded
  grpo-doctor check --gpus 8xA100-80G -- train.sh   does it fit in memory, is it set up well
  grpo-doctor attach                                why a job on this host is stuck
  grpo-doctor diagnose train.log                    what a log or traceback shows
  grpo-doctor treat -- bash train.sh                try what gains, keep what proves it
  grpo-doctor watch                                 a run while it happens
  grpo-doctor report                                the report of the newest run
  grpo-doctor report trace.json --json
  grpo-doctor rule GD004                            what a finding means
  grpo-doctor whatif trace.json --set offload.optimizer=false
  grpo-doctor compare before/trace.json after/trace.json
  grpo-doctor selftest                              does grpo-doctor work on this machine

`grpo-doctor help COMMAND` shows the options of a command.
"""


class Completion(argparse.Action):
    """Print the completion script of a shell, and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *values: Any) -> NoReturn:
        """Print it, made by shtab from the parser itself."""
        try:
            import shtab  # noqa: PLC0415 - a library for this alone
        except ImportError:
            parser.error("the completion script needs shtab: pip install shtab")
        write_bytes(shtab.complete(parser, values[1]).encode(), STDOUT)
        parser.exit()


class Parser(argparse.ArgumentParser):
    """argparse with its errors in our form: what is wrong, and the nearest thing that is right."""

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        text = f"{self.prog}: {message}{self._nearest(message)}"
        self.exit(2, f"{visible(' '.join(text.split()))}\nTry: {self.prog} --help\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            names = ", ".join(known)
            raise argparse.ArgumentError(
                action, f"{value!r} is none of {names}{_did_you_mean(str(value), known)}"
            )

    def _nearest(self, message: str) -> str:
        if not message.startswith("unrecognized arguments: "):
            return ""
        arguments = message.removeprefix("unrecognized arguments: ")
        unknown = arguments.split()[0].partition("=")[0]
        options = [option for action in self._actions for option in action.option_strings]
        close = _did_you_mean(unknown, options)
        if close or not self.prog.endswith((" run", " check", " treat")):
            return close
        job = arguments if self.prog.endswith(" run") else "..."
        return f". Put the job's own arguments after `--`: {self.prog} -- {job}"


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f". Did you mean {close[0]}?" if close else ""


def make_parser() -> argparse.ArgumentParser:
    """Return the whole command line."""
    parser = Parser(
        prog="grpo-doctor",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"grpo-doctor {__version__}"
    parser.add_argument("-V", "--version", action="version", version=version)
    parser.add_argument(
        "--print-completion",
        action=Completion,
        choices=("bash", "zsh", "tcsh"),
        help="print the completion script of a shell (needs `pip install shtab`)",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.NAME,
            help=command.SUMMARY,
            description=command.DESCRIPTION,
            epilog=command.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(sub)
        sub.add_argument(
            "-q", "--quiet", action="store_true", help="print results and problems, no progress"
        )
        takes_job = command in (run, check, treat)
        sub.set_defaults(run=command.execute, parser=sub, name=command.NAME, takes_job=takes_job)
    return parser
