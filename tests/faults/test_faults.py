"""The bench as tests: a handful in `make test-heavy`, the others one by one with `-m faults`.

`make test-faults` runs the same cases faster, some of them overlapping, and holds the totals to
their goals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.faults.bench import fork_server, line, run_faults
from tests.faults.cases import Options, run_case
from tests.faults.controls import CONTROLS
from tests.faults.healthy import CALM, watch
from tests.faults.jobs import ForkServer
from tests.faults.registry import load
from tests.faults.score import Outcome

pytest.importorskip("torch", reason="needs torch")
pytestmark = [pytest.mark.slow, pytest.mark.heavy]
HANDFUL = (
    "SIGSTOP in rollout",
    "another operation",
    "a rank that was never started",
)
YOUNG_S = 6.0
OLD_S = 40.0
ATTACHES = 5
BY_PID = Options(by_pid=True)
OTHERS = [name for name in load() if name not in HANDFUL]


@pytest.fixture(scope="module")
def handful() -> dict[str, Outcome]:
    """The verdicts on the handful, made together while the faults age."""
    faults = [replace(load()[name], age_s=YOUNG_S) for name in HANDFUL]
    return {outcome.name: outcome for outcome in run_faults(faults, [0], BY_PID)}


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with fork_server() as forks:
        yield forks


def assert_right(outcome: Outcome) -> None:
    assert not outcome.failed, outcome.skipped
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.right, line(outcome)


@pytest.mark.parametrize("name", HANDFUL)
def test_a_handful_of_faults_is_explained(
    handful: dict[str, Outcome], server: ForkServer, name: str
) -> None:
    outcome = handful[name]
    if outcome.answer is not None and outcome.answer.state in CALM:  # where the job was slow before
        outcome = run_case(server, replace(load()[name], age_s=OLD_S), options=BY_PID)
    assert_right(outcome)


@pytest.mark.faults
@pytest.mark.parametrize("name", OTHERS)
def test_the_fault_is_explained(server: ForkServer, name: str) -> None:
    assert_right(run_case(server, load()[name], options=BY_PID))


@pytest.mark.faults
@pytest.mark.parametrize("name", CONTROLS)
def test_nothing_is_wrong_with_a_healthy_job(server: ForkServer, name: str) -> None:
    assert not watch(server, CONTROLS[name], ATTACHES).wrong()
