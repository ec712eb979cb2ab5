"""A diagnostic profiler and hang debugger for GRPO runs.

In a notebook: `run = grpo_doctor.load(PATH)` opens a run directory or a trace.json. `run.frame()`
has its spans as a pandas DataFrame, `run.figure("steps")` a chart of its report as a plotly figure.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["__version__", "load"]

__version__: str


def __getattr__(name: str) -> Any:
    """What takes long to import, when it is asked for: 70 ms, in which Ctrl-C is a traceback."""
    if name == "load":
        return importlib.import_module("grpo_doctor.notebook").load
    if name == "__version__":
        metadata = importlib.import_module("importlib.metadata")
        try:
            return metadata.version("grpo-doctor")
        except metadata.PackageNotFoundError:  # a checkout on PYTHONPATH
            return "0+not.installed"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
