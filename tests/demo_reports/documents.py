"""Whole documents: healthy, slow, killed, long, with many findings, hostile, almost empty."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final

from tests.demo_reports.added import slowest_of_each
from tests.demo_reports.crowd import crowd_checks, crowd_findings
from tests.demo_reports.drawn import exact_of, with_drawn
from tests.demo_reports.findings import NOT_RUN, PASSED
from tests.demo_reports.hostile import hostile_copy
from tests.demo_reports.measurements import Shape, simulate, tracks_of
from tests.demo_reports.slow import (
    SLOW,
    STARTED_UNIX_NS,
    TOOL,
    demo_document,
    rank_entry,
    run_of,
    undrawn_document,
)

_HEALTHY = Shape(
    ranks=2,
    steps=24,
    gpus=False,
    phases_s={
        "dataload": 0.02,
        "rollout": 2.1,
        "reward": 0.05,
        "logprob": 0.31,
        "train": 0.92,
        "optimizer": 0.14,
        "sync": 0.06,
    },
)
_HEATMAP_STEPS, _BAND_RANKS, _TRACKS = 1_000, 8, 48  # as the analysis thins
_SIMULATED: Final = 100  # steps of the wide run; they come again and again


def healthy_document() -> dict[str, Any]:
    """Return a run of the bundled trainer on two CPU ranks without findings."""
    document = demo_document(_HEALTHY, seed=3)
    document["findings"] = []
    del document["whatif"]
    for key in ("gpu_truly_busy_pct", "gpu_busy_by"):
        del document["summary"][key]
    document["summary"]["verdict"] = "Nothing stands out: rollout and training fill 85% of a step."
    document["run"].update(
        framework="bundled",
        framework_version="0.1.0",
        command=["grpo-doctor", "run", "--", "--model", "Qwen/Qwen2.5-0.5B", "--steps", "26"],
        gpus=[],
    )
    return document


def killed_document() -> dict[str, Any]:
    """Return a run that was killed while it started, before any step."""
    shape = Shape(ranks=4, steps=1, phases_s={"init": 1.0}, gpus=True)
    bands: list[dict[str, Any]] = [
        {"rank": rank, "phase": "init", "start_s": 0.0, "end_s": 734.0, "open": True}
        for rank in range(3)
    ]
    return {
        "schema": 1,
        "tool": TOOL,
        "run": {
            **run_of(shape),
            "exit": {"state": "killed", "code": None, "signal": "SIGKILL"},
            "duration_s": 734.0,
            "ranks": [_open_rank(0), _open_rank(1), _open_rank(2), _missing_rank(3)],
            "loss": {
                "dropped_events": 0,
                "missing_ranks": [3],
                "truncated": True,
                "notes": ["rank 2: the last record is damaged and was left out"],
            },
        },
        "summary": {
            "verdict": "The run never reached its first step: three ranks waited in init for rank "
            "3, which left no recording, until the job was killed.",
            "step_time_s": None,
            "steps": 0,
            "steps_total": 0,
            "warmup_steps": 0,
            "phases": {},
            "gpu_busy_pct": 3.1,
        },
        "findings": [],
        "passed": PASSED[:2],
        "not_run": NOT_RUN,
        "not_applicable": [],
        "views": {
            "heatmap": {"ranks": [], "steps": [], "step_seconds": []},
            "timeline": {
                "end_s": 734.0,
                "exact": exact_of(bands, 734.0),
                "tracks": tracks_of(shape, 734.0, bands),
            },
            "metrics": {"steps": [], "series": {}},
        },
    }


def long_document() -> dict[str, Any]:
    """Return 1,000 steps on 8 ranks, every view full: what the size budget is measured on."""
    phases = {**SLOW.phases_s, "eval": 0.9}
    return demo_document(Shape(8, 1_000, phases, slow_rank=5, slow_factor=1.3), seed=1)


def crowded_document() -> dict[str, Any]:
    """Return a run with findings of every family, and forty rules in all."""
    document = demo_document(seed=2)
    findings = crowd_findings(document["summary"]["step_time_s"])
    document["findings"] += findings
    document["passed"] = crowd_checks(14, "note", 41)
    document["not_run"] = crowd_checks(8, "missing", 55)
    document["not_applicable"] = crowd_checks(3, "reason", 63)
    document["hangs"] = [
        {
            "page": "hangs/0/report.html",
            "headline": "Rank 3 was stopped for 4 minutes, everybody waited in train",
            "state": "stuck",
            "taken_unix_ns": STARTED_UNIX_NS + 400_000_000_000,
        }
    ]
    return document


def wide_document(ranks: int = 64, steps: int = 2_000) -> dict[str, Any]:
    """Return a run of this size as the analysis thins it: what the time to open is measured on."""
    shape = Shape(ranks, steps, {**SLOW.phases_s, "eval": 0.9}, slow_rank=5, slow_factor=1.3)
    few = simulate(replace(shape, steps=_SIMULATED), random.Random(4))
    spans = {(r, s): few[r, s % _SIMULATED] for r in range(ranks) for s in range(steps)}
    document = undrawn_document(shape, spans)
    views = document["views"]
    heatmap, timeline = views["heatmap"], views["timeline"]
    means = [sum(column) / ranks for column in zip(*heatmap["step_seconds"], strict=True)]
    indices = slowest_of_each(means, _HEATMAP_STEPS)
    heatmap["steps"] = [heatmap["steps"][at] for at in indices]
    matrices = [
        heatmap["step_seconds"],
        heatmap["wait_seconds"],
        *heatmap["phase_seconds"].values(),
    ]
    for rows in matrices:
        rows[:] = [[round(row[at], 4) for at in indices] for row in rows]
    timeline["bands"] = [band for band in timeline["bands"] if band["rank"] < _BAND_RANKS]
    timeline["tracks"] = timeline["tracks"][:_TRACKS]
    document["views"] = with_drawn(views)
    document["findings"] += crowd_findings(document["summary"]["step_time_s"])
    return document


def hostile_document() -> dict[str, Any]:
    """Return the slow run with an attack in every string, and everything lost that can be."""
    document = demo_document()
    document["run"]["loss"].update(missing_ranks=[9], truncated=True, notes=["note"])
    document["hangs"] = [{"page": "p", "headline": "h", "state": "s"}]
    document["summary"]["set_apart"]["x"] = [4]
    document["run"]["ranks"][0]["open"] = [{"name": "rollout", "open_s": 5.0}]
    return hostile_copy(document)


def minimal_document() -> dict[str, Any]:
    """Return the least that is a document."""
    return {"schema": 1, "tool": TOOL}


def _open_rank(rank: int) -> dict[str, Any]:
    open_spans = [
        {"name": "init", "open_s": 734.0},
        {"name": "init/process_group", "open_s": 703.5 - rank},
    ]
    return {**rank_entry(rank), "state": "open", "open": open_spans}


def _missing_rank(rank: int) -> dict[str, Any]:
    return {"rank": rank, "host": "node-a", "state": "missing", "open": [], "clock_error_ns": None}


def _copy(name: str) -> dict[str, Any]:
    document: dict[str, Any] = pickle.loads(_pickled(name))
    return document


@cache
def _pickled(name: str) -> bytes:
    return pickle.dumps(_MAKERS[name]())


_MAKERS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "slow": demo_document,
    "healthy": healthy_document,
    "killed": killed_document,
    "long": long_document,
    "crowded": crowded_document,
    "hostile": hostile_document,
    "minimal": minimal_document,
}
# Copies: a test that changes its document changes nobody else's.
DEMOS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    name: partial(_copy, name) for name in _MAKERS
}
