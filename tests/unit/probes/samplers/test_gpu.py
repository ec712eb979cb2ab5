"""Asking a child for GPU samples: what a note says if it does not answer."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.gpu.child import Sample
from grpo_doctor_probes.gpu.device import GpuRow, Series
from grpo_doctor_probes.gpu.process import EndedError
from grpo_doctor_probes.samplers import gpu
from grpo_doctor_probes.samplers.tracks import Track
from tests.unit.probes.conftest import FakeChild

UTIL = Track("gpu.util", "%", gpu="GPU-a")


class Asked:
    """A sampler, the child that it asks, and its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.child = 100.0, FakeChild()
        monkeypatch.setattr(gpu, "Child", self.child)
        environ = {"CUDA_VISIBLE_DEVICES": "1", "HOME": "/root"}
        self.sampler = gpu.GpuSampler(environ, answer_s=0.2, timer_s=lambda: self.now_s)
        self.read = self.sampler.read


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def answer(value: float) -> str:
    return Sample({Series("gpu.util", "%", "GPU-a"): value}).line()


def test_each_reading_asks_once_and_takes_the_answer(asked: Asked) -> None:
    asked.child.answers = [answer(40.0), answer(41.0)]
    assert [asked.read(7).values, asked.read(8).values] == [{UTIL: 40.0}, {UTIL: 41.0}]
    child = asked.child
    assert child.arguments == ("CUDA_VISIBLE_DEVICES=1",)
    assert (child.requests, child.waits) == (["sample 7", "sample 8"], [0.2, 0.2])
    asked.sampler.close()
    assert child.left
    asked.sampler.close()


def test_silence_is_told_after_three_seconds_and_ends_with_an_answer(asked: Asked) -> None:
    asked.child.answers = [answer(40.0), None, None, None, None, answer(5.0), answer(6.0)]
    asked.read(1)
    readings = []
    for second in (0.0, 2.9, 3.0, 4.0, 4.5):
        asked.now_s = 100.0 + second
        reading = asked.read(2)
        readings.append((reading.notes, reading.values))
    child = asked.child
    assert child.requests == ["sample 1", "sample 2"]
    assert child.waits == [0.2, 0.2, 0.0, 0.0, 0.0, 0.0]
    assert readings[0] == readings[1] == readings[3] == ([], {})
    ((note,), values) = readings[2]
    assert note.startswith("NVML has not answered for 3 s (its process is in state D")
    assert values == {UTIL: None}
    assert readings[4] == (["NVML answers again, after 4 s"], {UTIL: 5.0})
    assert asked.read(3).notes == []


def test_a_child_that_starts_slowly_is_not_called_silent(asked: Asked) -> None:
    asked.child.answers = [None, None, None, answer(5.0)]
    notes = []
    for second in (0.0, 9.9, 10.0, 11.0):
        asked.now_s = 100.0 + second
        notes.append([note[:24] for note in asked.read(1).notes])
    assert notes == [[], [], ["NVML has not answered fo"], ["NVML answers again, afte"]]


def test_a_child_that_ended_is_no_source_any_more(asked: Asked) -> None:
    asked.child.answers = [answer(1.0), EndedError("it ended"), '{"error": "boom"}']
    asked.read(1)
    with pytest.raises(EndedError, match="it ended"):
        asked.read(2)
    with pytest.raises(ValueError, match="boom"):
        asked.read(3)


def test_rows_of_gpus_arrive_as_they_were_sent(asked: Asked) -> None:
    row = GpuRow("GPU-a", 0, "H100", 80, None, True, ("gpm: no",))
    asked.child.answers = [Sample(gpus=[row], notes=["a"]).line()]
    reading = asked.read(1)
    assert (reading.gpus, reading.notes) == ([row], ["a"])
