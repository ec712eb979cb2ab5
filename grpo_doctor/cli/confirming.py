"""`attach --confirm`: asks, undoes what stops the job, and says whether the job moved."""

from __future__ import annotations

import sys

from grpo_doctor.cli.console import put, say
from grpo_doctor.hang import confirm as undoing
from grpo_doctor.hang.verdict import Diagnosis
from grpo_doctor_probes.evidence import Job
from grpo_doctor_reports.text_safety import PROSE_LIMIT, clean


def confirm(diagnosis: Diagnosis, job: Job, *, ask: bool) -> tuple[Diagnosis, bool]:
    """Try what the verdict offers to undo; the first that was done decides. Returns what is known
    by then, and whether the job moves again.

    Raises:
        NoJobError, PermissionNeededError, OutputError: it could not be done.
    """
    if not diagnosis.undo:
        say("no safe change is known; nothing was changed")
    for undo in diagnosis.undo:
        question = clean(undo.text, PROSE_LIMIT)
        if ask:
            put(f"grpo-doctor: {question} [y/N] ")
            if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
                say("left unchanged")
                continue
        say(f"{question} Yes; watching whether the job moves ...")
        job_moved = undoing.carry_out(undo, job)
        diagnosis = undoing.confirmed(diagnosis, undo, job_moved=job_moved)
        say(clean(diagnosis.verdict.evidence[0].text, PROSE_LIMIT))
        return diagnosis, job_moved
    return diagnosis, False
