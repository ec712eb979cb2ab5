"""What ledgers and launches say changes only where that is meant."""

from __future__ import annotations

import json

import pytest

from tests.unit.memory.sizes import COMMANDS, JOBS, of_command, of_job, recorded

RECORDED = recorded()
HOW = "python -m tests.unit.memory.sizes"


@pytest.mark.parametrize("name", JOBS)
def test_a_ledger_is_the_one_that_was_written_down(name: str) -> None:
    assert json.loads(json.dumps(of_job(name))) == RECORDED[name], HOW


@pytest.mark.parametrize("command", COMMANDS)
def test_a_launch_is_read_as_it_was_written_down(command: str) -> None:
    assert json.loads(json.dumps(of_command(command))) == RECORDED[command], HOW
