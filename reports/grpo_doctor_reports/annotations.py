"""Workflow commands of GitHub Actions: lines of a log that become annotations.

https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

_LEVELS = {"high": "error", "medium": "warning"}


def level_of(severity: str) -> str:
    """`error`, `warning` or `notice`."""
    return _LEVELS.get(severity, "notice")


def annotation(level: str, text: str, **properties: object) -> str:
    """One command. `properties` are such as `file`, `line` and `title`."""
    pairs = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    return f"::{level}{' ' if pairs else ''}{pairs}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
