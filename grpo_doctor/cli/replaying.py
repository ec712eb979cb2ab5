"""`attach --replay`: the evidence of one host, or of all hosts of a job made one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from grpo_doctor.cli.console import say
from grpo_doctor.errors import TraceError, UsageError
from grpo_doctor.hang.collection import bundle
from grpo_doctor.hang.multihost import DifferentJobsError, joined
from grpo_doctor_probes.evidence import Evidence, Problem


def replayed(paths: Sequence[Path]) -> Evidence:
    """What these bundles hold. Of several those that can't be read are named, the rest is used.

    Raises:
        UsageError: none of them can be read, or they are of different jobs.
    """
    bundles: list[Evidence] = []
    problems: list[str] = []
    for path in bundle.bundles_in(paths):
        try:
            bundles.append(bundle.read(path))
        except TraceError as problem:
            problems.append(str(problem))
    if not bundles:
        raise UsageError("\n".join(problems))
    try:
        evidence = joined(bundles)
    except DifferentJobsError as problem:
        raise UsageError(str(problem)) from problem
    for line in problems:
        say(line)
    unread = tuple(Problem(line, "Its host's ranks are not in this verdict.") for line in problems)
    return replace(evidence, problems=(*evidence.problems, *sorted(unread, key=lambda p: p.what)))
