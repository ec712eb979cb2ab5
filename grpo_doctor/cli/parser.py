"""The argument parser, made from the list of commands."""

from __future__ import annotations

import argparse
import difflib
from typing import NoReturn

from grpo_doctor import __version__
from grpo_doctor.cli import attach, check, compare, report, rule, run, schema, selftest, whatif

COMMANDS = (run, check, attach, report, compare, rule, whatif, schema, selftest)

_DESCRIPTION = """\
A diagnostic profiler for GRPO runs: where the step time goes, what is wrong, which flags fix it.
"""
_EPILOG = """\
examples:
  grpo-doctor run                                 the bundled trainer's demo, recorded
  grpo-doctor run -- --max_steps 20 --deepspeed zero3
  grpo-doctor run -- swift rlhf --rlhf_type grpo ...
  grpo-doctor check --gpus 8xA100-80G -- swift rlhf ...   does it fit, is it sane
  grpo-doctor attach                              why a job on this host does not move
  grpo-doctor report grpo-doctor-out/20261121-100000
  grpo-doctor report trace.json --json
  grpo-doctor rule GD004                          what a finding means
  grpo-doctor whatif trace.json --set offload.optimizer=false
  grpo-doctor compare before/trace.json after/trace.json
  grpo-doctor selftest                            does all that work on this machine

`grpo-doctor COMMAND --help` says more.
"""


class Parser(argparse.ArgumentParser):
    """argparse with its errors in our form: what is wrong, and the nearest thing that is right."""

    def error(self, message: str) -> NoReturn:
        """Prints one line and exits with 2."""
        self.exit(2, f"{self.prog}: {message}{self._nearest(message)}\n{self._more()}")

    def _nearest(self, message: str) -> str:
        command = message.removeprefix("argument COMMAND: invalid choice: '").partition("'")[0]
        if command != message:
            names = [module.NAME for module in COMMANDS]
            closest = difflib.get_close_matches(command, names, n=1)
            return f". Did you mean {closest[0]}?" if closest else ""
        if not message.startswith("unrecognized arguments: "):
            return ""
        arguments = message.removeprefix("unrecognized arguments: ")
        unknown = arguments.split()[0].partition("=")[0]
        options = [option for action in self._actions for option in action.option_strings]
        close = difflib.get_close_matches(unknown, options, n=1)
        if close:
            return f". Did you mean {close[0]}?"
        if self.prog.endswith(" run"):
            return f". The job's own arguments stand after `--`: {self.prog} -- {arguments}"
        return ""

    def _more(self) -> str:
        return f"Try: {self.prog} --help\n"


def make_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = Parser(
        prog="grpo-doctor",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"grpo-doctor {__version__}")
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
        takes_job = command in (run, check)
        sub.set_defaults(run=command.execute, parser=sub, name=command.NAME, takes_job=takes_job)
    return parser
