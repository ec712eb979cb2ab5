"""What the command lines of the trainer and of its server share: parsing, and errors that help."""

from __future__ import annotations

import argparse
import difflib
from typing import TYPE_CHECKING, Any, NoReturn

from grpo_doctor_trainer.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are `ConfigError`s; absent flags leave no attribute."""

    def __init__(self, *, prog: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=prog,
            usage=f"python -m {prog} [--flag value ...]",
            description=description,
            epilog=epilog,
            formatter_class=_help_layout,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )

    def error(self, message: str) -> NoReturn:
        """Raises instead of ending the process."""
        raise ConfigError(message.removeprefix("argument "))

    def given(self, arguments: Sequence[str], known: Collection[str]) -> dict[str, Any]:
        """Gives the values of the flags that are there.

        Args:
            arguments: the command line.
            known: names of flags, for the nearest match of one that does not exist.

        Raises:
            ConfigError: an unknown flag, or a value that is none.
            SystemExit: after `--help`, with code 0.
        """
        found, unknown = self.parse_known_args(list(arguments))
        if unknown:
            raise ConfigError(_unknown_message(unknown[0], known))
        return vars(found)


def boolean(text: str) -> bool:
    """Reads the value of a switch."""
    if text.lower() not in _BOOLEANS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _BOOLEANS[text.lower()]


def _help_layout(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=36, width=100)


def _unknown_message(argument: str, known: Collection[str]) -> str:
    if not argument.startswith("-"):
        return f"{argument!r} does not belong to a flag; see --help"
    name = argument.lstrip("-").split("=", 1)[0]
    close = difflib.get_close_matches(name.replace("-", "_"), known, n=1, cutoff=0.5)
    hint = f"did you mean --{close[0]}?" if close else "see --help for all flags"
    return f"unknown flag --{name}: {hint}"
