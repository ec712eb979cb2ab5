"""The story of a treatment in plain words and one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.case_studies import case_4
from tests.case_studies.promises import Promise
from tests.case_studies.treatment import Treated

_PHASES = {
    "dataload": "decoding photographs",
    "offload": "moving weights out of the way",
    "rollout": "writing completions",
    "reward": "waiting for the judge",
    "train": "forward and backward",
}
_LABEL, _COLUMN = 34, 18


def story(treated: Treated, promises: Sequence[Promise]) -> str:
    """All of it, as lines of text."""
    return "\n".join((*_opening(), *_advice(treated), *_numbers(treated), *_ending(promises)))


def _opening() -> Iterator[str]:
    yield f'Case 4: "{case_4.COMPLAINT}"'
    yield f"{case_4.THREAD}: Qwen2.5-VL-3B, ms-swift, two GPUs."
    yield "Run in small on 2 CPU ranks. What stands in for a GPU:"
    for text in case_4.STAND_INS:
        yield f"  - {text}"
    yield ""


def _advice(treated: Treated) -> Iterator[str]:
    yield "The report advised, and it was done as printed:"
    for fix in treated.fixes:
        yield f"  {fix.finding}  {fix.title}"
        yield f"         {fix.spelling}   ({fix.mid:+.0f}%, {fix.low:+.0f} to {fix.high:+.0f}%)"
    yield ""


def _numbers(treated: Treated) -> Iterator[str]:
    before, after = treated.before, treated.after
    yield _row("seconds of a step", "before", "predicted", "after")
    yield _row(
        "the whole step", f"{before.step_s:.2f}", _promised_s(treated), f"{after.step_s:.2f}"
    )
    for phase, text in _PHASES.items():
        yield _row(f"  {text}", f"{before.phase_s(phase):.2f}", "", f"{after.phase_s(phase):.2f}")
    yield ""


def _promised_s(treated: Treated) -> str:
    change, step = treated.promised, treated.before.step_s
    if change is None:
        return "?"
    low, mid, high = (step * (1 + pct / 100) for pct in (change.low, change.mid, change.high))
    return f"{mid:.2f} ({low:.1f}-{high:.1f})"


def _row(label: str, *cells: str) -> str:
    return f"{label:<{_LABEL}}" + "".join(f"{cell:>{_COLUMN}}" for cell in cells)


def _ending(promises: Sequence[Promise]) -> Iterator[str]:
    for promise in promises:
        yield f"{'kept  ' if promise.kept else 'MISSED'}  {promise.text}: {promise.measured}"
