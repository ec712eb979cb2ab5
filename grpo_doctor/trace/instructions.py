"""How a setting of a recorded run is changed, where that run takes it."""

from __future__ import annotations

from pathlib import Path

from grpo_doctor.knobs.advice import Job, Place
from grpo_doctor.launches.place import place_of
from grpo_doctor.trace.model import Run, Trace

_MODE = "vllm.mode"


def place_of_run(trace: Trace) -> Place:
    """Return where this run's settings are written, its own script read where it still is."""
    run, folder = trace.run, Path(trace.source).resolve().parent
    until_ns = run.started_unix_ns + run.duration_ns
    return place_of(run.command, run.framework, (Path.cwd(), folder.parent), until_ns)


def job_of(run: Run, place: Place) -> Job:
    """Return what decides how this run's settings are changed."""
    versions = {**run.versions, run.framework: run.framework_version}
    mode = run.setting(_MODE).value
    return Job(run.framework, versions, {**run.knobs, _MODE: mode}, place)
