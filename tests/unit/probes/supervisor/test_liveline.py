"""The live line sees what ranks in other processes do."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_doctor_probes.procs.live import Header, OpenSpan
from grpo_doctor_probes.record import layout
from grpo_doctor_probes.supervisor import liveline
from grpo_doctor_probes.supervisor.liveline import LiveLine, Now, Watch, compose
from tests.unit.probes.supervisor.watched import S, header, span


def at(number: int, phase: str, rank: int) -> Header:
    spans = [span("step", 0, layout.STEP), *([span(phase, 0)] if phase else [])]
    return replace(header(*spans, rank=rank), step=number)


def test_the_line_names_what_is_known() -> None:
    now = Now(12, 3.456, (("rollout", 0.61), ("train", 0.3)), (3, "rollout/generate", 12.4), 8)
    line = compose(now, {"gpu.util": 43.2}, 125.0)
    assert line == (
        "grpo-doctor 2:05 · step 12 · 3.46 s/step · rollout 61% train 30% · GPU 43% · "
        "rank 3 in rollout/generate 12 s"
    )
    waiting = compose(Now(None, None, (), None, 0), {"host.cpu": 7.0}, 3.0)
    assert waiting == "grpo-doctor 0:03 · CPU 7% · waiting for the first rank to report"
    just_now = compose(Now(1, None, (), (0, "all_reduce", 0.4), 2), {}, 3.0)
    assert just_now == "grpo-doctor 0:03 · step 1"


class Screen(io.TextIOWrapper):
    """A terminal of our own: what is written to it is read from `shown`."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(path.open("wb"), encoding="utf-8")
        self._path, self._read, self._lines = path, 0, 24
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())
        monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((40, self._lines)))

    def isatty(self) -> bool:
        return True

    def resize(self, lines: int) -> None:
        self._lines = lines

    def shown(self) -> str:
        """What has come since the last time, "" for nothing."""
        text = self._path.read_bytes()[self._read :]
        self._read += len(text)
        return text.decode()


@pytest.fixture
def screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    with Screen(tmp_path / "screen", monkeypatch) as screen:
        yield screen


def test_the_line_has_the_last_row_until_it_is_given_back(screen: Screen) -> None:
    line = LiveLine(screen)
    screen.resize(24)
    line.tick([], {})
    first = screen.shown()
    assert "\033[1;23r" in first  # the job's lines scroll above it
    assert "\033[24;1H" in first
    words = first.partition("\033[7m")[2].partition("\033[0m")[0]
    assert words.startswith("grpo-doctor 0:0")
    assert len(words) == 39
    line.tick([], {})
    again = screen.shown()
    assert "\033[24;1H" in again
    assert "r\033" not in again.replace("\033[24;1H", "")
    screen.resize(30)
    line.tick([], {})
    larger = screen.shown()
    assert larger.index("\033[24;1H") < larger.index("\033[1;29r") < larger.index("\033[30;1H")
    line.close()
    assert "\033[r\033[30;1H" in screen.shown()
    line.close()
    assert screen.shown() == ""


@pytest.mark.parametrize(("lines", "group", "shown"), [(3, 0, False), (4, 0, True), (24, 1, False)])
def test_a_small_screen_and_one_of_another_program_are_left_to_them(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, lines: int, group: int, *, shown: bool
) -> None:
    line = LiveLine(screen)
    screen.resize(lines)
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + group)
    line.tick([], {})
    assert bool(screen.shown()) is shown


