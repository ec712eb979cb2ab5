"""`grpo-doctor rule`: what the rules are, and what one of them means."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grpo_doctor.cli.output import STDOUT, document_json, write_bytes
from grpo_doctor.errors import UsageError

if TYPE_CHECKING:
    from grpo_doctor.findings.view import RuleFile
    from grpo_doctor.launches.rule import Rule as LaunchRule

NAME = "rule"
SUMMARY = "list the rules, or explain one of them"
DESCRIPTION = """\
Without RULE, lists every rule: GD rules judge a recording, GL rules a launch (`grpo-doctor check`).
With RULE, explains what it means, which evidence it shows, the fix, and when the rule is wrong.
"""
EPILOG = """\
examples:
  grpo-doctor rule                     all rules
  grpo-doctor rule GD004               one rule, also by name: grpo-doctor rule straggler-rank
  grpo-doctor rule GL001               a rule of `check`
  grpo-doctor rule learning            one family; `launch` has the rules of `check`
  grpo-doctor rule --json | jq '.rules[].id'

exit codes: 0; 2 wrong usage, or no rule of that name; 4 the text can't be written.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("rule", metavar="RULE", nargs="?", help="an id, a name or a family")
    parser.add_argument("--json", action="store_true", help="as JSON (schema 1)")


def execute(options: argparse.Namespace) -> int:
    """Print; return the exit code."""
    from grpo_doctor.findings.rules import ALL  # noqa: PLC0415 - after usage errors
    from grpo_doctor.findings.selection import find  # noqa: PLC0415

    word = options.rule
    of_launches = _of_launches(word)
    chosen = ALL if not word else find(word) if not of_launches else ()
    entries = [*map(_entry, chosen), *map(_launch_entry, of_launches)]
    if options.json:
        write_bytes(document_json({"schema": 1, "rules": entries}), STDOUT)
    elif not word or len(entries) > 1:
        write_bytes(_listed(entries).encode(), STDOUT)
    elif chosen:
        write_bytes(_explained(entries[0]["text"]).encode(), STDOUT)
    else:
        known = ", ".join(of_launches[0].domain.frameworks)
        text = "{id}: {title}\n\n{text}\n\nFor launches of: ".format(**entries[0])
        write_bytes(f"{text}{known}\n".encode(), STDOUT)
    return 0


def _of_launches(word: str | None) -> tuple[LaunchRule, ...]:
    """Return the rules of launches that a word names; all where there is none."""
    from grpo_doctor.launches.rules import load  # noqa: PLC0415

    if not word:
        return load()
    named = word.upper()
    if named.startswith("GL") and named[2:].isdigit():
        named = f"GL{int(named[2:]):03}"
    if word.lower() == "launch" or named == "GL":
        return load()
    chosen = tuple(rule for rule in load() if named == rule.id or word.lower() == rule.slug)
    if named.startswith("GL") and not chosen:
        raise UsageError(f"no rule is called {word!r}. `grpo-doctor rule launch` lists all.")
    return chosen


def _launch_entry(rule: LaunchRule) -> dict[str, Any]:
    title, _, text = rule.text.partition("\n")
    return {"id": rule.id, "slug": rule.slug, "title": title, "family": "launch", "needs": [],
            "text": text.strip()}  # fmt: skip


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


def _explained(text: str) -> str:
    from grpo_doctor.cli.rendering import markdown  # noqa: PLC0415

    lines = [line for line in text.splitlines() if not line.startswith("<!--")]
    return markdown("\n".join(lines), sys.stdout)


def _listed(entries: Sequence[dict[str, Any]]) -> str:
    width = max(len(entry["family"]) for entry in entries)
    lines = [f"{e['id']}  {e['family']:<{width}}  {e['title'].rstrip('.')}" for e in entries]
    return "\n".join([*lines, "", "`grpo-doctor rule ID` explains a rule.", ""])
