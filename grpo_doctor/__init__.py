"""A diagnostic profiler and hang debugger for GRPO runs."""

from __future__ import annotations

from importlib import metadata

__all__ = ["__version__"]

__version__ = metadata.version("grpo-doctor")
