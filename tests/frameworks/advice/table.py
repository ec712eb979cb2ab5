"""What was predicted of printed advice beside what it brought, as a section of a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from statistics import median

from tests.frameworks.advice.cases import CASES
from tests.frameworks.advice.pairs import Pair

SECTION = "advice"
_HEAD = (
    "framework", "handicap", "finding", "as printed", "predicted", "interval", "measured",
    "each pair", "holds",
)  # fmt: skip
_LONGEST = 200
_NAMES = {"trl": "TRL", "swift": "ms-swift"}


def section(pairs: Sequence[Pair], command: str, host: str) -> str:
    """The section in Markdown, without its markers."""
    groups = _groups(pairs)
    holding, advised = _held(pairs), [pair for pair in pairs if pair.advice and not pair.problem]
    unseen = [pair for pair in pairs if pair.unseen]
    missing = _not_run(pairs)
    lines = [
        "# What printed advice brings to TRL and ms-swift",
        "",
        (
            f"Written by `{command}` on {os.cpu_count()} cores{host}. Each row is a real job of "
            "one CPU rank under `grpo-doctor run`, with a handicap that users have; the first fix "
            "of the finding, in the letters of the report, is put into the command line by a "
            "program that knows no option, and the job runs again. Where the advice is to change "
            "code (`run ... at once`), the job's rewards are rewritten as it says. Pairs alternate "
            "over all rows; the two jobs of a pair run side by side, so that what else the host "
            "does falls on both. The measured change is the median of the "
            "pairs; an interval holds where it has that change; `none` is a pair whose report "
            "gave no such advice."
        ),
        "",
        (
            f"{holding} of {len(advised)} intervals hold the measured change "
            f"({100 * holding / max(1, len(advised)):.0f}%), and {_held_own(advised)} what their "
            "own pair measured; of the unseen rows, on which nothing was "
            f"fixed, {_held(unseen)} of {sum(1 for p in unseen if p.advice and not p.problem)}."
            f"{f' Not run here: {missing}.' if missing else ''}"
        ),
        "",
        f"| {' | '.join(_HEAD)} |",
        f"|{'---|' * len(_HEAD)}",
    ]
    return "\n".join([*lines, *map(_row, groups)]) + "\n"


def _not_run(pairs: Sequence[Pair]) -> str:
    ran = {(pair.framework, pair.case) for pair in pairs}
    not_run = [case for case in CASES if (case.framework, case.name) not in ran]
    return ", ".join(f"{case.name} with {_NAMES[case.framework]}" for case in not_run)


def _groups(pairs: Sequence[Pair]) -> list[list[Pair]]:
    names = dict.fromkeys((pair.framework, pair.case) for pair in pairs)
    return [[pair for pair in pairs if (pair.framework, pair.case) == name] for name in names]


def _held(pairs: Sequence[Pair]) -> int:
    return sum(len(_holding(group)) for group in _groups(pairs))


def _holding(group: Sequence[Pair]) -> list[Pair]:
    """The pairs whose interval has the median of all their changes, to the digit that is shown."""
    applied = [pair for pair in group if pair.advice and not pair.problem]
    if not applied:
        return []
    change = round(median(pair.measured for pair in applied), 1)
    return [p for p in applied if p.advice and p.advice.low <= change <= p.advice.high]


def _held_own(applied: Sequence[Pair]) -> int:
    changes = [(pair.advice, round(pair.measured, 1)) for pair in applied]
    return sum(advice.low <= change <= advice.high for advice, change in changes if advice)


def _in_a_cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:_LONGEST]


def _row(group: Sequence[Pair]) -> str:
    first = next((pair for pair in group if pair.version), group[0])
    name = f"{first.case}{' (unseen)' if first.unseen else ''}"
    start = f"| {_NAMES[first.framework]} {first.version} | {name} | {first.rule} | "
    applied = [pair for pair in group if pair.advice and not pair.problem]
    if not applied:
        return f"{start}{_in_a_cell(first.problem)} |  |  |  |  |  |"
    advices = [pair.advice for pair in applied if pair.advice]
    low, mid, high = (
        median(getattr(advice, end) for advice in advices) for end in ("low", "mid", "high")
    )
    changes = ", ".join("none" if pair.problem else f"{pair.measured:+.0f}" for pair in group)
    return (
        f"{start}`{advices[0].text}` | {mid:+.1f}% | {low:+.1f} to {high:+.1f}% | "
        f"{median(pair.measured for pair in applied):+.1f}% | {changes} | "
        f"{len(_holding(group))} of {len(applied)} |"
    )
