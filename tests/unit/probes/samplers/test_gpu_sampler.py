"""Asking a child for GPU samples: what is said, and when another child tries, if none answers."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.samplers import gpu
from grpo_doctor_probes.samplers.child import EndedError
from grpo_doctor_probes.samplers.gpu_child import encoded
from grpo_doctor_probes.samplers.tracks import Reading, Track

UTIL = Track("gpu.util", "%", gpu="GPU-a")


class FakeChild:
    """Answers with what it was given; an error is raised, None is silence."""

    started: list[FakeChild]
    answers: list[str | EndedError | OSError | None]

    def __init__(self, module: str, *arguments: str) -> None:
        if FakeChild.answers and isinstance(FakeChild.answers[0], OSError):
            raise FakeChild.answers.pop(0)  # type: ignore[misc]
        self.arguments, self.left = arguments, False
        self.requests: list[str] = []
        self.waits: list[float] = []
        FakeChild.started.append(self)

    def ask(self, line: str) -> None:
        self.requests.append(line)

    def line(self, at_most_s: float) -> str | None:
        self.waits.append(at_most_s)
        answer = FakeChild.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def state(self) -> str:
        return "D"

    def leave(self) -> None:
        self.left = True


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    FakeChild.started, FakeChild.answers = [], []
    monkeypatch.setattr(gpu, "Child", FakeChild)
    return Clock()


def sampler(clock: Clock) -> gpu.GpuSampler:
    environ = {"CUDA_VISIBLE_DEVICES": "1", "HOME": "/root"}
    return gpu.GpuSampler(environ, answer_s=0.2, timer_s=clock)


def answer(value: float) -> str:
    return encoded(Reading(values={UTIL: value}))


def test_each_reading_asks_once_and_takes_the_answer(clock: Clock) -> None:
    asking = sampler(clock)
    FakeChild.answers = [answer(40.0), answer(41.0)]
    assert [asking.read(7).values, asking.read(8).values] == [{UTIL: 40.0}, {UTIL: 41.0}]
    (child,) = FakeChild.started
    assert child.arguments == ("CUDA_VISIBLE_DEVICES=1",)
    assert (child.requests, child.waits) == (["7", "8"], [0.2, 0.2])
    asking.close()
    assert child.left
    asking.close()


def test_silence_is_told_after_three_seconds_and_ends_with_an_answer(clock: Clock) -> None:
    asking = sampler(clock)
    FakeChild.answers = [answer(40.0), None, None, None, None, answer(5.0), answer(6.0)]
    asking.read(1)
    readings = []
    for second in (0.0, 2.9, 3.0, 4.0, 4.5):
        clock.now_s = 100.0 + second
        reading = asking.read(2)
        readings.append((reading.notes, reading.values))
    (child,) = FakeChild.started
    assert child.requests == ["1", "2"]
    assert child.waits == [0.2, 0.2, 0.0, 0.0, 0.0, 0.0]
    assert readings[0] == readings[1] == readings[3] == ([], {})
    ((note,), values) = readings[2]
    assert note.startswith("NVML has not answered for 3 s (its process is in state D")
    assert values == {UTIL: None}
    assert readings[4] == (["NVML answers again, after 4 s"], {UTIL: 5.0})
    assert asking.read(3).notes == []


def test_another_child_tries_after_one_minute_then_two(clock: Clock) -> None:
    asking = sampler(clock)
    FakeChild.answers = [None] * 9
    counts = []
    for second in (0.0, 59.9, 60.0, 60.0, 179.9, 180.0, 180.0):
        clock.now_s = 100.0 + second
        asking.read(1)
        counts.append(len(FakeChild.started))
    assert counts == [1, 1, 1, 2, 2, 2, 3]
    assert [child.left for child in FakeChild.started] == [True, True, False]


def test_a_child_that_ended_is_followed_by_another_a_minute_later(clock: Clock) -> None:
    asking = sampler(clock)
    FakeChild.answers = [answer(1.0), EndedError("it ended"), answer(2.0), EndedError("again")]
    asking.read(1)
    paused = asking.read(2)
    assert paused.notes == ["GPU samples pause: it ended; other samples continue"]
    assert paused.values == {UTIL: None}
    clock.now_s += 59.9
    assert asking.read(3).values == {}
    clock.now_s += 0.1
    assert asking.read(4).values == {UTIL: 2.0}
    assert len(FakeChild.started) == 2


def test_where_no_process_can_be_started_that_is_told_once(clock: Clock) -> None:
    asking = sampler(clock)
    FakeChild.answers = [OSError(11, "no room"), OSError(11, "no room"), answer(3.0)]
    assert asking.read(1).notes == [
        "GPU samples pause: no process can be started: no room; other samples continue"
    ]
    clock.now_s += 60.0
    assert asking.read(1).notes == []
    clock.now_s += 119.9
    assert asking.read(1).values == {}
    clock.now_s += 0.1
    assert asking.read(1).values == {UTIL: 3.0}
