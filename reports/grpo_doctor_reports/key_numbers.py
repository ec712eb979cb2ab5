"""What stands above and below the verdict: what was trained on what, and the headline numbers."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_reports import formatting
from grpo_doctor_reports.model import Report
from grpo_doctor_reports.schema.report import RunEntry

_OUTLIER = 1.2  # times p90: a step as long as that is said beside it
_NOTHING = (formatting.NOTHING, "0")


@dataclass(frozen=True, slots=True)
class KeyNumber:
    """One of the headline numbers; `detail` is the small print under it."""

    label: str
    value: str
    detail: str


def key_numbers(report: Report) -> list[KeyNumber]:
    """Return the headline numbers, in the order in which they are read."""
    summary, run = report.summary, report.run
    numbers = [
        KeyNumber("Step time", formatting.seconds(summary.step_time_s), _spread(report)),
        _tokens(report),
        KeyNumber("GPU busy", formatting.percent(summary.gpu_busy_pct), _gpu_truly(report)),
        KeyNumber("Steps", formatting.number(summary.steps), _steps_detail(report)),
        KeyNumber("Ranks", formatting.number(run.world_size or len(run.ranks)), _hosts(run)),
        KeyNumber("Exit", run.exit.state, _exit_detail(run)),
    ]
    return [number for number in numbers if number.value not in _NOTHING]


def setup_parts(report: Report) -> list[str]:
    """Return what was trained, on what, and how it was spread: each where it is known."""
    run = report.run
    framework = run.framework if run.framework != "unknown" else ""
    if framework == "bundled":
        framework = "bundled trainer"
    version = f" {run.framework_version}" if framework and run.framework_version else ""
    return [
        part for part in (run.model, gpus_words(run), run.parallelism, framework + version) if part
    ]


def gpus_words(run: RunEntry) -> str:
    """Return `8 × NVIDIA H100 on 2 hosts`; without GPUs, how many ranks ran on CPUs."""  # noqa: RUF002
    hosts = f" on {formatting.count(len(run.hosts), 'host')}" if len(run.hosts) > 1 else ""
    if not run.gpus:
        ranks = run.world_size or len(run.ranks)
        return f"{formatting.count(ranks, 'rank')} without a GPU{hosts}" if ranks else ""
    names = {gpu.name for gpu in run.gpus}
    kind = names.pop() if len(names) == 1 else "GPUs of several kinds"
    return f"{len(run.gpus)} × {kind}{hosts}"  # noqa: RUF001 (a multiplication sign)


def _tokens(report: Report) -> KeyNumber:
    total, per_gpu = report.summary.tokens_per_s, report.summary.tokens_per_s_per_gpu
    if per_gpu is None:
        return KeyNumber("Tokens/s", formatting.compact(total), "of completions")
    detail = "" if total is None else f"{formatting.compact(total)} in all"
    return KeyNumber("Tokens/s/GPU", formatting.compact(per_gpu), detail)


def _spread(report: Report) -> str:
    summary = report.summary
    low, high, step_s = summary.step_time_p10_s, summary.step_time_p90_s, summary.step_time_s
    if low is None or high is None:
        return ""
    spread = f"p10{formatting.NOTHING}p90 {formatting.seconds(low)} to {formatting.seconds(high)}"
    longest, outside = summary.longest_step, step_s is not None and not low <= step_s <= high
    if longest.seconds is None or not (outside or longest.seconds > _OUTLIER * high):
        return spread
    return f"{spread}; step {longest.number} took {formatting.seconds(longest.seconds)}"


def _gpu_truly(report: Report) -> str:
    summary = report.summary
    if summary.gpu_truly_busy_pct is None:
        return ""
    by = f" by {summary.gpu_busy_by.replace('_', ' ')}" if summary.gpu_busy_by else " in truth"
    return f"{formatting.percent(summary.gpu_truly_busy_pct)}{by}"


def _steps_detail(report: Report) -> str:
    summary = report.summary
    parts = []
    if summary.steps_total > summary.steps:
        parts.append(f"used of {summary.steps_total:,}")
    if summary.warmup_steps:
        parts.append(f"{summary.warmup_steps:,} warm-up")
    return ", ".join(parts)


def _hosts(run: RunEntry) -> str:
    return f"on {formatting.count(len(run.hosts), 'host')}" if run.hosts else ""


def _exit_detail(run: RunEntry) -> str:
    end = run.exit
    parts = [end.signal] if end.signal else []
    if end.code is not None and (end.code != 0 or end.state != "finished"):
        parts.append(f"code {end.code}")
    if run.duration_s is not None:
        parts.append(f"after {formatting.seconds(run.duration_s)}")
    return " ".join(parts)
