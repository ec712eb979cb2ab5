"""Asking a child for GPU samples: what a note says if it does not answer."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.gpu.child import Sample
from grpo_doctor_probes.gpu.device import GpuRow, Series
from grpo_doctor_probes.gpu.process import EndedError
from grpo_doctor_probes.samplers import gpu
from grpo_doctor_probes.samplers.tracks import Track

UTIL = Track("gpu.util", "%", gpu="GPU-a")


class FakeChild:
    """Answers with what it was given; an error is raised, None is silence."""

    started: list[FakeChild]
    answers: list[str | EndedError | None]

    def __init__(self, module: str, *arguments: str) -> None:
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
    return Sample({Series("gpu.util", "%", "GPU-a"): value}).line()


def test_each_reading_asks_once_and_takes_the_answer(clock: Clock) -> None:
    asking = sampler(clock)
    FakeChild.answers = [answer(40.0), answer(41.0)]
    assert [asking.read(7).values, asking.read(8).values] == [{UTIL: 40.0}, {UTIL: 41.0}]
    (child,) = FakeChild.started
    assert child.arguments == ("CUDA_VISIBLE_DEVICES=1",)
    assert (child.requests, child.waits) == (["sample 7", "sample 8"], [0.2, 0.2])
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
    assert child.requests == ["sample 1", "sample 2"]
    assert child.waits == [0.2, 0.2, 0.0, 0.0, 0.0, 0.0]
    assert readings[0] == readings[1] == readings[3] == ([], {})
    ((note,), values) = readings[2]
    assert note.startswith("NVML has not answered for 3 s (its process is in state D")
    assert values == {UTIL: None}
    assert readings[4] == (["NVML answers again, after 4 s"], {UTIL: 5.0})
    assert asking.read(3).notes == []


def test_a_child_that_starts_slowly_is_not_called_silent(clock: Clock) -> None:
    asking = sampler(clock)
    FakeChild.answers = [None, None, None, answer(5.0)]
    notes = []
    for second in (0.0, 9.9, 10.0, 11.0):
        clock.now_s = 100.0 + second
        notes.append([note[:24] for note in asking.read(1).notes])
    assert notes == [[], [], ["NVML has not answered fo"], ["NVML answers again, afte"]]


def test_a_child_that_ended_is_no_source_any_more(clock: Clock) -> None:
    asking = sampler(clock)
    FakeChild.answers = [answer(1.0), EndedError("it ended"), '{"error": "boom"}']
    asking.read(1)
    with pytest.raises(EndedError, match="it ended"):
        asking.read(2)
    with pytest.raises(ValueError, match="boom"):
        asking.read(3)


def test_rows_of_gpus_arrive_as_they_were_sent(clock: Clock) -> None:
    row = GpuRow("GPU-a", 0, "H100", 80, None, True, ("gpm: no",))
    FakeChild.answers = [Sample(gpus=[row], notes=["a"]).line()]
    reading = sampler(clock).read(1)
    assert (reading.gpus, reading.notes) == ([row], ["a"])
