"""Names inside a run directory: the only interface between a job and the tool."""

from __future__ import annotations

RUN_DIR_VARIABLE = "GRPO_DOCTOR_RUN_DIR"
MAX_MB_VARIABLE = "GRPO_DOCTOR_MAX_MB"
ENTRIES_VARIABLE = "GRPO_DOCTOR_FLIGHT"
# "1": watch the imports of every Python of the job, and time phases of frameworks.
HOOKS_VARIABLE = "GRPO_DOCTOR"
# "1": seconds of phases also go to the loggers of the job's own framework.
LOG_METRICS_VARIABLE = "GRPO_DOCTOR_LOG_METRICS"
# "12:3": a trace of the PyTorch profiler of the steps 12 to 14.
PROFILE_VARIABLE = "GRPO_DOCTOR_TORCH_PROFILE"

RUN_JSON = "run.json"
JOB_JSON = "job.json"
METRICS_JSONL = "metrics.jsonl"
TRACE_JSON = "trace.json"
FINDINGS_JSON = "findings.json"
REPORT_HTML = "report.html"
RANKS = "ranks"
HOSTS = "hosts"
FLIGHT = "flight"
# Run directories of the servers that `run --join` started, within the run's.
JOINED = "joined"
PROFILES = "profiles"
SPANS_SUFFIX = ".spans"
ENTRIES_SUFFIX = ".flight.jsonl"
SAMPLES_SUFFIX = ".samples.jsonl"
# The role of a process that carries the steps of others, such as Ray actors.
DRIVER = "driver"


def rank_stem(rank: int, role: str | None = None) -> str:
    """File name stem of a rank: five digits, so that a listing is in rank order.

    Workers of a driver have their role before it: the ranks are those that carry the steps.
    """
    return f"{rank:05d}" if role in (None, DRIVER) else f"{role}-{rank:05d}"
