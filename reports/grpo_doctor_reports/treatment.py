"""The card of `treat`: what was tried, predicted and measured, as a page and as Markdown."""

from __future__ import annotations

import shlex
import sys
from functools import cache

from jinja2 import Environment

from grpo_doctor_reports import assets, formatting
from grpo_doctor_reports.digest import safety_words
from grpo_doctor_reports.markdown import verbatim
from grpo_doctor_reports.schema import AnyDocument, treat

_ORDER = ("kept", "tried", "untried", "rolled back", "refused")
CHANGES = ("change", "finding", "math", "predicted", "measured", "result")
TRIALS = ("trial", "change", "per step", "steps", "in all", "result")


def treatment_page(document: AnyDocument) -> bytes:
    """Return the card as one self-contained page. Raises DocumentError of another document."""
    card, style = treat.read_treatment(document), assets.style("compare.css")
    return assets.own_page(_environment(), "treat.html.j2", style, card=card)


@cache
def _environment() -> Environment:
    environment = assets.template_environment()
    environment.globals.update(words=sys.modules[__name__])
    return environment


def treatment_markdown(document: AnyDocument) -> str:
    """Return the card as Markdown. Raises DocumentError of another document."""
    card = treat.read_treatment(document)
    lines = [f"# {verbatim(card.verdict or 'grpo-doctor treat')}", "", verbatim(facts(card)), ""]
    for change in ordered(card):
        _, finding, math, predicted, measured, result = change_row(change)
        text = verbatim(change.text) if "`" in change.text else f"`{change.text}`"
        lines.append(f"- **{change.state}** {text} ({verbatim(finding)})")
        predicted = predicted if change.predicted is None else f"predicted {predicted}"
        told = [math, predicted, measured and f"measured {measured}"]
        lines.append(f"  - {verbatim('; '.join(filter(None, [*told, result])))}")
    rows = [TRIALS, ("---",) * len(TRIALS), *(_cells(trial_row(card, t)) for t in card.trials)]
    lines += ["", *(f"| {' | '.join(row)} |" for row in rows if card.trials), ""]
    if card.result:
        lines += ["```", command(card), "```", ""]
    if card.patch:
        lines += [f"Patch of {verbatim(card.script)}:", "", "```diff", card.patch, "```", ""]
    return "\n".join([*lines, verbatim(f"Next: {card.next_step}"), ""])


def _cells(row: list[str]) -> list[str]:
    number, of, *more = row
    return [number, f"`{of.replace('|', '/')}`" if of else "", *map(verbatim, more)]


def ordered(card: treat.TreatDocument) -> list[treat.ChangeEntry]:
    """Return the changes, those that were kept first."""
    return sorted(card.changes, key=lambda change: _ORDER.index(change.state))


def facts(card: treat.TreatDocument) -> str:
    """Return what was treated, in one line."""
    goal = "step time" if card.goal == "step-time" else "time per token"
    spent = f"{card.spent_s / 60:.1f} minutes"
    steps = f"{card.steps} steps after {card.warmup} of warm-up in each trial" if card.steps else ""
    framework = f"{card.framework} {card.framework_version or ''}".strip()
    return " · ".join(filter(None, (framework, f"goal: {goal}", steps, spent, card.state)))


def command(card: treat.TreatDocument) -> str:
    """Return the best command, as a shell takes it."""
    words = shlex.join(card.result)
    return words if card.result and not words.startswith("-") else f"grpo-doctor run -- {words}"


def change_row(change: treat.ChangeEntry) -> list[str]:
    """Return the cells of a change, in the order of CHANGES."""
    predicted = _percent(change.predicted)
    if not predicted and change.state != "refused":
        predicted = f"not predicted: {change.unpredicted}"
    is_open = change.state == "tried"
    measured = _percent(change.measured, is_open=is_open)
    if measured:
        measured += f" in {formatting.count(change.pairs, 'pair')}{' so far' * is_open}"
    result = change.why
    if change.as_predicted is not None:
        result += ", as predicted" if change.as_predicted else ", outside the predicted interval"
    if change.risk and change.state == "kept":
        result += f". {change.risk}"
    name = f"{change.finding} {change.title}"
    return [change.text, name, safety_words(change.math), predicted, measured, result]


def trial_row(card: treat.TreatDocument, trial: treat.TrialEntry) -> list[str]:
    """Return the cells of a trial, in the order of TRIALS."""
    seconds = trial.step_seconds
    mean = formatting.seconds(sum(seconds) / len(seconds)) if seconds else ""
    of = next((f"{trial.side} {c.text}" for c in card.changes if c.index == trial.change), "")
    result = f"{trial.state}: {trial.why}" if trial.why else trial.state
    return [str(trial.number), of, mean, str(len(seconds)), f"{trial.wall_s:.0f} s", result]


def _percent(change: treat.Percent | None, *, is_open: bool = False) -> str:
    """The change with its interval, which says nothing before it decides."""
    if change is None:
        return ""
    mid, low, high = map(formatting.signed_percent, (change.mid, change.low, change.high))
    return mid if is_open else f"{mid} ({low} to {high})"
