"""Recordings: merged from a run directory, written as `trace.json`, read back into one model."""

from __future__ import annotations

from grpo_doctor.trace.model import (
    Exit,
    Gpu,
    Kind,
    Loss,
    Metrics,
    Process,
    Run,
    Series,
    Spans,
    Trace,
)

__all__ = [
    "Exit",
    "Gpu",
    "Kind",
    "Loss",
    "Metrics",
    "Process",
    "Run",
    "Series",
    "Spans",
    "Trace",
]
