"""Options of every command that runs rules: which of them, at what price, and when to fail."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from grpo_doctor.errors import UsageError

if TYPE_CHECKING:
    from grpo_doctor.document import Price
    from grpo_doctor.findings.selection import Selection

FOUND = 6
# The words alone: what draws reports takes longer to import than `--help` to print.
SEVERITIES = ("high", "medium", "low", "info")


def add_rule_options(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    group = parser.add_argument_group("rules")
    for option, text in (("--select", "run only these rules"), ("--ignore", "skip these rules")):
        group.add_argument(
            option,
            action="append",
            default=[],
            metavar="RULE[,RULE]",
            help=f"{text}: ids (GD004), prefixes of ids (GD05), names or families (learning)",
        )
    group.add_argument(
        "--fail-on",
        choices=SEVERITIES,
        metavar="SEVERITY",
        help=f"exit with {FOUND} after writing if a finding has this severity or above: "
        "high, medium, low or info",
    )
    group.add_argument(
        "--price",
        metavar="AMOUNT",
        help="price of one GPU-hour, such as 2.49 or 2.49EUR, to show waste in money",
    )


def selection_of(options: argparse.Namespace) -> Selection:
    """Return the rules to run. Raises UsageError for a word that names none."""
    from grpo_doctor.findings.selection import choose  # noqa: PLC0415 - after usage errors

    for option, values in (("--select", options.select), ("--ignore", options.ignore)):
        if values and not _words(values):
            raise UsageError(f"{option} names no rule. `grpo-doctor rule` lists all.")
    selection = choose(_words(options.select), _words(options.ignore))
    if not selection.chosen:
        raise UsageError(
            "--select and --ignore leave no rule to run; remove one of the two options."
        )
    return selection


def price_of(options: argparse.Namespace) -> Price | None:
    """Return the price of a GPU-hour, if one is given. Raises UsageError if it is not an amount."""
    if options.price is None:
        return None
    from grpo_doctor.document import Price  # noqa: PLC0415

    text = options.price.strip()
    digits = text.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
    try:
        amount = float(digits)
    except ValueError:
        amount = math.nan
    if not 0 < amount < math.inf:
        raise UsageError(f"--price {text}: give an amount above 0, such as 2.49 or 2.49EUR.")
    return Price(amount, text[len(digits) :].upper() or "USD")


def fail_on_code(severity: str | None, present: Iterable[str]) -> int:
    """6 where anything of this severity or above is present, else 0; also without a severity."""
    if severity is None:
        return 0
    severe = SEVERITIES[: SEVERITIES.index(severity) + 1]
    return 0 if set(severe).isdisjoint(present) else FOUND


def _words(values: list[str]) -> list[str]:
    return [word for value in values for word in value.replace(",", " ").split()]
