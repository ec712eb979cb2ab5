"""The one sentence at the top of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.rows import UNATTRIBUTED_CODE
from grpo_doctor.findings import Results
from grpo_doctor.findings.wording import percent
from grpo_doctor.phases import PHASES, UNATTRIBUTED, phase_of
from grpo_doctor.trace.model import Exit
from grpo_doctor_reports.schema.report import HangEntry, RankEntry

_HOW = {
    "failed": "failed",
    "killed": "was killed",
    "interrupted": "was interrupted",
    "hung": "was stuck and was ended",
}
DIED = tuple(_HOW)
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
    """How it ended if it did not end well, where the time goes, and the gravest finding."""
    ending = _ending(analysis, ranks)
    stuck = _stuck(analysis, hangs)
    time = _time(analysis)
    worst = next((f for f in results.findings if f[1].severity != "info"), None)
    if worst is None:
        problem = _no_problem(analysis) if results.passed and not stuck else ""
    else:
        problem = f"Biggest problem: {_lowered(worst[1].headline or worst[0].title)}"
        gain = worst[1].gain
        if gain >= 1:
            problem += f", worth about {gain:.0f}% of the step time"
    return " ".join(f"{part}." for part in (ending, stuck, time, problem) if part)


def _ending(analysis: Analysis, ranks: Sequence[RankEntry]) -> str:
    ended = analysis.trace.run.exit
    where = _where(ranks)
    if ended.state in DIED:
        step = _last_step(analysis)
        return f"The run {_HOW[ended.state]}{_code(ended)}{step}" + (f": {where}" if where else "")
    if ended.state == "running":
        return "The run still goes on" + (f": {where}" if where else "")
    return f"The recording ends early: {where}" if where else ""


def _stuck(analysis: Analysis, hangs: Sequence[HangEntry]) -> str:
    """What the watchdog said last of a run that did not end well."""
    if analysis.trace.run.exit.state not in DIED:
        return ""
    said = [hang.headline for hang in hangs if hang.state in ("stuck", "dead")]
    return said[-1].rstrip(".") if said else ""


def _code(ended: Exit) -> str:
    if ended.signal:
        return f" ({ended.signal})"
    return f" (exit code {ended.code})" if ended.code else ""


def _last_step(analysis: Analysis) -> str:
    steps = analysis.steps
    if not len(steps.numbers):
        return " before its first step"
    begun = int(steps.start_ns.max(axis=1).argmax())
    inside = (steps.start_ns[begun] >= 0) & ~steps.closed[begun]
    word = "in" if inside.any() else "after"
    return f" {word} step {steps.numbers[begun]}"


def _where(ranks: Sequence[RankEntry]) -> str:
    """`ranks 0, 1 in train (31 s), rank 2 in rollout/generate (34 s)`; the smallest group first."""
    inside = {r.rank: r.open for r in ranks if r.open}
    if not inside:
        return ""
    groups = Counter(_place(spans[-1].name) for spans in inside.values())
    parts = []
    for place, size in sorted(groups.items(), key=lambda g: (g[1], g[0])):
        mine = [rank for rank, spans in inside.items() if _place(spans[-1].name) == place]
        longest = max(inside[rank][-1].open_s or 0.0 for rank in mine)
        named = f"rank{'s' * (size > 1)} {', '.join(map(str, mine))}"
        who = named if size <= _NAMED else f"{size} ranks"
        parts.append(f"{who} in {place} ({longest:.3g} s)")
    return ", ".join(parts)


def _place(name: str) -> str:
    return name if phase_of(name) else f"{name!r}"


def _time(analysis: Analysis) -> str:
    step_s = analysis.step_s
    if not step_s:
        if len(analysis.steps.numbers):
            return ""
        if any(process.carries_steps for process in analysis.trace.processes):
            return "No step was recorded"
        if analysis.trace.run.framework == "bundled":
            return "The trainer ended before it recorded anything: see its output"
        return "The command recorded no phases of its own: it was sampled from outside only"
    means = analysis.used_seconds.mean(axis=(0, 1))
    names = (*PHASES, UNATTRIBUTED)
    top = int(means.argmax())
    name = "outside all phases" if top == UNATTRIBUTED_CODE else names[top]
    waited = float(analysis.used_waited.sum(axis=2).mean()) / step_s
    text = f"A step takes {step_s:.3g} s, {percent(means[top] / step_s)} of it {name}"
    return text + (f"; {percent(waited)} of step time is spent waiting" if waited >= 0.05 else "")


def _no_problem(analysis: Analysis) -> str:
    if analysis.step_s:
        waited = float(analysis.used_waited.sum(axis=2).mean()) / analysis.step_s
        if waited >= MUCH_WAITING:
            return "No rule explains that waiting with one cause"
    return "No rule found a problem"


def _lowered(title: str) -> str:
    word = title.partition(" ")[0]
    return title if word.isupper() else title[:1].lower() + title[1:]
