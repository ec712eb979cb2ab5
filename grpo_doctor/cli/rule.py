"""`grpo-doctor rule`: what the rules are, and what one of them means."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grpo_doctor.cli.output import STDOUT, document_json, write_bytes

if TYPE_CHECKING:
    from grpo_doctor.findings.view import RuleFile

NAME = "rule"
SUMMARY = "list the rules, or explain one of them"
DESCRIPTION = """\
Without RULE lists every rule. With one it says what the rule means, why the thing costs time, which
evidence is shown, what the fix is, when the rule is wrong, and what a recording must hold for it.
"""
EPILOG = """\
examples:
  grpo-doctor rule                     all of them
  grpo-doctor rule GD004               one, also by its name: grpo-doctor rule straggler-rank
  grpo-doctor rule learning            one family
  grpo-doctor rule --json | jq '.rules[].id'

exit codes: 0; 2 wrong usage, or no rule of that name; 4 the text can't be written.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("rule", metavar="RULE", nargs="?", help="an id, a name or a family")
    parser.add_argument("--json", action="store_true", help="as JSON (schema 1)")


def execute(options: argparse.Namespace) -> int:
    """Prints; returns the exit code."""
    from grpo_doctor.findings.rules import ALL  # noqa: PLC0415 - after usage errors
    from grpo_doctor.findings.selection import find  # noqa: PLC0415

    chosen = find(options.rule) if options.rule else ALL
    if options.json:
        document = {"schema": 1, "rules": [_entry(rule) for rule in chosen]}
        write_bytes(document_json(document), STDOUT)
    elif options.rule and len(chosen) == 1:
        write_bytes(_explained(chosen[0]).encode(), STDOUT)
    else:
        write_bytes(_listed(chosen).encode(), STDOUT)
    return 0


def _entry(rule: RuleFile) -> dict[str, Any]:
    from grpo_doctor.findings.docs import rule_text  # noqa: PLC0415

    meta = rule.RULE
    return {
        "id": meta.id,
        "slug": meta.slug,
        "title": meta.title,
        "family": meta.family,
        "needs": [signal.text for signal in meta.needs],
        "text": rule_text(rule),
    }


def _explained(rule: RuleFile) -> str:
    from grpo_doctor.cli.rendering import markdown  # noqa: PLC0415
    from grpo_doctor.findings.docs import rule_text  # noqa: PLC0415

    lines = [line for line in rule_text(rule).splitlines() if not line.startswith("<!--")]
    return markdown("\n".join(lines), sys.stdout)


def _listed(rules: Sequence[RuleFile]) -> str:
    width = max(len(rule.RULE.family) for rule in rules)
    lines = [f"{r.RULE.id}  {r.RULE.family:<{width}}  {r.RULE.title}" for r in rules]
    return "\n".join([*lines, "", "grpo-doctor rule ID says more about one.", ""])
