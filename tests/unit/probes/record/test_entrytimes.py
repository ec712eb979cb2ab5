"""Looking into the flight recorder: seldom, without importing anything, and never into the way."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_doctor_probes.record import capturemode, entrytimes
from grpo_doctor_probes.record.entrytimes import EntryTimes

MODULE = "torch._C._distributed_c10d"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool]]:
    """A flight recorder; the arguments with which it was asked."""
    calls: list[tuple[bool, bool]] = []

    def dump(collectives: bool, only_active: bool) -> str:
        calls.append((collectives, only_active))
        return '{"entries":[]}'

    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(_dump_fr_trace_json=dump))
    return calls


def test_off_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPO_DOCTOR_FLIGHT", raising=False)
    assert EntryTimes.if_asked(str(tmp_path / "00000")) is None
    monkeypatch.setenv("GRPO_DOCTOR_FLIGHT", "often")
    assert EntryTimes.if_asked(str(tmp_path / "00000")) is None


def test_a_look_is_written_with_the_clocks(tmp_path: Path, looks: list[tuple[bool, bool]]) -> None:
    EntryTimes(str(tmp_path / "00003"), 0).after_step()
    (line,) = (tmp_path / "00003.flight.jsonl").read_text().splitlines()
    assert json.loads(line)["dump"] == {"entries": []}
    assert json.loads(line)["unix_ns"] > json.loads(line)["monotonic_ns"]
    assert looks == [(True, False)]


def test_the_next_look_waits_for_a_thousand_times_the_last(
    tmp_path: Path, looks: list[tuple[bool, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = 0
    monkeypatch.setattr(entrytimes, "monotonic_ns", lambda: now_ns)
    entries = EntryTimes(str(tmp_path / "00000"), 10)

    def slow(collectives: bool, only_active: bool) -> str:
        nonlocal now_ns
        looks.append((collectives, only_active))
        now_ns += 30_000_000
        return "{}"

    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(_dump_fr_trace_json=slow))
    for at_s, expected in ((9, 0), (10, 1), (39, 1), (41, 2)):
        now_ns = at_s * 1_000_000_000
        entries.after_step()
        assert len(looks) == expected


def test_after_an_error_nobody_looks_for_a_minute_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, calls = 0.0, []
    monkeypatch.setattr(entrytimes, "monotonic_ns", lambda: round(now_s * 1e9))
    entries = EntryTimes(str(tmp_path / "00000"), 10)

    def fails(collectives: bool, only_active: bool) -> str:
        calls.append(now_s)
        raise RuntimeError("a recorder that is broken")

    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(_dump_fr_trace_json=fails))
    for at_s in (10, 20, 79.9, 80, 140, 150):
        now_s = at_s
        with suppress(RuntimeError):
            entries.after_step()
    assert calls == [10, 80, 150]


@pytest.mark.parametrize(("more_bytes", "lines"), [(-1, 1), (0, 2)])
def test_a_file_that_is_larger_than_it_may_be_grows_no_more(
    tmp_path: Path,
    looks: list[tuple[bool, bool]],
    monkeypatch: pytest.MonkeyPatch,
    more_bytes: int,
    lines: int,
) -> None:
    entries = EntryTimes(str(tmp_path / "00000"), 0)
    file = tmp_path / "00000.flight.jsonl"
    entries.look()
    monkeypatch.setattr(entrytimes, "_MAX_BYTES", file.stat().st_size + more_bytes)
    entries.look()
    entries.look()
    assert len(file.read_text().splitlines()) == lines


def test_without_torch_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    EntryTimes(str(tmp_path / "00000"), 0).after_step()
    assert not list(tmp_path.iterdir())


def on_a_gpu(monkeypatch: pytest.MonkeyPatch, looks: list[tuple[bool, bool]], version: str) -> None:
    """The process has used CUDA, and has both recorders."""

    def dump(collectives: bool, only_active: bool) -> str:
        looks.append((collectives, only_active))
        return '{"entries":[]}'

    def dump_other(collectives: bool, only_active: bool) -> str:
        raise AssertionError("gloo's recorder was asked")

    module = SimpleNamespace(_dump_nccl_trace_json=dump, _dump_fr_trace_json=dump_other)
    cuda = SimpleNamespace(is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, MODULE, module)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, __version__=version))
    monkeypatch.setattr(capturemode, "capture_mode", nullcontext)


@pytest.mark.parametrize(
    "version", ["2.13.0+cu128", "2.8.0", "1.13.1", "2.beta", "v2.15", "nightly", ""]
)
def test_nccls_recorder_of_an_old_torch_is_left_alone_and_that_is_said_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    version: str,
) -> None:
    looks: list[tuple[bool, bool]] = []
    on_a_gpu(monkeypatch, looks, version)
    entries = EntryTimes(str(tmp_path / "00000"), 0)
    for _ in range(3):
        entries.after_step()
    entries.look()  # at the end of the recording
    assert looks == []
    assert not list(tmp_path.iterdir())
    message = capsys.readouterr().err
    assert message.count("pytorch#192232") == 1
    assert "Use torch 2.14 or newer" in message
    assert (version or "of an unknown version") in message
    assert ("unknown" in message) is (not version)


@pytest.mark.parametrize("version", ["2.14.0+cu129", "2.15.0", "3.0.1"])
def test_nccls_recorder_of_a_new_torch_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    looks: list[tuple[bool, bool]] = []
    on_a_gpu(monkeypatch, looks, version)
    EntryTimes(str(tmp_path / "00000"), 0).after_step()
    assert looks == [(True, False)]


def test_it_is_left_alone_where_a_graph_could_be_spoilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks: list[tuple[bool, bool]] = []
    on_a_gpu(monkeypatch, looks, "2.15.0")
    monkeypatch.setattr(capturemode, "capture_mode", lambda: None)
    EntryTimes(str(tmp_path / "00000"), 0).after_step()
    assert looks == []
    assert "spoil a CUDA graph" in capsys.readouterr().err


def test_gloo_on_a_torch_for_gpus_is_asked_whatever_its_age(
    tmp_path: Path, looks: list[tuple[bool, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_nccl(collectives: bool, only_active: bool) -> str:
        raise AssertionError("NCCL's recorder was asked")

    monkeypatch.setattr(sys.modules[MODULE], "_dump_nccl_trace_json", of_nccl, raising=False)
    cuda = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, __version__="2.13.0"))
    EntryTimes(str(tmp_path / "00000"), 0).after_step()
    assert looks == [(True, False)]
