"""How the server starts and ends: what it says, its exit codes, and what stays behind."""

from __future__ import annotations

import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the trainer extra")

from grpo_doctor_trainer import interrupts
from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.interrupts import Interrupted
from grpo_doctor_trainer.serve import __main__ as program
from grpo_doctor_trainer.serve import engine as engine_module
from grpo_doctor_trainer.serve.loop import EngineFailedError
from grpo_doctor_trainer.serve.web import WebServer


@pytest.fixture(autouse=True)
def _signals_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(interrupts, "_received", [])
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


class Engine:
    """An engine that is there at once."""

    closed: list[str] = []  # noqa: RUF012

    def __init__(self, config: Any) -> None:
        self.closed.clear()

    def facts(self) -> dict[str, Any]:
        return {"shape": {"vocab_size": 300}, "max_model_len": 64, "workers": 2}

    def close(self) -> None:
        self.closed.append("closed")


class Loop:
    """A loop that ends at once, in a way of its own; keeps what the server said of itself."""

    ends: BaseException | None = None

    def __init__(self, engine: Engine) -> None:
        del engine

    def run(self) -> None:
        if self.ends is not None:
            raise self.ends


class Quick(WebServer):
    """Looks often whether it is to end."""

    def serve_forever(self, poll_interval: float = 0.01) -> None:
        super().serve_forever(min(poll_interval, 0.01))


def served(monkeypatch: pytest.MonkeyPatch, folder: Path, *flags: str) -> int:
    monkeypatch.setattr(engine_module, "VllmEngine", Engine)
    monkeypatch.setattr(program, "EngineLoop", Loop)
    monkeypatch.setattr(program, "WebServer", Quick)
    monkeypatch.setattr(program, "_LAST_WORDS_S", 0)
    arguments = ["--port", "0", "--output_dir", str(folder / "out"), *flags]
    monkeypatch.setattr(sys, "argv", ["serve", *arguments])
    return program.main()


def log_of(folder: Path) -> Path:
    (path,) = (folder / "out").glob("serve-*.log")
    return path


def test_a_server_that_is_told_to_end_leaves_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "weights"
    began = time.perf_counter()
    assert served(monkeypatch, tmp_path, "--weights_dir", str(weights)) == 0
    took_s = time.perf_counter() - began
    printed = capsys.readouterr().out
    port = log_of(tmp_path).stem.removeprefix("serve-")
    assert f"grpo-doctor rollout server on http://127.0.0.1:{port}" in printed
    assert "  model    embedded tiny Qwen2 with random weights" in printed
    assert f"  log      {log_of(tmp_path)}" in printed
    (ready_s,) = re.findall(r"^ready after (\d+) s; Ctrl-C ends it$", printed, re.MULTILINE)
    assert int(ready_s) <= took_s + 0.5
    assert "warning" not in printed
    assert Engine.closed == ["closed"]
    assert list(weights.iterdir()) == []


def test_whoever_can_reach_it_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--host", "0.0.0.0", "--model", "some/model")
    assert served(monkeypatch, tmp_path, *flags) == 0
    printed = capsys.readouterr().out
    assert "  warning  whoever reaches http://0.0.0.0:" in printed
    assert "  model    some/model" in printed


def test_without_a_folder_for_weights_they_are_left_in_memory_or_beside_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[list[Path]] = []

    def make_folders(parents: list[Path]) -> list[Path]:
        calls.append(parents)
        return []

    monkeypatch.setattr(program, "make_folders", make_folders)
    assert served(monkeypatch, tmp_path) == 0
    assert calls == [[Path("/dev/shm"), tmp_path / "out"]]


def test_a_broken_engine_is_told_with_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Loop, "ends", EngineFailedError("a kernel broke"))
    assert served(monkeypatch, tmp_path) == 1
    assert capsys.readouterr().err == (
        f"error: the engine failed: a kernel broke. What led to it is in {log_of(tmp_path)}\n"
    )
    assert Engine.closed == ["closed"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:  # fmt: skip
    monkeypatch.setattr(Loop, "ends", Interrupted(number))
    assert served(monkeypatch, tmp_path) == 128 + number
    assert f"stopped by signal {int(number)}\n" in capsys.readouterr().out


def test_an_engine_that_cannot_start_is_told_and_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_self: Engine, _config: object) -> None:
        raise RolloutError("no room for the model")

    weights = tmp_path / "weights"
    monkeypatch.setattr(Engine, "__init__", fail)
    assert served(monkeypatch, tmp_path, "--weights_dir", str(weights)) == 2
    assert capsys.readouterr().err == "error: no room for the model\n"
    assert list(weights.iterdir()) == []


def test_a_taken_port_and_an_address_that_is_not_ours_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert served(monkeypatch, tmp_path, "--port", port) == 2
    assert capsys.readouterr().err.startswith(f"error: --port {port}: another program listens")
    assert served(monkeypatch, tmp_path, "--host", "192.0.2.1") == 2
    assert "error: --host 192.0.2.1 --port 0: cannot listen there (" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
