"""The labelled set as a page."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence

from tests.labelled.judge import Outcome, Score, by_name, score


def section(runs: Sequence[Outcome], command: str) -> str:
    """Markdown: totals, a row per illness, and every run that was judged wrongly."""
    total = score(runs)
    failed = [f"- not run: {row.case.title}: {row.failed}" for row in runs if row.failed]
    wrong = [
        f"- {row.case.title}: found {', '.join(sorted(row.found)) or 'nothing'}; "
        f"has {' or '.join(sorted(row.case.has)) or 'nothing'}"
        for row in runs
        if not row.failed and (not row.hit or row.wrong)
    ]
    parts = ["# How often the rules are right", _how(command), _totals(total), _rows(runs)]
    if wrong or failed:
        parts += ["Judged wrongly:", "\n".join(wrong + failed)]
    return "\n\n".join(parts)


def _how(command: str) -> str:
    return (
        f"Written by `{command}` on {time.strftime('%Y-%m-%d')}: {os.cpu_count()} cores, no GPU, "
        f"Python {platform.python_version()}. Every run is a real training of the bundled trainer "
        "on 2 ranks, made ill by its flags, its files or the machine, each illness in three "
        "strengths. `tests/labelled/registry.py` has what was done and what is true of it. An ill "
        "run counts as recalled if a rule names its illness; a finding counts as false unless the "
        "run has it or it follows from what the run has. Illnesses that need a GPU are not here. "
        "The rules were fixed on an earlier recording of these runs, some in other doses, so this "
        "is a set that they were fitted to: on runs of strangers they will be less right."
    )


def _totals(total: Score) -> str:
    return (
        f"{total.runs} runs, {total.ill} of them ill. **Recall {total.recall:.3f}, precision "
        f"{total.precision:.3f}** ({total.true_findings} findings true, {total.false_findings} "
        f"false); {total.healthy_alarms} healthy runs with a finding of high severity."
        + _on_busy_machines(total)
    )


def _on_busy_machines(total: Score) -> str:
    if not total.busy:
        return ""
    return (
        f" In {total.busy} runs other programs had the processors: GD023 and GD004 count as true "
        "there."
    )


def _rows(runs: Sequence[Outcome]) -> str:
    lines = ["| runs | rule | weak | medium | strong |", "|---|---|---|---|---|"]
    for name, rows in by_name(runs).items():
        if name.startswith("healthy"):
            continue
        marks = {row.case.strength: "yes" if row.hit else "no" for row in rows}
        strengths = [marks.get(strength, "") for strength in ("weak", "medium", "strong")]
        cells = [name, " or ".join(sorted(rows[0].case.has)), *strengths]
        lines.append("| " + " | ".join(cells) + " |")
    calm = [row for row in runs if not row.case.has and not row.failed]
    lines.append(f"| healthy | none | {sum(row.hit for row in calm)} of {len(calm)} | | |")
    return "\n".join(lines)
