"""The one line at the top of a report: the saving first, or how the run died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from grpo_doctor.analysis import Analysis
from grpo_doctor.findings import Results
from grpo_doctor.findings.engine import ENDED_BY_AN_ERROR
from grpo_doctor.findings.wording import percent
from grpo_doctor.phases import phase_of
from grpo_doctor.trace.model import Exit
from grpo_doctor_reports import formatting
from grpo_doctor_reports.schema.report import HangEntry, RankEntry

_HOW = {
    "failed": "failed",
    "killed": "was killed",
    "interrupted": "was interrupted",
    "hung": "hung",
}
DIED = tuple(_HOW)
# Not those that somebody interrupted: many a recording is ended that way.
FAILED = ("failed", "killed", "hung")
# A tenth of a step spent waiting is worth saying even where no single rank is to blame.
MUCH_WAITING = 0.10
# Ranks are named up to here; of more, their number is given.
_NAMED = 4


def verdict(
    analysis: Analysis,
    results: Results,
    ranks: Sequence[RankEntry],
    hangs: Sequence[HangEntry] = (),
) -> str:
    """What there is to gain and by what; of a run that did not end by itself, how it ended.

    A run that died says that first and nothing of its speed: nobody tunes a job that does not run.
    """
    if analysis.trace.run.exit.state in FAILED:
        why = _stuck(hangs) or _error(results)
        sentences: tuple[str, ...] = (_ending(analysis, () if why else ranks), why)
    else:
        sentences = (_pace(analysis, results), _ending(analysis, ranks))
    return " ".join(f"{part}." for part in sentences if part)


def _pace(analysis: Analysis, results: Results) -> str:
    """`918 → 642 ms per step, -30%: rank 1 is slow in reward`."""
    step_s = analysis.step_s
    if not step_s:
        return _without_steps(analysis)
    worst = next((f for f in results.findings if f[1].severity != "info"), None)
    now = formatting.seconds(step_s)
    if worst is None:
        return f"{now} per step: {_no_problem(analysis)}"
    rule, finding = worst
    cause, gain = _lowered(finding.headline or rule.title), round(finding.gain, 1)
    if gain >= 1:
        then = formatting.seconds(step_s * (1 - gain / 100))
        return f"{_from_to(now, then)} per step, {formatting.signed_percent(-gain)}: {cause}"
    if finding.cost >= 0.01:
        return f"{now} per step, {percent(finding.cost)} of it lost: {cause}"
    return f"{now} per step: {cause}"


def _from_to(now: str, then: str) -> str:
    """`918 → 642 ms`: the unit once where it is the same."""
    (number, _, unit), (_, _, later) = now.partition(" "), then.partition(" ")
    return f"{number if unit == later else now} → {then}"


def _ending(analysis: Analysis, ranks: Sequence[RankEntry]) -> str:
    end = analysis.trace.run.exit
    places = _places(ranks)
    if end.state in DIED:
        step = _last_step(analysis)
        how = (
            f"The run hung{step} and was ended"
            if end.state == "hung"
            else f"The run {_HOW[end.state]}{_code(end)}{step}"
        )
        return how + (f": {places}" if places else "")
    if end.state == "running":
        return "The run still goes on" + (f": {places}" if places else "")
    return f"The recording ends early: {places}" if places else ""


def _stuck(hangs: Sequence[HangEntry]) -> str:
    """What the watchdog said last."""
    headlines = [hang.headline for hang in hangs if hang.state in ("stuck", "dead")]
    return headlines[-1].rstrip(".") if headlines else ""


def _code(end: Exit) -> str:
    if end.signal:
        return f" ({end.signal})"
    return f" (exit code {end.code})" if end.code else ""


def _last_step(analysis: Analysis) -> str:
    steps = analysis.steps
    if not len(steps.numbers):
        return " before its first step"
    last = int(steps.start_ns.max(axis=1).argmax())
    inside = (steps.start_ns[last] >= 0) & ~steps.closed[last]
    word = "in" if inside.any() else "after"
    return f" {word} step {steps.numbers[last]}"


def _places(ranks: Sequence[RankEntry]) -> str:
    """`ranks 0, 1 in train (31 s), rank 2 in rollout/generate (34 s)`; the smallest group first."""
    inside = {r.rank: r.open for r in ranks if r.open}
    if not inside:
        return ""
    groups = Counter(_span_name(spans[-1].name) for spans in inside.values())
    places = []
    for phase, size in sorted(groups.items(), key=lambda g: (g[1], g[0])):
        mine = [rank for rank, spans in inside.items() if _span_name(spans[-1].name) == phase]
        longest = max(inside[rank][-1].open_s or 0.0 for rank in mine)
        ranks_text = f"rank{'s' * (size > 1)} {', '.join(map(str, mine))}"
        subject = ranks_text if size <= _NAMED else f"{size} ranks"
        places.append(f"{subject} in {phase} ({longest:.3g} s)")
    return ", ".join(places)


def _span_name(name: str) -> str:
    return name if phase_of(name) else f"{name!r}"


def _error(results: Results) -> str:
    """The finding that names the error which ended the run."""
    for rule, finding in results.findings:
        if rule.id == ENDED_BY_AN_ERROR:
            return finding.headline or rule.title
    return ""


def _without_steps(analysis: Analysis) -> str:
    run = analysis.trace.run
    if len(analysis.steps.numbers):
        return "No step ended on every rank"
    if any(process.carries_steps for process in analysis.trace.processes):
        return "No step was recorded"
    if run.framework == "bundled":
        return "The trainer ended before it recorded anything: see its output"
    return "No phases: the command marks none, so only its machine was seen"


def _no_problem(analysis: Analysis) -> str:
    if analysis.step_s:
        waited = float(analysis.used_waited.sum(axis=2).mean()) / analysis.step_s
        if waited >= MUCH_WAITING:
            return f"{percent(waited)} of it waiting, which no rule explains with one cause"
    return "no problem found"


def _lowered(title: str) -> str:
    """For the middle of a line; `ZeRO-3`, `GPU` and `Python` stay."""
    word = title.partition(" ")[0]
    proper = word.startswith("Python") or word[1:] != word[1:].lower()
    return title if proper else title[:1].lower() + title[1:]
