"""Evaluation or logging of completions costs steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from grpo_doctor.analysis.per_step import named_seconds
from grpo_doctor.analysis.rows import CODES
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import percent, severity_of
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.phases import phase_of
from grpo_doctor.whatif import Replay, without

RULE = timed_rule("training")
# A tenth of a run for knowing how it goes is usual; logging should not be seen at all.
MIN_EVAL_SHARE = 0.10
MIN_LOG_SHARE = 0.03
# One evaluation, at the start or the end, says nothing about how often.
MIN_EVALS = 2
_LOGGING = ("log_completions", "log_rollout", "log_samples")


@dataclass(frozen=True, slots=True)
class _Evaluations:
    share: float  # of the whole run's steps
    seconds: float  # each
    numbers: tuple[int, ...]


def check(view: RunView) -> Answer:
    """Add up evaluations over all steps, and spans that log."""
    evaluations, logging = _evaluations(view), _logging_seconds(view)
    log_share = view.of_step(sum(logging.values()))
    if log_share >= MIN_LOG_SHARE:
        return _logs(view, logging, log_share)
    if not evaluations.numbers:
        if logging:
            return Passed(f"logging completions takes {percent(log_share, 1)} of the step")
        return NotApplicable("nothing is evaluated, and no completions are logged in the steps")
    if evaluations.share < MIN_EVAL_SHARE or len(evaluations.numbers) < MIN_EVALS:
        return Passed(
            f"{len(evaluations.numbers)} evaluations take {percent(evaluations.share, 1)} of "
            "the run's steps"
        )
    source = f"eval spans, {len(evaluations.numbers)} evaluations"
    return Finding(
        severity=severity_of(evaluations.share, proven=False),
        confidence=0.8,
        cost=evaluations.share,
        phases=("eval",),
        evidence=(
            Evidence("evaluation of the run", 100 * evaluations.share, "%", source),
            Evidence("one evaluation", evaluations.seconds, "s", source),
            Evidence("evaluations", len(evaluations.numbers), "", source),
        ),
        cause=f"{len(evaluations.numbers)} evaluations of {evaluations.seconds:.3g} s take "
        f"{percent(evaluations.share)} of the time of all steps.",
        fixes=(_less_often(view, evaluations),),
        steps=evaluations.numbers,
    )


def _logging_seconds(view: RunView) -> dict[str, float]:
    """Spans that log completions; per step, on the rank that logs: the others wait for it."""
    seconds_of = {
        name: float(named_seconds(view.analysis, name).mean(axis=0).max(initial=0.0))
        for name in view.trace.names
        if phase_of(name) and name.rpartition("/")[2] in _LOGGING
    }
    return {name: seconds for name, seconds in seconds_of.items() if seconds}


def _evaluations(view: RunView) -> _Evaluations:
    """Over all closed steps after the warm-up: those with an evaluation may be excluded."""
    analysis = view.analysis
    stepping = np.flatnonzero(analysis.steps.stepping)
    table = analysis.seconds[analysis.steps.warmup :][:, stepping, CODES["eval"]]
    lengths = analysis.steps.seconds[analysis.steps.warmup :][:, stepping]
    total_s, timed = np.nansum(lengths), np.isfinite(table) & np.isfinite(lengths)
    seconds = np.where(timed, table, 0.0).max(axis=1, initial=0.0)
    rows = np.flatnonzero(seconds > 0)
    if not len(rows):
        return _Evaluations(0.0, 0.0, ())
    numbers = analysis.steps.numbers[analysis.steps.warmup :][rows]
    spent = np.where(timed, table, 0.0).sum()
    return _Evaluations(
        float(spent / total_s), float(seconds[rows].mean()), tuple(int(n) for n in numbers)
    )


def _less_often(view: RunView, evaluations: _Evaluations) -> Fix:
    every = view.now("eval.steps")
    reason = "how often to evaluate is up to you"
    risk = "You see later whether training helps."
    if not isinstance(every, int | float) or every < 1:
        return view.advice("evaluate less often, or on fewer prompts", reason, risk=risk)
    factor = math.ceil(evaluations.share / (MIN_EVAL_SHARE / 2))
    after = int(every) * max(2, factor)
    return view.setting("eval.steps", after, reason, risk=risk)


def _logs(view: RunView, logging: dict[str, float], share: float) -> Finding:
    names = " and ".join(logging)
    change = Replay(tuple(map(without, logging)), f"without {names}")
    risk = "Completions show reward hacking: read some now and then."
    return Finding(
        confidence=0.8,
        cost=share,
        phases=tuple(sorted({phase_of(name) or "" for name in logging})),
        evidence=tuple(
            Evidence(f"{name} per step", s, "s", "its spans, slowest rank")
            for name, s in logging.items()
        ),
        cause=f"Writing completions to the log takes {sum(logging.values()):.3g} s of each "
        f"{view.step_s:.3g} s step.",
        fixes=(view.setting("log.completions", False, change, risk=risk),),
        headline="Logging completions costs steps",
    )
