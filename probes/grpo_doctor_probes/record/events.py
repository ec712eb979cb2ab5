"""Moments and numbers: `counter`, `instant`, training `metrics` and the job's own `describe`."""

from __future__ import annotations

from time import monotonic_ns

from grpo_doctor_probes.record import layout, recorder, sidecar
from grpo_doctor_probes.record.rundir import JOB_JSON, METRICS_JSONL

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def counter(name: str, value: float) -> None:
    """Record a number of this rank at this moment, such as tokens generated."""
    _moment(layout.COUNTER, name, value)


def instant(name: str) -> None:
    """Record that something happened on this rank at this moment."""
    _moment(layout.INSTANT, name, 0.0)


def _moment(kind: int, name: str, value: float) -> None:
    active = recorder.ACTIVE or recorder.start_if_asked()
    if active is None:
        return
    try:
        now_ns = monotonic_ns()
        active.write(kind, active.name_id(name), now_ns, now_ns, float(value))
    except Exception:  # noqa: BLE001 - a guest never raises into its host
        recorder.note_error()


def metrics(step: int, values: Mapping[str, float]) -> None:
    """Append one step's training metrics to `metrics.jsonl`. Call on rank 0.

    What is not a number is left out. NaN and infinities are kept, as the strings "nan", "inf" and
    "-inf": a reward that is NaN is a finding, and JSON has no number for it. None counts as NaN.
    """
    active = recorder.ACTIVE or recorder.start_if_asked()
    if active is None:
        return
    try:
        row = {"step": int(step), "t_ns": monotonic_ns(), "metrics": _numbers(values)}
        sidecar.append_line(f"{active.run_dir}/{METRICS_JSONL}", row)
    except Exception:  # noqa: BLE001 - a guest never raises into its host
        recorder.note_error()


def describe(
    framework: str,
    version: str | None = None,
    config: Mapping[str, Any] | None = None,
    versions: Mapping[str, str] | None = None,
    world_size: int | None = None,
) -> None:
    """Write what the job says of itself to `job.json`. Call on rank 0.

    Args:
        framework: `bundled`, `ms-swift`, `trl`, `verl` or `openrlhf`.
        version: the framework's version.
        config: resolved options under the framework's own names; secrets are taken out.
        versions: package name to version.
        world_size: how many ranks train, where WORLD_SIZE doesn't say so: in a driver.
    """
    active = recorder.ACTIVE or recorder.start_if_asked()
    if active is None:
        return
    try:
        from grpo_doctor_probes.record.redact import redact_mapping  # noqa: PLC0415 - `re` costs 5 ms

        facts = {
            "format": 1,
            "framework": framework,
            "framework_version": version,
            "config": redact_mapping(config or {}),
            "versions": dict(versions or {}),
            "world_size": world_size or sidecar.number("WORLD_SIZE") or 1,
        }
        sidecar.write_json(f"{active.run_dir}/{JOB_JSON}", facts)
    except Exception:  # noqa: BLE001 - a guest never raises into its host
        recorder.note_error()


def _numbers(values: Mapping[str, float]) -> dict[str, float]:
    numbers = {}
    for name, value in values.items():
        try:
            numbers[str(name)] = float("nan" if value is None else value)
        except (TypeError, ValueError):
            continue
    return numbers
