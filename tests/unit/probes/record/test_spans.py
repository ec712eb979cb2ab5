"""Spans of one process: what is on the open stack during them, and in the records afterwards."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes import phase, step
from grpo_doctor_probes.record import recorder
from grpo_doctor_probes.record.layout import MAX_NAME_BYTES, THREAD_DEPTH, THREAD_SLOTS
from grpo_doctor_probes.record.rundir import RUN_DIR_VARIABLE
from tests.recording import spans_file
from tests.unit.probes.conftest import Recorded


def test_nothing_happens_without_a_run_directory(tmp_path: Path) -> None:
    with step(1), phase("rollout", direction="to_cpu"):
        pass
    assert recorder.ACTIVE is None
    assert list(tmp_path.iterdir()) == []


def test_spans_nest_with_their_step_outside(recording: Recorded) -> None:
    with step(7), phase("rollout"), phase("rollout/generate"):
        assert [o.name for o in recording.header.open_spans] == [
            "step",
            "rollout",
            "rollout/generate",
        ]
        assert recording.header.step == 7
    generate, rollout, outer = recording.rows
    assert [(r.kind, r.name, r.depth) for r in (outer, rollout, generate)] == [
        ("step", "step", 0),
        ("span", "rollout", 1),
        ("span", "rollout/generate", 2),
    ]
    assert outer.value == 7
    assert outer.start_ns <= rollout.start_ns <= generate.start_ns
    assert generate.end_ns <= rollout.end_ns <= outer.end_ns
    assert recording.header.open_spans == ()


class Tensor:
    def __str__(self) -> str:
        raise AssertionError("would wait for the GPU")


MISUSED: Any = ["not", "a", "name"]


@pytest.mark.parametrize(
    ("name", "arguments", "rows", "errors"),
    [
        ("offload", {}, [("offload", "")], 0),
        ("offload", {"direction": "to_cpu"}, [("offload", '{"direction": "to_cpu"}')], 0),
        # What is no plain value is named by its type.
        ("train", {"batch": Tensor(), "shapes": [1, 2]},
         [("train", '{"batch": "Tensor", "shapes": "list"}')], 0),
        ("ro\x00ll\n", {}, [("ro\x00ll\n", "")], 0),
        ("é" * 300, {}, [("é" * (MAX_NAME_BYTES // 2), "")], 0),
        ("\ud800", {}, [("?", "")], 0),
        ("", {}, [("", "")], 0),
        ("</script>", {}, [("</script>", "")], 0),
        (MISUSED, {}, [], 1),
    ],
)  # fmt: skip
def test_a_name_of_any_characters_and_its_arguments(
    recording: Recorded, name: str, arguments: dict[str, Any], rows: list[tuple[str, str]],
    errors: int,
) -> None:  # fmt: skip
    with phase(name, **arguments):
        assert [(o.name, o.args) for o in recording.header.open_spans] == rows
    assert [(r.name, r.args) for r in recording.rows] == rows
    assert recording.header.errors == errors
    assert spans_file(recording.run_dir).exists()


def test_arguments_that_never_end_cost_the_arguments_and_not_the_name(recording: Recorded) -> None:
    for number in range(200):
        with phase("train", number=number):
            pass
    with phase("reward", kind="one"):
        pass
    rows = recording.rows
    assert {r.name for r in rows[:200]} == {"train"}
    assert sum(bool(r.args) for r in rows[:200]) == 64
    assert recording.header.name_overflow == sum(not r.args for r in rows[:200])
    assert rows[200].args == '{"kind": "one"}'


def test_a_full_name_table_costs_names_and_not_spans(recording: Recorded) -> None:
    for number in range(1000):
        with phase(f"{number}" * MAX_NAME_BYTES):
            pass
    with phase("train"):
        pass
    rows = recording.rows
    assert len(rows) == 1001
    assert recording.header.name_overflow > 0
    assert rows[-2].name == "(unnamed)"


def test_host_exceptions_pass_through_and_the_span_ends(recording: Recorded) -> None:
    error = KeyError("the host's own")
    with pytest.raises(KeyError) as caught, phase("reward"):
        raise error
    assert caught.value is error
    assert [r.name for r in recording.rows][-1] == "reward"
    assert recording.header.open_spans == ()


@pytest.mark.parametrize("make", [lambda: phase("train"), lambda: step(2)], ids=["phase", "step"])
def test_what_begun_before_the_recording_is_not_in_it(
    tmp_path: Path, make: Callable[[], phase]
) -> None:
    with make():
        assert recorder.start(str(tmp_path))
    with make():
        pass
    assert len(Recorded(tmp_path).rows) == 1
    assert Recorded(tmp_path).header.errors == 0


def test_a_step_is_in_no_recording_that_began_within_it(
    recording: Recorded, tmp_path: Path
) -> None:
    with step(1):
        recorder.stop()
        assert recorder.start(str(tmp_path / "another"))
    assert Recorded(tmp_path / "another").rows == []
    assert Recorded(tmp_path / "another").header.errors == 0
    assert recording.header.errors == 0


def test_a_step_starts_the_recording_that_the_environment_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    with step(3):
        pass
    assert [(r.kind, r.value) for r in Recorded(tmp_path).rows] == [("step", 3)]


def test_a_span_that_outlives_the_recording_stays_open_in_it(
    recording: Recorded, tmp_path: Path
) -> None:
    with phase("train"):
        recorder.stop()
        recorder.start(str(tmp_path / "second"))
    assert (recording.rows, Recorded(tmp_path / "second").rows) == ([], [])
    assert [o.name for o in recording.header.open_spans] == ["train"]


def test_deeper_than_the_header_has_room_is_recorded_all_the_same(recording: Recorded) -> None:
    def nest(levels: int) -> None:
        with phase("train"):
            if levels > 1:
                nest(levels - 1)
            else:
                assert len(recording.header.open_spans) == THREAD_DEPTH

    nest(300)
    assert sorted({r.depth for r in recording.rows}) == list(range(256))
    assert len(recording.rows) == 300
    assert recording.header.errors == 0
    with phase("after"):
        pass
    assert recording.rows[-1].depth == 0


def test_decorated_functions_of_every_kind(recording: Recorded) -> None:
    @phase("reward")
    def function(value: int) -> int:
        return value + 1

    @phase("rollout", kind="agent")
    async def coroutine(value: int) -> int:
        await asyncio.sleep(0)
        return value + 2

    @phase("dataload")
    def generator() -> Generator[int, int, str]:
        got = yield 1
        yield got
        return "end"

    @step(3)
    def train() -> None: ...

    train()
    assert function(1) == 2
    assert function(1) == 2
    assert function.__name__ == "function"
    assert asyncio.iscoroutinefunction(coroutine)
    assert asyncio.run(coroutine(1)) == 3
    running = generator()
    assert (next(running), running.send(5)) == (1, 5)
    assert [o.name for o in recording.header.open_spans] == ["dataload"]
    with pytest.raises(StopIteration) as end:
        next(running)
    assert end.value.value == "end"
    assert (recording.rows[0].kind, recording.rows[0].value) == ("step", 3.0)
    assert [(r.name, r.args) for r in recording.rows][1:] == [
        ("reward", ""),
        ("reward", ""),
        ("rollout", '{"kind": "agent"}'),
        ("dataload", ""),
    ]


@pytest.mark.parametrize("number", ["seven", None, float("nan"), float("inf"), 10**400])
def test_a_step_that_is_no_number_is_counted_and_not_raised(
    recording: Recorded, number: object
) -> None:
    with step(number):  # type: ignore[arg-type]
        pass
    assert recording.header.errors >= 1


def test_coroutines_that_take_turns_keep_their_own_times(recording: Recorded) -> None:
    async def turn(name: str, begins: asyncio.Event, ends: asyncio.Event) -> None:
        with phase(name):
            begins.set()
            await ends.wait()

    async def main() -> None:
        events = [(asyncio.Event(), asyncio.Event()) for _ in range(3)]
        tasks = []
        for number, (begins, ends) in enumerate(events):
            tasks.append(asyncio.ensure_future(turn(f"request{number}", begins, ends)))
            await begins.wait()
        for number in (0, 2, 1):  # in an order that is no stack's
            events[number][1].set()
            await tasks[number]
            open_names = {o.name for o in recording.header.open_spans}
            assert f"request{number}" not in open_names

    with step(1):
        asyncio.run(main())
    assert [r.name for r in recording.rows] == ["request0", "request2", "request1", "step"]
    with step(2):
        pass
    assert recording.rows[-1].depth == 0, "the stack is empty again"


def test_more_threads_than_the_header_has_slots(recording: Recorded) -> None:
    count = THREAD_SLOTS + 20
    inside = threading.Barrier(count + 1)
    leave = threading.Event()

    def work() -> None:
        with phase("reward"):
            inside.wait()
            leave.wait()

    threads = [threading.Thread(target=work, name=f"worker {n}") for n in range(count)]
    for thread in threads:
        thread.start()
    inside.wait()
    header = recording.header
    leave.set()
    for thread in threads:
        thread.join()
    assert len(header.open_spans) == THREAD_SLOTS - 1
    assert all(name.startswith("worker") for name in header.threads)
    rows = recording.rows
    assert len(rows) == count
    assert {r.depth for r in rows[: THREAD_SLOTS - 1]} == {0}
    assert {r.thread for r in rows} == set(range(THREAD_SLOTS))
    active = recorder.ACTIVE
    assert active is not None
    deadline = time.monotonic() + 60
    while sorted(active.free_slots) != list(range(THREAD_SLOTS - 1)):  # all but the shared one
        assert time.monotonic() < deadline, active.free_slots
        time.sleep(0.001)
    assert {r.name for r in rows} == {"reward"}
    assert recording.header.open_spans == ()
    assert recording.header.errors == 0


def test_threads_that_end_give_their_slots_back(recording: Recorded) -> None:
    import gc

    def work() -> None:
        with phase("reward"):
            pass

    gc.disable()  # as many training loops do
    try:
        for _ in range(3 * THREAD_SLOTS):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    finally:
        gc.enable()
    assert len({r.thread for r in recording.rows}) <= 2


def test_a_generator_that_outlives_its_thread_still_ends_its_span(recording: Recorded) -> None:
    @phase("dataload")
    def batches() -> Generator[int, None, None]:
        yield 1
        yield 2

    running = batches()
    thread = threading.Thread(target=lambda: next(running))
    thread.start()
    thread.join()
    with phase("train"):  # may take the slot over
        running.close()
        assert [o.name for o in recording.header.open_spans if o.name == "train"] == ["train"]
    assert sorted(r.name for r in recording.rows) == ["dataload", "train"]


def test_no_span_is_lost_when_threads_share_the_segments(recording: Recorded) -> None:
    def work() -> None:
        for _ in range(5000):
            with phase("reward"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recording.rows) == 20_000
    assert recording.header.dropped == 0
