"""The one line at the top of a report: the saving first, or how the run died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis
from grpo_doctor.document.numbers import PERCENT_DIGITS
from grpo_doctor.document.results import needed_share
from grpo_doctor.findings import Results
from grpo_doctor.findings.priority import ENDED_BY_AN_ERROR, foremost
from grpo_doctor.findings.rule import Finding, Rule
from grpo_doctor.findings.shared import percent
from grpo_doctor.phases import phase_of
from grpo_doctor.trace.model import Exit, Kind
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
# With fewer of the checks that apply, no finding says nothing of the run.
LEAST_JUDGED = 1 / 3
# A finding about all phases is about none of them.
_ALL = 0.99


def verdict(
    analysis: Analysis,
    results: Results,
    ranks: Sequence[RankEntry],
    hangs: Sequence[HangEntry] = (),
) -> str:
    """Return what there is to gain and by what; of a run that did not end by itself, how it ended.

    A run that died says that first, without its speed: a job that does not run is not tuned.
    """
    run = analysis.trace.run
    if run.exit.state in FAILED:
        fatal = run.origin.fatal if run.origin else ""
        stuck = [hang.headline for hang in hangs if hang.state in ("stuck", "dead")]
        errors = (f.headline or r.title for r, f in results.findings if r.id == ENDED_BY_AN_ERROR)
        why = (stuck[-1].rstrip(".") if stuck else "") or next(errors, "") or fatal
        sentences: tuple[str, ...] = (_ending(analysis, () if why else ranks), why)
    else:
        sentences = (_pace(analysis, results), _ending(analysis, ranks))
    return " ".join(f"{part}." for part in sentences if part)


def tone(analysis: Analysis, results: Results) -> str:
    """Return what the first line is: `died`, `problem`, `clear`, or `unjudged` where too few of
    the checks could be made for a run without findings to be called clear."""
    if analysis.trace.run.exit.state in FAILED:
        return "died"
    if foremost(results.findings) is not None:
        return "problem"
    judged, applicable = coverage(results)
    return "clear" if judged >= LEAST_JUDGED * applicable and judged else "unjudged"


def coverage(results: Results) -> tuple[int, int]:
    """Return how many checks could be made, and how many apply to this run."""
    judged = len(results.findings) + len(results.passed)
    return judged, judged + len(results.not_run) + len(results.errors)


def _pace(analysis: Analysis, results: Results) -> str:
    """Return the length of a step and the foremost finding, or that there is none."""
    step_s, worst = analysis.step_s, foremost(results.findings)
    if step_s and worst is not None:
        return _problem(analysis, step_s, *worst)
    now = f"{formatting.seconds(step_s)} per step" if step_s else _without_steps(analysis)
    if worst is not None:
        return f"{now}. {worst[1].headline or worst[0].title}"
    seen = step_s or _logged(analysis) is not None
    return f"{now}{_no_problem(analysis, results)}" if seen else now


def _problem(analysis: Analysis, step_s: float, rule: Rule, finding: Finding) -> str:
    """`918 → 642 ms per step, -30%: rank 1 is slow in reward`."""
    now = formatting.seconds(step_s)
    cause, gain = _lowered(finding.headline or rule.title), round(finding.gain, PERCENT_DIGITS)
    if gain >= 1:
        then = formatting.seconds(step_s * (1 - gain / 100))
        return f"{_from_to(now, then)} per step, {formatting.signed_percent(-gain)}: {cause}"
    taken = needed_share(analysis, finding)
    if 0 < taken < _ALL:
        phases = " and ".join(finding.phases)
        verb = "takes" if len(finding.phases) == 1 else "take"
        return f"{now} per step, {phases} {verb} {formatting.share(taken)} of it: {cause}"
    if not taken and finding.cost >= 0.01:
        most = "up to " if finding.is_bound else ""
        return f"{now} per step, {most}{percent(finding.cost)} of it lost: {cause}"
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
        return "The run is still running" + (f": {places}" if places else "")
    return f"The recording ends early: {places}" if places else ""


def _code(end: Exit) -> str:
    if end.signal:
        return f" ({end.signal})"
    return f" (exit code {end.code})" if end.code else ""


def _last_step(analysis: Analysis) -> str:
    steps = analysis.steps
    if not len(steps.numbers):
        if (logged := _logged(analysis)) is not None:
            return f" after step {logged[-1]}"
        if analysis.trace.run.framework == "bundled" or _marked(analysis):
            return " before its first step"
        return "; no step was recorded"
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


def _without_steps(analysis: Analysis) -> str:
    run = analysis.trace.run
    if len(analysis.steps.numbers):
        return "No step ended on every rank"
    if (logged := _logged(analysis)) is not None:
        last = int(logged[-1])
        is_each = len(logged) > last - logged[0] and (len(logged) > 1 or last <= 1)
        what = formatting.count(len(logged), "step" if is_each else "row")
        return f"{what} logged{'' if is_each else f' up to step {last}'}, without step times"
    if any(process.carries_steps for process in analysis.trace.processes):
        return "No step was recorded"
    if run.framework == "bundled":
        return "The trainer ended before it recorded anything: see its output"
    why = "" if run.unhooked or run.framework != "unknown" else "this script marks no phases, so "
    return f"No phase data: {why}only system metrics were recorded"


def _marked(analysis: Analysis) -> bool:
    """Return whether the job has spans of its own, in addition to that of its start."""
    spans, names = analysis.trace.spans, analysis.trace.names
    named = np.unique(spans.name[spans.kind == Kind.SPAN])
    return any(names[index] != "init" for index in named)


def _logged(analysis: Analysis) -> NDArray[np.int64] | None:
    """Return the numbers of the steps of which a log has metrics; None where it has none."""
    steps = analysis.trace.metrics.steps
    if analysis.trace.run.framework == "verl":  # 0 is the validation before its first step
        steps = steps[steps > 0]
    return steps if analysis.trace.run.origin and len(steps) else None


def _no_problem(analysis: Analysis, results: Results) -> str:
    """Return the rest of the first line of a run without a finding."""
    if analysis.step_s:
        waited = float(analysis.used_waited.sum(axis=2).mean()) / analysis.step_s
        if waited >= MUCH_WAITING:
            return f": {percent(waited)} of it is wait time without a single cause"
    judged, applicable = coverage(results)
    if tone(analysis, results) == "clear":
        return f": no problem found in {judged} of {applicable} checks"
    record = (
        "; record with `grpo-doctor run` to judge the rest" if analysis.trace.run.origin else ""
    )
    few = f"only {judged}" if judged else "none"
    return f". Not enough data: {few} of {applicable} checks could be made{record}"


def _lowered(title: str) -> str:
    """For the middle of a line; `ZeRO-3`, `GPU` and `Python` stay."""
    word = title.partition(" ")[0]
    proper = word.startswith("Python") or word[1:] != word[1:].lower()
    return title if proper else title[:1].lower() + title[1:]
