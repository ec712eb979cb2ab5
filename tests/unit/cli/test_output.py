"""Results are written whole or not at all, for the user alone, and with colours on terminals."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TextIO

import msgspec
import pytest

from grpo_doctor.cli.output import (
    check_output,
    color_wanted,
    document_json,
    terminal_width,
    write_bytes,
)
from grpo_doctor.cli.rendering import comparison_text, digest, markdown, verdict_text
from grpo_doctor.compare import compare
from grpo_doctor.document import build_document
from grpo_doctor.errors import OutputError, UsageError
from tests.demo_verdicts import VISITS
from tests.unit.findings.example_runs import run


def test_a_file_is_replaced_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write_bytes(b"new", str(path))
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    with pytest.raises(OutputError, match=r"can't write .*report\.html.*Choose another place"):
        write_bytes(b"x", str(blocker / "report.html"))
    with pytest.raises(OutputError):
        write_bytes(b"x", str(tmp_path))
    with pytest.raises(OutputError, match=r"the folder .*gone does not exist. Create it"):
        write_bytes(b"x", str(tmp_path / "gone" / "report.html"))
    assert blocker.read_text() == "in the way"


def test_standard_output(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    write_bytes(b"text", "-")
    assert capsysbinary.readouterr().out == b"text\n"


def test_json_is_readable_by_people_and_programs() -> None:
    text = document_json({"a": [1, None], "b": "ü"})
    assert b"\n" in text
    assert msgspec.json.decode(text) == {"a": [1, None], "b": "ü"}


def test_a_recording_is_never_written_over(tmp_path: Path) -> None:
    recording, link = tmp_path / "trace.json", tmp_path / "link.json"
    recording.write_text("{}")
    link.symlink_to(recording)
    for output in (str(recording), str(link), f"{tmp_path}/./trace.json"):
        with pytest.raises(UsageError, match="write to another file"):
            check_output(output, recording)
    check_output(str(tmp_path / "report.html"), recording)
    check_output("-", recording, tmp_path / "gone.json")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_pipe_that_does_not_wait_gets_all_of_it(unbuffered: str) -> None:
    """As Node.js makes them; without a buffer Python writes what fits, and says nothing."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    code = "from grpo_doctor.cli.output import write_bytes; write_bytes(b'x' * 300_000, '-')"
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen([sys.executable, "-c", code], stdout=writer, env=environment) as child:
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            content = stream.read()
    assert child.returncode == 0
    assert content == b"x" * 300_000 + b"\n"


def test_standard_output_that_is_closed_or_full_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, content: bytes) -> int:
            raise ValueError("I/O operation on closed file")

    class Full:
        def write(self, content: bytes) -> int:
            raise OSError(28, "No space left on device")

    for raw, words in ((Closed(), "it is closed"), (Full(), "No space left on device")):
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: False, buffer=raw))
        with pytest.raises(OutputError, match=f"can't write to standard output: {words}"):
            write_bytes(b"x", "-")


def test_standard_output_that_takes_parts_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    class Slow:
        def write(self, content: memoryview) -> int:
            sizes.append(bytes(content[:3]))
            return len(sizes[-1])

        def flush(self) -> None:
            sizes.append(b"|")

    stream = SimpleNamespace(isatty=lambda: False, buffer=Slow(), flush=lambda: None)
    monkeypatch.setattr(sys, "stdout", stream)
    write_bytes(b"12345678\n", "-")
    assert sizes == [b"123", b"456", b"78\n", b"|"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _a_terminal_that_shows_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.mark.parametrize(
    ("name", "value", "colored"),
    [
        ("TERM", "xterm", True),
        ("TERM", "dumb", False),
        ("NO_COLOR", "1", False),
        ("NO_COLOR", "", False),
    ],
)
def test_a_terminal_is_coloured_unless_it_asks_for_none(
    name: str, value: str, colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    stream = Terminal()
    assert color_wanted(stream) is colored
    stream.close()
    assert not any(color_wanted(other) for other in (stream, io.StringIO(), None))


def test_each_text_has_colours_on_a_terminal_alone() -> None:
    trace = run().build()
    document = build_document(trace)
    texts: tuple[Callable[[TextIO | None], str], ...] = (
        lambda stream: digest(document, stream),
        lambda stream: markdown("## Heading\n\nSome `code`.", stream),
        lambda stream: comparison_text(compare(trace, trace), stream),
        lambda stream: verdict_text(VISITS["stopped"](), stream),
    )
    for text in texts:
        assert "\x1b[" in text(Terminal())
        assert "\x1b" not in text(io.StringIO())
        assert "\x1b" not in text(None)


def test_lines_are_no_wider_than_the_terminal_and_never_very_wide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for columns, width in (("60", 60), ("110", 110), ("300", 110)):
        monkeypatch.setenv("COLUMNS", columns)
        assert terminal_width() == width
