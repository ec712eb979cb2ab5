"""A diagnostic profiler and hang debugger for GRPO runs.

In a notebook: `grpo_doctor.load(PATH).frame()` has the spans of a run directory or a trace.json as
a pandas DataFrame, one row each, times in nanoseconds (`grpo_doctor.trace.model.Trace.frame`).
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["__version__", "load"]

__version__: str


def __getattr__(name: str) -> Any:
    """What takes long to import, when it is asked for: 70 ms, in which Ctrl-C is a traceback."""
    if name == "load":
        return importlib.import_module("grpo_doctor.importers.load").load
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("grpo-doctor")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
