"""A pair: a job with its handicap, what its report advises, and the job with that applied."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.frameworks.advice.applying import NotAFlagError, apply
from tests.frameworks.advice.cases import Case
from tests.frameworks.advice.jobs import JobFailedError, Place, command, environment, record


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


def run_pair(case: Case, place: Place, folder: Path, seed: int, known: str = "") -> Pair:
    """Runs the job, asks for advice, applies it as it is printed, and runs the job again.

    Where an earlier pair's report printed `known`, both jobs run at once, so that what else the
    host does falls on both. Should this pair's report print something else, that is run instead.
    """
    shutil.rmtree(folder, ignore_errors=True)
    with ThreadPoolExecutor() as beside:
        early = beside.submit(_changed, case, place, folder / "early", seed, known)
        words = command(case, place, folder / "before", seed)
        document = record(words, environment(place, case.work), folder / "before")
    advice, after_s, problem = None, 0.0, ""
    try:
        advice = advice_of(document, case)
        same = advice.text == known
        after_s = early.result() if same else _changed(
            case, place, folder / "after", seed, advice.text
        )  # fmt: skip
    except NoAdviceError as silence:
        problem = f"no advice: {silence}"
    except NotAFlagError as other:
        problem = f"no flag: {other}"
    except JobFailedError as refusal:
        problem = f"refused: {refusal}"
    version, before_s = document["run"]["framework_version"], document["summary"]["step_time_s"]
    return Pair(case.framework, version, case.name, case.rule, seed, case.unseen, before_s,
                after_s, advice, problem)  # fmt: skip


def _changed(case: Case, place: Place, folder: Path, seed: int, text: str) -> float:
    """Seconds per step of the job with this advice; 0 without one."""
    if not text:
        return 0.0
    words = command(case, place, folder, seed)
    if not case.next_step:
        words = apply(words, text)
    work = case.rewritten if case.next_step else case.work
    step_s: float = record(words, environment(place, work), folder)["summary"]["step_time_s"]
    return step_s


def line(pair: Pair) -> str:
    """A pair in one line, as it is printed when it is done."""
    start = f"seed {pair.seed} {pair.framework} {pair.version} {pair.case}: {pair.before_s:.3f} s"
    if pair.problem or pair.advice is None:
        return f"{start}, {pair.problem}"
    said = pair.advice
    return (
        f"{start} -> {pair.after_s:.3f} s, measured {pair.measured:+.1f}%, predicted "
        f"{said.low:+.1f} {said.mid:+.1f} {said.high:+.1f}% of {said.text}"
    )
