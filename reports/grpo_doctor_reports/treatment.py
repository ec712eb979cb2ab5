"""The card of `treat`: what was tried, predicted and measured, as a page and as Markdown."""

from __future__ import annotations

import shlex
import sys
from functools import cache

from jinja2 import Environment

from grpo_doctor_reports import assets, formatting
from grpo_doctor_reports.schema import AnyDocument
from grpo_doctor_reports.schema.treat import (
    ChangeEntry,
    Percent,
    TreatDocument,
    TrialEntry,
    read_treatment,
)

_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|"})
_MATH = {
    "same-math": "kept",
    "changes-numerics": "kept but for rounding",
    "changes-algorithm": "changed: another algorithm",
    "needs-code": "not judged",
}
CHANGES = ("change", "finding", "math", "predicted", "measured", "pairs", "result")
TRIALS = ("trial", "of change", "per step", "steps", "in all", "result")


def treatment_page(document: AnyDocument) -> bytes:
    """Return the card as one self-contained page.

    Raises:
        DocumentError: the document has another schema, or a part of the wrong type.
    """
    card, style = read_treatment(document), assets.compare_style()
    return assets.still_page(_environment(), "treat.html.j2", style, card=card)


@cache
def _environment() -> Environment:
    environment = assets.template_environment()
    environment.globals.update(words=sys.modules[__name__])
    return environment


def treatment_markdown(document: AnyDocument) -> str:
    """Return the card as Markdown. Raises DocumentError as `treatment_page` does."""
    card = read_treatment(document)
    lines = [f"# {_plain(card.verdict or 'grpo-doctor treat')}", "", _plain(facts(card)), ""]
    if card.changes:
        rows = [[f"`{c.text}`" if c.text else "", *map(_plain, change_row(c)[1:])]
                for c in card.changes]  # fmt: skip
        lines += ["## Changes", "", *_table(CHANGES, rows), ""]
    if card.trials:
        rows = [list(map(_plain, trial_row(trial))) for trial in card.trials]
        lines += ["## Trials", "", *_table(TRIALS, rows), ""]
    if card.result:
        lines += ["## Command", "", "```", command(card), "```", ""]
    if card.patch:
        lines += [f"## Patch of {_plain(card.script)}", "", "```diff", card.patch, "```", ""]
    return "\n".join([*lines, _plain(f"Next: {card.next_step}"), ""])


def _table(head: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    table = [list(head), ["---"] * len(head), *rows]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in table]


def _plain(text: str) -> str:
    return text.translate(_SPECIAL)


def facts(card: TreatDocument) -> str:
    """Return what was treated, in one line."""
    goal = "step time" if card.goal == "step-time" else "time per token"
    spent = f"{card.spent_s / 60:.1f} of {card.budget_s / 60:.0f} minutes"
    steps = f"{card.steps} steps after {card.warmup} of warm-up in each trial" if card.steps else ""
    framework = f"{card.framework} {card.framework_version or ''}".strip()
    parts = (framework, f"goal: {goal}", steps, spent, card.state)
    return " · ".join(part for part in parts if part)


def command(card: TreatDocument) -> str:
    """Return the best command, as a shell takes it."""
    words = shlex.join(card.result)
    return f"grpo-doctor run -- {words}" if card.result[0].startswith("-") else words


def change_row(change: ChangeEntry) -> list[str]:
    """Return the cells of a change, in the order of CHANGES."""
    predicted = _percent(change.predicted) or f"not predicted: {change.unpredicted}".strip(": ")
    result = f"{change.state}: {change.why}" if change.why else change.state
    if change.as_predicted is not None:
        result += ", as predicted" if change.as_predicted else ", outside the predicted interval"
    if change.risk and change.state == "kept":
        result += f". {change.risk}"
    return [
        change.text, f"{change.finding} {change.title}", _MATH.get(change.math, change.math),
        predicted, _percent(change.measured), str(change.pairs or ""), result,
    ]  # fmt: skip


def trial_row(trial: TrialEntry) -> list[str]:
    """Return the cells of a trial, in the order of TRIALS."""
    seconds = [value or 0.0 for value in trial.seconds]
    mean = formatting.seconds(sum(seconds) / len(seconds)) if seconds else ""
    of = "" if trial.change is None else str(trial.change + 1)
    result = f"{trial.state}: {trial.why}" if trial.why else trial.state
    name = f"{trial.number} {trial.side}"
    return [name, of, mean, str(len(seconds)), f"{trial.wall_s:.0f} s", result]


def _percent(change: Percent | None) -> str:
    if change is None:
        return ""
    mid, low, high = map(formatting.signed_percent, (change.mid, change.low, change.high))
    return f"{mid} ({low} to {high})"
