"""Text for a terminal has colours there and nowhere else."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TextIO

import pytest

from grpo_doctor.cli.output import color_wanted, terminal_width
from grpo_doctor.cli.rendering import comparison_text, digest, markdown, verdict_text
from grpo_doctor.compare import compare
from grpo_doctor.document import build_document
from tests.demo_verdicts import VISITS
from tests.unit.findings.example_runs import run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _a_terminal_that_shows_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_a_terminal_is_coloured() -> None:
    assert color_wanted(Terminal())
    assert not color_wanted(io.StringIO())


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("NO_COLOR", ""), ("TERM", "dumb")])
def test_who_asks_for_none_gets_none(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert not color_wanted(Terminal())


def test_a_closed_stream_is_not_asked() -> None:
    stream = Terminal()
    stream.close()
    assert not color_wanted(stream)
    assert not color_wanted(None)


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
