"""Spans of one process: what is on the open stack during them, and in the records afterwards."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_doctor_probes import phase, step
from grpo_doctor_probes.procs import live
from grpo_doctor_probes.record import recorder
from grpo_doctor_probes.record.layout import KIND_SHIFT, MAX_NAME_BYTES, SPAN, THREAD_SLOTS
from grpo_doctor_probes.record.threads import Level
from tests.recording import spans_file
from tests.unit.probes.conftest import Recorded, active, in_threads, until


def test_spans_nest_with_their_step_outside(recording: Recorded) -> None:
    with step(7), phase("rollout"), phase("rollout/generate"):
        names = [o.name for o in recording.header.open_spans]
        assert names == ["step", "rollout", "rollout/generate"]
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


@pytest.mark.parametrize("make", [lambda: phase("train"), lambda: step(1)], ids=["phase", "step"])
def test_a_span_that_outlives_the_recording_stays_open_in_it(
    recording: Recorded, tmp_path: Path, make: Callable[[], phase]
) -> None:
    with make():
        recorder.stop()
        recorder.start(str(tmp_path / "second"))
    second = Recorded(tmp_path / "second")
    assert (recording.rows, second.rows) == ([], [])
    assert (recording.header.errors, second.header.errors) == (0, 0)
    assert len(recording.header.open_spans) == 1


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
    assert recording.names[1:] == ["reward", "reward", "rollout", "dataload"]
    assert [r.args for r in recording.rows if r.args] == ['{"kind": "agent"}']


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
    assert recording.names == ["request0", "request2", "request1", "step"]
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
    all_but_the_shared = list(range(THREAD_SLOTS - 1))
    until(lambda: sorted(active().free_slots) == all_but_the_shared)
    assert {r.name for r in rows} == {"reward"}
    assert recording.header.open_spans == ()
    assert recording.header.errors == 0


def test_a_generator_that_outlives_its_thread_still_ends_its_span(recording: Recorded) -> None:
    @phase("dataload")
    def batches() -> Generator[int, None, None]:
        yield 1
        yield 2

    running = batches()
    in_threads(lambda: next(running))
    with phase("train"):  # may take the slot over
        running.close()
        assert [o.name for o in recording.header.open_spans if o.name == "train"] == ["train"]
    assert sorted(r.name for r in recording.rows) == ["dataload", "train"]


def test_no_span_is_lost_when_threads_share_the_segments(recording: Recorded) -> None:
    def work() -> None:
        for _ in range(5000):
            with phase("reward"):
                pass

    in_threads(work, 4)
    assert len(recording.rows) == 20_000
    assert recording.header.dropped == 0


def test_an_async_generator_passes_values_both_ways(recording: Recorded) -> None:
    thrown: list[BaseException] = []

    @phase("rollout")
    async def stream() -> AsyncGenerator[str, str]:
        try:
            got = yield "first"
            yield f"got {got}"
        except ValueError as error:
            thrown.append(error)
            yield "recovered"

    async def main() -> list[str]:
        running = stream()
        items = [await running.__anext__(), await running.asend("hello")]
        items.append(await running.athrow(ValueError("from outside")))
        with pytest.raises(StopAsyncIteration):
            await running.__anext__()
        return items

    assert inspect.isasyncgenfunction(stream)
    assert asyncio.run(main()) == ["first", "got hello", "recovered"]
    assert [str(e) for e in thrown] == ["from outside"]
    assert recording.names == ["rollout"]


def test_an_async_generator_that_is_closed_early_cleans_up(recording: Recorded) -> None:
    cleaned: list[bool] = []

    @phase("rollout")
    async def stream() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            cleaned.append(True)

    async def main() -> None:
        running = stream()
        await running.__anext__()
        await running.aclose()

    asyncio.run(main())
    assert cleaned == [True]
    assert recording.header.open_spans == ()


def test_an_exception_inside_a_generator_reaches_the_caller(recording: Recorded) -> None:
    @phase("dataload")
    def batches() -> Generator[int, None, None]:
        yield 1
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        list(batches())
    assert recording.names == ["error/dataload/OSError: disk", "dataload"]


def test_methods_of_every_kind(recording: Recorded) -> None:
    class Trainer:
        @phase("train")
        def method(self) -> str:
            return type(self).__name__

        @phase("train")
        @staticmethod
        def static() -> str:
            return "static"

        @phase("train")
        @classmethod
        def of_class(cls) -> str:
            return cls.__name__

    said = [Trainer().method(), Trainer().static(), Trainer().of_class()]
    assert said == ["Trainer", "static", "Trainer"]
    assert len(recording.rows) == 3


@settings(max_examples=60, deadline=None)
@given(choices=st.lists(st.integers(min_value=-1, max_value=60), max_size=80))
def test_what_is_open_is_shown_and_an_empty_stack_starts_at_the_bottom(choices: list[int]) -> None:
    """-1 begins a span; n ends the n-th of those that are open."""
    with tempfile.TemporaryDirectory() as folder:
        recorder.start(folder)
        try:
            _follow(folder, choices)
        finally:
            recorder.stop()


def _follow(folder: str, choices: list[int]) -> None:
    recording = active()
    thread = recording.thread()
    opened: list[tuple[int, Level]] = []
    for start_ns, choice in enumerate(choices, 1):
        if choice < 0:
            opened.append((start_ns, thread.begin(start_ns, SPAN << KIND_SHIFT)))
        elif opened:
            _, level = opened.pop(choice % len(opened))
            thread.leave(level)
        shown = live.read_header(spans_file(Path(folder))).open_spans
        assert sorted(o.start_ns for o in shown) == sorted(
            start for start, level in opened if level.depth < 32
        )
    while opened:
        thread.leave(opened.pop(0)[1])
    assert thread.level.depth == 0
    assert thread.in_order is recording


def test_a_slot_taken_over_shows_nothing_of_the_thread_before(recording: Recorded) -> None:
    first = active().thread()
    first.begin(1, SPAN << KIND_SHIFT)
    assert len(recording.header.open_spans) == 1
    type(first)(active(), first.slot)
    assert not recording.header.open_spans