class Clock:
    """The time, as the live line and its watch see it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self._watch = 1000.0, Watch()
        times = SimpleNamespace(
            monotonic=lambda: self.now_s, monotonic_ns=lambda: round(self.now_s * S)
        )
        monkeypatch.setattr(liveline, "time", times)

    def look(self, *headers: Header, at_s: float | None = None) -> Now:
        self.now_s = self.now_s + 1 if at_s is None else at_s
        return self._watch.look(headers)

    def line_times(self, line: LiveLine, stream: io.StringIO, *seconds: float) -> list[float]:
        """At which of these moments a line in a log says something."""
        times = []
        for second in seconds:
            self.now_s = 1000.0 + second
            before = len(stream.getvalue())
            line.tick([], {})
            if len(stream.getvalue()) > before:
                times.append(second)
        return times


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_the_start_up_is_no_part_of_the_steps(watching: Clock) -> None:
    beginning = header(span("init", 0))
    for _ in range(3):
        now = watching.look(beginning)
    assert (now.step, now.shares) == (None, (("init", 1.0),))
    assert watching.look(at(0, "rollout", 0)).shares == (("rollout", 1.0),)
    assert watching.look(at(1, "train", 0)).shares == (("rollout", 0.5), ("train", 0.5))
    behind = watching.look(at(5, "train", 0), beginning, at(4, "train", 2))
    assert behind.step == 4


@pytest.mark.parametrize(("steps", "looks", "kept"), [(601, 1, 600), (9, 100, 8)])
def test_short_steps_are_remembered_for_six_hundred_looks_and_of_long_ones_eight(
    watching: Clock, steps: int, looks: int, kept: int
) -> None:
    """And the step time is of the same steps."""
    for number in range(steps):
        for _ in range(looks):
            now = watching.look(at(number, "train" if number else "init", 0))
        assert ("init" in dict(now.shares)) is (number < kept)
    assert now.step_time_s == looks


GATHER = span("all_gather", 999, layout.COLLECTIVE)
STEP = span("step", 900, layout.STEP)


@pytest.mark.parametrize(
    ("spans", "phase", "slowest"),
    [
        ([], None, None),
        ([STEP], "unattributed", None),
        ([STEP, span("reward", 990)], "reward", "reward"),
        ([span("reward/judge", 990)], "reward", "reward/judge"),
        ([STEP, span("train", 980), span("rollout", 990)], "rollout", "rollout"),
        ([STEP, span("reward", 990), GATHER], "reward", "all_gather"),
        ([STEP, GATHER], "all_gather", "all_gather"),
        ([STEP, span("prefetch", 990, thread=1)], "unattributed", None),
        ([span("prefetch", 990, thread=1)], None, None),
    ],
)
def test_in_which_phase_a_rank_is(
    watching: Clock, spans: list[OpenSpan], phase: str | None, slowest: str | None
) -> None:
    now = watching.look(header(*spans, rank=3))
    assert now.shares == ((phase, 1.0),) * (phase is not None)
    assert (now.slowest and now.slowest[:2]) == (slowest and (3, slowest))
    closed = watching.look(header(*spans, closed_ns=1))
    assert (closed.slowest, closed.ranks) == (None, 1)


def test_the_slowest_is_the_rank_whose_span_is_oldest(watching: Clock) -> None:
    ranks = [
        header(span("train", began_s), rank=r) for r, began_s in enumerate((990, 970, 980, 970))
    ]
    assert watching.look(*ranks, at_s=1000).slowest == (1, "train", 30.0)


@pytest.mark.parametrize("terminal", [True, False])
def test_in_a_log_and_a_dumb_terminal_there_is_a_line_every_half_minute(
    watching: Clock, monkeypatch: pytest.MonkeyPatch, *, terminal: bool
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "dumb")
    line = LiveLine(stream)
    assert watching.line_times(line, stream, 0, 29.5, 30, 30.5, 59.5, 60, 95, 124.5, 125) == [
        30,
        60,
        95,
        125,
    ]
    assert stream.getvalue().splitlines()[1] == (
        "grpo-doctor 1:00 · waiting for the first rank to report"
    )
    line.close()
    assert len(stream.getvalue().splitlines()) == 4


def test_where_nothing_can_be_written_any_more_it_is_not_tried_again(
    watching: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def fail(_: object, text: str) -> bool:
        tried.append(text)
        raise BrokenPipeError

    stream = io.StringIO()
    line = LiveLine(stream)
    monkeypatch.setattr(line._outlet, "write", fail)
    assert watching.line_times(line, stream, 0, 30, 60, 90) == []
    assert len(tried) == 1
    closed = io.StringIO()
    closed.close()
    line = LiveLine(closed)
    watching.now_s += 600
    line.tick([], {})
    line.close()


def test_a_terminal_that_went_away_shows_nothing_and_a_lost_row_is_painted_anew(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = LiveLine(screen)
    screen.resize(24)
    with monkeypatch.context() as stalled:
        stalled.setattr(line._outlet, "write", lambda *_: False)
        line.tick([], {})
    line.close()  # nothing was taken from the terminal
    assert screen.shown() == ""
    line.tick([], {})
    assert "\033[1;23r" in screen.shown()

    def refuse(_: int) -> os.terminal_size:
        raise OSError

    with monkeypatch.context() as away:
        away.setattr(os, "get_terminal_size", refuse)
        line.tick([], {})
    line.tick([], {})
    assert screen.shown() == ""
