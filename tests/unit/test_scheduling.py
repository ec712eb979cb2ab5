"""Tests go to processes that have read them, in order, whole files, and none is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.scheduling import FileScheduling, readers_of

UNIT = [f"tests/unit/test_{name}.py::test_{n}" for name in "ab" for n in range(3)]
JOBS = [f"tests/integration/test_{name}.py::test_{n}" for name in "cd" for n in range(2)]


@dataclass(eq=False)
class Process:
    """A worker as xdist knows it; `sent` are the tests that it was given, by their indices."""

    name: str
    sent: list[int] = field(default_factory=list)
    shutting_down: bool = False

    @property
    def gateway(self) -> Any:
        return SimpleNamespace(id=self.name)

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduling(*workers: str) -> tuple[FileScheduling, Any]:
    session = SimpleNamespace(testscollected=0)
    config: Any = SimpleNamespace(
        option=SimpleNamespace(tx=["popen"] * len(workers)),
        pluginmanager=SimpleNamespace(get_plugin=lambda _: session),
    )
    return FileScheduling(config, lambda test: test.partition("::")[0]), session


def run(scheduler: FileScheduling, collections: dict[Process, list[str]]) -> dict[str, list[str]]:
    """Runs all that is given, one test of each process in turn, as xdist would."""
    ran: dict[str, list[str]] = {process.name: [] for process in collections}
    while any(len(ran[p.name]) < len(p.sent) for p in collections):
        for process, tests in collections.items():
            index = len(ran[process.name])
            if index < len(process.sent):
                ran[process.name].append(tests[process.sent[index]])
                scheduler.mark_test_complete(process, process.sent[index])
    return ran


def begin(scheduler: FileScheduling, collections: dict[Process, list[str]]) -> None:
    for process in collections:
        scheduler.add_node(process)
    for process, tests in collections.items():
        assert not scheduler.collection_is_completed
        scheduler.add_node_collection(process, tests)
    scheduler.schedule()


def test_each_kind_of_file_has_workers_of_its_own() -> None:
    assert readers_of("tests/unit/test_a.py", 5) == ["gw0", "gw2", "gw3"]
    assert readers_of("tests/integration/test_c.py", 5) == ["gw1", "gw4"]
    assert readers_of("tests/unit/test_a.py", 2) == ["gw0", "gw1"]


@pytest.mark.parametrize("workers", range(1, 20))
def test_every_file_has_a_reader(workers: int) -> None:
    assert readers_of("tests/unit/test_a.py", workers)
    assert readers_of("tests/integration/test_c.py", workers)


def test_files_stay_whole_and_go_to_those_that_have_read_them() -> None:
    scheduler, session = scheduling("gw0", "gw1", "gw2")
    collections = {Process("gw0"): UNIT, Process("gw1"): JOBS, Process("gw2"): UNIT}
    begin(scheduler, collections)
    assert session.testscollected == len(UNIT) + len(JOBS)
    ran = run(scheduler, collections)
    assert (ran["gw0"], ran["gw1"], ran["gw2"]) == (UNIT[:3], JOBS, UNIT[3:])
    assert scheduler.tests_finished
    assert not scheduler.has_pending
    assert all(process.shutting_down for process in collections)


def test_two_that_have_read_everything_begin_with_their_own_kind_and_help_each_other() -> None:
    scheduler, _ = scheduling("gw0", "gw1")
    collections = {Process("gw0"): [*UNIT, *JOBS], Process("gw1"): [*UNIT, *JOBS]}
    begin(scheduler, collections)
    ran = run(scheduler, collections)
    assert ran["gw0"][0] in UNIT
    assert ran["gw1"][0] in JOBS
    assert sorted([*ran["gw0"], *ran["gw1"]]) == sorted([*UNIT, *JOBS])


def test_what_a_process_leaves_goes_to_another_of_its_kind() -> None:
    scheduler, _ = scheduling("gw0", "gw1", "gw2")
    died, jobs, other = Process("gw0"), Process("gw1"), Process("gw2")
    begin(scheduler, {died: UNIT, jobs: JOBS, other: UNIT})
    scheduler.mark_test_complete(died, died.sent[0])
    assert scheduler.remove_node(died) == UNIT[1]
    ran = run(scheduler, {jobs: JOBS, other: UNIT})
    assert ran == {"gw1": JOBS, "gw2": [*UNIT[3:], UNIT[2]]}
    assert scheduler.tests_finished


def test_or_to_the_one_that_replaces_it_where_there_is_none() -> None:
    scheduler, _ = scheduling("gw0", "gw1")
    died, jobs, replacing = Process("gw0"), Process("gw1"), Process("gw2")
    begin(scheduler, {died: UNIT, jobs: JOBS})
    assert scheduler.remove_node(died) == UNIT[0]
    scheduler.add_node(replacing)
    run(scheduler, {jobs: JOBS})
    assert [jobs.shutting_down, scheduler.has_pending] == [False, True]
    collections = {replacing: [*UNIT, *JOBS]}
    scheduler.add_node_collection(replacing, collections[replacing])
    scheduler.schedule()
    assert sorted(run(scheduler, collections)["gw2"]) == UNIT[1:]
    assert [jobs.shutting_down, scheduler.has_pending] == [True, False]


def test_the_test_in_which_a_process_died_may_be_run_once_more() -> None:
    scheduler, _ = scheduling("gw0", "gw2")
    died, other = Process("gw0"), Process("gw2")
    begin(scheduler, {died: UNIT, other: UNIT})
    crashed = scheduler.remove_node(died)
    assert crashed == UNIT[0]
    scheduler.mark_test_pending(crashed)
    assert sorted(run(scheduler, {other: UNIT})["gw2"]) == UNIT
    assert scheduler.tests_finished


def test_a_process_that_ends_with_nothing_to_do_died_in_no_test() -> None:
    scheduler, _ = scheduling("gw0")
    process = Process("gw0")
    begin(scheduler, {process: []})
    assert process.shutting_down
    assert scheduler.remove_node(process) is None
