"""A pair: a job with its handicap, what its report advises, and the job with that applied."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.frameworks.advice.applying import NotAFlagError, apply
from tests.frameworks.advice.cases import Case
from tests.frameworks.advice.jobs import (
    JobFailedError,
    Machine,
    command,
    environment,
    record,
    report,
    step_s,
)

FAILED = "failed"


@dataclass(frozen=True)
class Advice:
    """What a report prints, and the change in percent that it predicts of it."""

    text: str
    low: float
    mid: float
    high: float


@dataclass(frozen=True)
class Pair:
    """Seconds per step without and with the advice; `problem` says why there is none of these."""

    framework: str
    version: str
    case: str
    rule: str
    seed: int
    unseen: bool
    before_s: float
    after_s: float = 0.0
    advice: Advice | None = None
    problem: str = ""

    @property
    def measured(self) -> float:
        """The change of the step time in percent."""
        return 100 * (self.after_s / self.before_s - 1)

    @property
    def has_failed(self) -> bool:
        """Whether a job ended with an error, so that nothing was measured."""
        return self.problem.startswith(FAILED)


class NoAdviceError(ValueError):
    """The report does not say what to do, or not what that brings."""


def advice_of(document: Mapping[str, Any], case: Case) -> Advice:
    """The first fix of the rule's finding, or its next step where the case is one in code.

    Raises:
        NoAdviceError: there is no such finding, advice or prediction.
    """
    findings = {finding["id"]: finding for finding in document["findings"]}
    if case.rule not in findings:
        raise NoAdviceError(_why_silent(document, case.rule))
    finding = findings[case.rule]
    if case.next_step:
        steps = [s for s in finding["next_steps"] if re.search(case.next_step, s["text"])]
        advised = [(step["text"], step) for step in steps]
    else:
        advised = [(fix["spelling"], fix) for fix in finding["fixes"]]
    if not advised:
        raise NoAdviceError(f"nothing to apply: {finding['cause']}")
    text, entry = advised[0]
    predicted = entry["predicted"]
    if predicted is None:
        raise NoAdviceError(f"{text}: {entry['risk']}")
    return Advice(text, predicted["low"], predicted["mid"], predicted["high"])


def _why_silent(document: Mapping[str, Any], rule: str) -> str:
    for group, key in (("passed", "note"), ("not_run", "missing"), ("not_applicable", "reason")):
        for entry in document[group]:
            if entry["id"] == rule:
                return f"{group}: {entry[key]}"
    return "no finding"


def run_pair(case: Case, machine: Machine, folder: Path, seed: int, printed: str) -> Pair:
    """Runs the job beside the one with the advice `known`, and asks its report for the advice.

    What else the host does falls on both jobs. Should the report print something else than `known`,
    both run once more, beside each other too, with what it prints. A job that fails is the pair's
    `problem`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    pair = Pair(case.framework, "", case.name, case.rule, seed, case.unseen, 0.0)
    job = _Job(case, machine, seed)
    try:
        plain, changed = _beside(job, folder / "first", printed)
        document = report(plain)
    except JobFailedError as failure:
        return replace(pair, problem=f"{FAILED}: {failure}")
    pair = replace(
        pair,
        version=document["run"]["framework_version"],
        before_s=document["summary"]["step_time_s"],
    )
    try:
        pair = replace(pair, advice=advice_of(document, case))
        if pair.advice and pair.advice.text != printed:
            plain, changed = _beside(job, folder / "second", pair.advice.text)
            pair = replace(pair, before_s=step_s(plain))
        return replace(pair, after_s=step_s(changed.result()))
    except NoAdviceError as silence:
        return replace(pair, problem=f"no advice: {silence}")
    except NotAFlagError as error:
        return replace(pair, problem=f"no flag: {error}")
    except JobFailedError as refusal:
        return replace(pair, problem=f"{FAILED} with the advice: {refusal}")


@dataclass(frozen=True)
class _Job:
    case: Case
    machine: Machine
    seed: int

    def run(self, folder: Path, advice: str = "") -> Path:
        """Where the recording is of the job as it is, or with an advice applied."""
        case, work = self.case, self.case.work
        words = command(case, self.machine, folder, self.seed)
        if advice and case.next_step:
            work = case.rewritten
        elif advice:
            words = apply(words, advice)
        return record(words, environment(self.machine, work), folder)


def _beside(job: _Job, folder: Path, advice: str) -> tuple[Path, Future[Path]]:
    """The recording of the job, and of the job with the advice, which may have failed."""
    with ThreadPoolExecutor() as pool:
        changed = pool.submit(job.run, folder / "after", advice)
        return job.run(folder / "before"), changed


def _ends(problem: str) -> list[str]:
    """What it was, and the last line of what the job said."""
    first, *rest = problem.strip().splitlines() or [""]
    return [first, *rest[-1:]]


def line(pair: Pair) -> str:
    """A pair in one line, as it is printed when it is done."""
    start = f"seed {pair.seed} {pair.framework} {pair.version} {pair.case}: {pair.before_s:.3f} s"
    if pair.problem or pair.advice is None:
        return f"{start}, {' ... '.join(_ends(pair.problem))}"
    advice = pair.advice
    return (
        f"{start} -> {pair.after_s:.3f} s, measured {pair.measured:+.1f}%, predicted "
        f"{advice.low:+.1f} {advice.mid:+.1f} {advice.high:+.1f}% of {advice.text}"
    )
