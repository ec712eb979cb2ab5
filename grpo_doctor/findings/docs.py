"""Writes `docs/rules/` from the rule files: `python -m grpo_doctor.findings.docs [FOLDER]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from grpo_doctor.findings.rule import Rule
from grpo_doctor.findings.rules import ALL
from grpo_doctor.findings.shared import BUNDLED_ONLY
from grpo_doctor.findings.view import RuleFile
from grpo_doctor.markdown import wrapped

SECTIONS = (
    "What it means",
    "Why it costs",
    "Evidence shown",
    "Fix",
    "When it is wrong",
    "References",
)
INDEX = "README.md"
_FOLDER = Path(__file__).with_name("rules")
_BUNDLED = (
    "Only the bundled trainer records this automatically. In another trainer, record the "
    "counters with `grpo_doctor_probes.counter`."
)
_NOTE = "<!-- Made by `python -m grpo_doctor.findings.docs`; edit the rule's .md file instead. -->"


def text_of(rule: Rule) -> str:
    """Return the sections of the Markdown file next to a rule's own."""
    name = f"{rule.id}-{rule.slug}.md".lower().replace("-", "_")
    return _FOLDER.joinpath(name).read_text(encoding="utf-8")


def rule_text(rule: RuleFile) -> str:
    """Return a rule's documentation in Markdown: its metadata, then the text next to its file."""
    meta = rule.RULE
    body = text_of(meta)
    needs = "\n".join(f"- {signal.text}" for signal in meta.needs)
    used = ", ".join(f"`{name}`" for name in sorted(meta.used))
    more = f"\nIf recorded, this is used too: {used}.\n" if used else ""
    if meta.id in BUNDLED_ONLY:
        more += f"\n{_BUNDLED}\n"
    return wrapped(
        f"# {meta.id}: {meta.title}\n\n{_NOTE}\n\n"
        f"`{meta.slug}`, family {meta.family}\n\n{body.strip()}\n\n"
        f"## What the recording must contain\n\n{needs}\n{more}"
    )


def pages(rules: Sequence[RuleFile] = ALL) -> dict[str, str]:
    """File name to contents of all pages."""
    written = {f"{rule.RULE.id}.md": rule_text(rule) for rule in rules}
    rows = "\n".join(
        f"| [{r.RULE.id}]({r.RULE.id}.md) | {r.RULE.title} | {r.RULE.family} |" for r in rules
    )
    written[INDEX] = f"# Rules\n\n{_NOTE}\n\n| rule | finding | family |\n|---|---|---|\n{rows}\n"
    return written


def main(arguments: Sequence[str]) -> int:
    """Write all pages into a folder."""
    folder = Path(arguments[0] if arguments else "docs/rules")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
