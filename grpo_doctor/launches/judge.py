"""All that is wrong with a launch: what its parser refuses, and what the sanity rules say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from grpo_doctor.launches.domain import unread
from grpo_doctor.launches.model import Launch, Problem
from grpo_doctor.launches.rule import Flaw
from grpo_doctor.launches.rules import load
from grpo_doctor.launches.view import NO_FLAG, View
from grpo_doctor_reports.severity import SEVERITIES


@dataclass(frozen=True, slots=True)
class Judged:
    """A problem, and the rule or the kind of check that found it."""

    id: str
    slug: str
    flaw: Flaw
    command: str = "train"
    """`train`, or `server` for a companion's."""


def judge(view: View) -> tuple[Judged, ...]:
    """Everything that is wrong, what comes first first."""
    flaws = [*_problems(view.launch, "train"), *_in_every_version(view)]
    for companion in view.launch.companions:
        flaws += _problems(companion, "server")
        flaws += _rules(View(companion, view.host, view.model), "server")
    return tuple(sorted(flaws, key=_order))


def _in_every_version(view: View) -> Iterator[Judged]:
    """What the rules find; an end that the oldest version possible does not know is not an end, and
    neither is one of a launch with options that no known version has."""
    launch, oldest = view.launch, view.launch.oldest
    ends = {j.id for j in _rules(replace(view, launch=oldest), "train")} if oldest else None
    foreign = launch.framework not in launch.versions and any(
        problem.kind == "unknown-flag" and not problem.ends for problem in launch.problems
    )
    for judged in _rules(view, "train"):
        if (ends is None or judged.id in ends) and not (foreign and judged.flaw.ends):
            yield judged
            continue
        doubt = "its options are of an older version or a fork, which may allow it"
        if oldest is not None and not foreign:
            doubt = f"not so in {oldest.framework} {oldest.version}, which takes these options too"
        fix = f"or give the version: --version {launch.framework}=X"
        flaw = judged.flaw
        severity = "medium" if flaw.severity == "high" else flaw.severity
        evidence, fixes = (*flaw.evidence, doubt), (*flaw.fixes, fix)
        flaw = replace(
            flaw, severity=severity, evidence=evidence, fixes=fixes, ends=False, first=False
        )
        yield replace(judged, flaw=flaw)


def _order(judged: Judged) -> tuple[bool, bool, bool, int, str]:
    """What makes the rest pointless, what the parser refuses, what ends the job, then the rest."""
    flaw = judged.flaw
    refused = not judged.id.startswith("GL")
    return (
        not flaw.first,
        not (refused and flaw.ends),
        not flaw.ends,
        SEVERITIES.index(flaw.severity),
        judged.id,
    )


def _rules(view: View, command: str) -> Iterator[Judged]:
    if unread(view.launch) is not None:
        return
    for rule in load():
        flaw = rule.check(view)
        if flaw is not None:
            # What a version has no option for can't be done there.
            fixes = [text for text in flaw.fixes if NO_FLAG not in text]
            fixes[:1] = [text.removeprefix("or ") for text in fixes[:1]]
            yield Judged(rule.id, rule.slug, replace(flaw, fixes=tuple(fixes)), command)


def _problems(launch: Launch, command: str) -> Iterator[Judged]:
    for problem in launch.problems:
        yield Judged(problem.kind, problem.kind, _flaw(problem), command)


def _flaw(problem: Problem) -> Flaw:
    minor = problem.kind in ("contradiction", "unset-variable", "unreadable", "unknown-flag")
    return Flaw(
        severity="high" if problem.ends else "low" if minor else "medium",
        headline=problem.text,
        evidence=(),
        fixes=(problem.fix,) if problem.fix else (),
        source=problem.source,
        ends=problem.ends,
    )
