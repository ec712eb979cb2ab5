"""Why there is no job to look at. The messages are whole sentences and name the next step."""

from __future__ import annotations


class NoJobError(Exception):
    """No such process, or none that belongs to a training job."""


class NoPermissionError(Exception):
    """The job is there, but nothing of it may be read. The message has this machine's remedy."""
