"""What the tests of the trainer share."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from grpo_doctor_trainer.console import LOG

# Without the trainer extra there is nothing to test here.
collect_ignore_glob = [] if all(map(find_spec, ("torch", "deepspeed", "peft"))) else ["*"]


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """Takes back what `set_up_console` did: its handler writes to the stdout of one test."""
    before = list(LOG.handlers), LOG.level, LOG.propagate
    yield
    LOG.handlers, LOG.propagate = before[0], before[2]
    LOG.setLevel(before[1])
