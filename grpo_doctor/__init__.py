"""A diagnostic profiler and hang debugger for GRPO runs."""

from __future__ import annotations

__all__ = ["__version__"]

__version__: str


def __getattr__(name: str) -> str:
    """The version, read when it is asked for: that takes 70 ms, in which Ctrl-C is a traceback."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import metadata  # noqa: PLC0415

    return metadata.version("grpo-doctor")
