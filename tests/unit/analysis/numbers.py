"""The numbers of an analysis, so that a change of any of them shows.

`python -m tests.unit.analysis.numbers` writes them down again; read the diff of `numbers.json`.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.critical import critical_path, joined
from grpo_doctor.analysis.gpu import offloaded_bytes, rank_gpus
from grpo_doctor.analysis.groups import group_times
from grpo_doctor.analysis.per_step import counted, gap_seconds, unattributed_span_seconds
from grpo_doctor.analysis.sampled import counter_sum, max_over, mean_over, value_at, values_in
from grpo_doctor.analysis.stragglers import work_above_others
from tests.unit.analysis.recordings import RANKS, recording

RECORDED = Path(__file__).with_name("numbers.json")
SEEDS = range(6)


def numbers(seed: int) -> dict[str, Any]:
    """What is said of one recording, by name."""
    analysis = analyse(recording(seed))
    trace, inside = analysis.trace, analysis.used_windows
    tables = {
        name: np.nansum(getattr(analysis, name), axis=2)
        for name in ("seconds", "waited", "transferred", "idled")
    }
    of_phases = {
        f"{name} of phases": np.nansum(getattr(analysis, name), axis=(0, 1))
        for name in ("used_seconds", "used_waited", "used_own_work")
    }
    sampled = {
        series.name: [
            mean_over(series, inside),
            max_over(series, inside),
            values_in(series, inside),
        ]
        for series in trace.series[-3:]
    }
    values: dict[str, Any] = plain(
        tables
        | of_phases
        | sampled
        | {
            "steps": analysis.steps,
            "duties": analysis.duties,
            "idle": analysis.idle,
            "blame": analysis.blame,
            "regimes": analysis.regimes,
            "accounting": analysis.accounting,
            "claims": analysis.waits.claims,
            "arrivals": analysis.waits.arrivals,
            "groups": group_times(analysis),
            "path": [joined(critical_path(analysis, int(row))) for row in analysis.steps.used[:3]],
            "tokens": counted(analysis, "rollout/tokens"),
            "all tokens": counter_sum(trace, "rollout/tokens", inside),
            "held": value_at(trace.series[-1], analysis.steps.end_ns[:, 0]),
            "gaps": {" ".join(pair): seconds for pair, seconds in gap_seconds(analysis).items()},
            "unattributed": unattributed_span_seconds(analysis),
            "above others": [
                work_above_others(analysis.used_seconds - analysis.used_waited, r)
                for r in range(RANKS)
            ],
            "memory": analysis.gpu_memory,
            "busy": [analysis.gpu_busy, analysis.gpu_truly_busy],
            "GPUs": rank_gpus(trace),
            "offloaded": offloaded_bytes(trace, analysis.tracks),
        }
    )
    return values


def plain(value: Any) -> Any:
    """As JSON: numbers to six digits, nanoseconds as they are."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if np.isfinite(value) else str(value)
    return value.item() if isinstance(value, np.generic) else value


def recorded() -> dict[str, Any]:
    """What was written down."""
    numbers_by_run: dict[str, Any] = json.loads(RECORDED.read_text())
    return numbers_by_run


if __name__ == "__main__":
    rows = {f"seed {seed}": numbers(seed) for seed in SEEDS}
    text = json.dumps(rows, sort_keys=True, separators=(",", ":"))
    RECORDED.write_text(text.replace('],"', '],\n"').replace('},"', '},\n"') + "\n")
