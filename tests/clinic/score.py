"""Answers held to the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tests.clinic.agents import Answer
from tests.clinic.runs import sick_runs


@dataclass(frozen=True, slots=True)
class Graded:
    """One answer of one agent. `failed`: why there is none."""

    run: str
    agent: str
    answer: Answer
    right: bool
    seconds: float
    failed: str = ""


def right(name: str, answer: Answer) -> bool:
    """Whether the cause is right, and of a stuck run a guilty rank and no other is named."""
    run = sick_runs()[name]
    ranks = not run.guilty or (bool(answer.ranks) and run.guilty.issuperset(answer.ranks))
    return answer.cause in run.causes and ranks


def table(rows: Iterable[Graded]) -> str:
    """Markdown: a row an agent, with how many of each kind it got right."""
    counts: dict[str, Counter[str]] = {}
    totals: dict[str, Counter[str]] = {}
    for row in rows:
        for kind in (sick_runs()[row.run].kind, "all"):
            counts.setdefault(row.agent, Counter())[kind] += row.right
            totals.setdefault(row.agent, Counter())[kind] += 1
    kinds = ("slow", "stuck", "not learning", "not fitting", "all")
    lines = [f"| agent | {' | '.join(kinds)} |", "|---|" + "---:|" * len(kinds)]
    for agent, found in counts.items():
        cells = (f"{found[kind]} of {totals[agent][kind]}" for kind in kinds)
        lines.append(f"| {agent} | {' | '.join(cells)} |")
    return "\n".join(lines)
