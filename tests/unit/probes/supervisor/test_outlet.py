"""What is said waits for nobody without an end."""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from grpo_doctor.cli import console
from grpo_doctor_probes.supervisor.outlet import Outlet, has_room
from tests.unit.probes.conftest import fill


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """Its reading end, and a stream into it."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield reader, stream
        with contextlib.suppress(OSError):
            os.close(reader)


def test_a_pipe_that_is_full_is_waited_for_and_one_without_a_reader_not(
    pipe: tuple[int, TextIO],
) -> None:
    reader, stream = pipe
    fill(stream.fileno())
    threading.Timer(0.02, os.read, (reader, 1 << 20)).start()
    assert Outlet(60.0).write(stream, "said\n")
    os.close(reader)  # it has gone
    with pytest.raises(BrokenPipeError):
        Outlet(1.0).write(stream, "x")


def test_a_stream_has_its_own_encoding() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="latin-1") as stream:
        assert Outlet(1.0).write(stream, "é €\n")
    assert os.read(reader, 100) == b"\xe9 \\u20ac\n"
    os.close(reader)


def test_a_pipe_that_nobody_reads_is_waited_for_once(pipe: tuple[int, TextIO]) -> None:
    reader, stream = pipe
    fill(stream.fileno())
    outlet = Outlet(0.2)
    assert not has_room(stream)
    assert not outlet.write(stream, "not said\n")
    start_s = time.monotonic()
    for _ in range(1_000):
        assert not outlet.write(stream, "not said\n")
    assert time.monotonic() - start_s < 60
    while not has_room(stream):
        os.read(reader, 65536)
    assert outlet.write(stream, "said\n")


def test_the_words_to_the_user_hold_nobody_up(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(pipe[1].fileno())
    monkeypatch.setattr(console, "_OUTLET", Outlet(0.1))
    with monkeypatch.context() as changed:
        changed.setattr("sys.stderr", pipe[1])
        speaks = threading.Thread(target=console.say, args=("x",), daemon=True)
        speaks.start()
        speaks.join(30)
    assert not speaks.is_alive()


def test_a_stream_without_a_descriptor() -> None:
    stream = io.StringIO()
    assert has_room(stream)
    assert has_room(None)
    assert Outlet(0.0).write(stream, "x")
    assert stream.getvalue() == "x"
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        Outlet(0.0).write(stream, "x")
