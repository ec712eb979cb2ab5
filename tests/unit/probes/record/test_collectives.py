"""Records of collectives: groups, numbers, waits; with a stand-in for torch.distributed."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.record import recorder
from grpo_doctor_probes.record.collectives import watch_collectives
from tests.unit.probes.conftest import Recorded


class Group:
    def __init__(self, name: str) -> None:
        self.group_name = name


class Work:
    waited = 0

    def wait(self, timeout: float = 0.0) -> float:
        type(self).waited += 1
        return timeout


NOT_OURS = object()


@pytest.fixture
def dist(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with a few collectives, of which `all_gather_object` makes two others."""
    module: Any = ModuleType("torch.distributed")
    inner: Any = ModuleType("torch.distributed.distributed_c10d")
    module.ProcessGroup = Group
    module.GroupMember = SimpleNamespace(NON_GROUP_MEMBER=NOT_OURS)
    module.group = SimpleNamespace(WORLD=Group("0"))
    module.Work = type("Work", (Work,), {"wait": Work.wait})

    def all_reduce(tensor: object, group: object = None, async_op: bool = False) -> Any:
        return module.Work() if async_op else None

    def barrier(group: object = None) -> None:
        raise TimeoutError("nobody came")

    def all_gather_object(things: object, group: object = None) -> str:
        module.all_reduce(things, group=group)
        inner.all_reduce(things, group=group)
        return "gathered"

    for function in (all_reduce, barrier, all_gather_object):
        setattr(module, function.__name__, function)
        setattr(inner, function.__name__, function)
    monkeypatch.setitem(sys.modules, "torch.distributed", module)
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", inner)
    return module


@pytest.fixture
def watched(recording: Recorded, dist: Any) -> Any:
    """The module, whose collectives are recorded."""
    assert watch_collectives()
    return dist


def records(recording: Recorded) -> list[tuple[str, str, str, float]]:
    return [(row.kind, row.name, row.args, row.value) for row in recording.rows]


WORLD = '{"group": "world"}'


def test_one_operation_of_the_users_is_one_record(recording: Recorded, watched: Any) -> None:
    assert watched.all_gather_object([]) == "gathered"
    watched.all_reduce(1)
    said = [(name, value) for _, name, _, value in records(recording)]
    assert said == [("all_gather_object", 1), ("all_reduce", 2)]


def test_another_thread_is_in_none_while_this_one_is(recording: Recorded, watched: Any) -> None:
    inside, outside = threading.Event(), threading.Event()
    plain: Callable[..., Any] = watched.all_reduce.__wrapped__

    def slow(things: object, group: object = None) -> None:
        inside.set()
        assert outside.wait(20)

    second: Any = ModuleType("torch.distributed")
    vars(second).update({**vars(watched), "all_reduce": plain, "broadcast": slow})
    sys.modules["torch.distributed"] = second
    watch_collectives()
    thread = threading.Thread(target=second.broadcast, args=(1,))
    thread.start()
    assert inside.wait(20)
    second.all_reduce(1)
    outside.set()
    thread.join()
    assert sorted(name for _, name, _, _ in records(recording)) == ["all_reduce", "broadcast"]


def test_who_is_no_member_records_nothing(recording: Recorded, watched: Any) -> None:
    watched.all_reduce(1, NOT_OURS)
    watched.all_reduce(1, group=NOT_OURS)
    assert records(recording) == []


def test_a_collective_that_raises_is_recorded_and_raises(recording: Recorded, watched: Any) -> None:
    with pytest.raises(TimeoutError, match="nobody came"):
        watched.barrier()
    watched.all_reduce(1)
    assert [name for _, name, _, _ in records(recording)] == ["barrier", "all_reduce"]
    assert recording.header.open_spans == ()


def test_a_wait_has_the_number_of_its_operation_once(recording: Recorded, watched: Any) -> None:
    work = watched.all_reduce(1, async_op=True)
    assert work.wait(3.0) == 3.0
    assert work.wait(2.0) == 2.0
    assert records(recording) == [
        ("collective", "all_reduce", WORLD, 1),
        ("wait", "wait", WORLD, 1),
    ]


def test_an_operation_that_nobody_waits_for_is_forgotten(recording: Recorded, watched: Any) -> None:
    watched.all_reduce(1, async_op=True)
    gc.collect()
    for _ in range(20):  # one of them gets the number that the first one had in memory
        watched.Work().wait()
    assert [kind for kind, _, _, _ in records(recording)] == ["collective"]


def test_watching_again_changes_nothing(recording: Recorded, watched: Any) -> None:
    assert not watch_collectives()
    inner: Any = sys.modules["torch.distributed.distributed_c10d"]
    assert inner.all_reduce is watched.all_reduce
    inner.all_reduce(1)
    assert len(records(recording)) == 1


def test_without_a_recording_or_torch_nothing_is_wrapped(
    dist: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not watch_collectives()
    assert not hasattr(dist.all_reduce, "__wrapped__")
    assert recorder.start(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch.distributed")
    assert not watch_collectives()


def test_calls_go_on_after_the_recording_has_ended(recording: Recorded, watched: Any) -> None:
    work = watched.all_reduce(1, async_op=True)
    recorder.stop()
    assert work.wait(1.0) == 1.0
    assert isinstance(watched.all_reduce(1, async_op=True), watched.Work)
    assert len(records(recording)) == 1
