"""What the allocator went through."""

from __future__ import annotations

import pytest
import torch

import grpo_doctor_trainer.memory as shortage


def test_on_a_gpu_retries_and_peaks_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = {
        "num_alloc_retries": 3,
        "reserved_bytes.all.peak": 80,
        "allocated_bytes.all.peak": 70,
    }
    counters: dict[str, float] = {}
    monkeypatch.setattr(shortage, "counter", counters.__setitem__)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda _device: statistics)
    shortage.report_memory(torch.device("cuda", 0))
    assert counters == {
        "memory/alloc_retries": 3.0,
        "memory/allocated_peak": 70.0,
    }


def test_on_a_cpu_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortage, "counter", lambda *_: pytest.fail("there is no such allocator"))
    shortage.report_memory(torch.device("cpu"))
