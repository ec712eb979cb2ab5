"""The live line sees what ranks in other processes do."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_doctor_probes import layout
from grpo_doctor_probes.live import Header
from grpo_doctor_probes.supervisor.liveline import LiveLine, Now, Watch, compose
from grpo_doctor_probes.supervisor.standing import Headers
from tests.unit.probes.supervisor.headers_in_code import header, span

RANK = """
import sys
from grpo_doctor_probes import phase, step
for number in (4, 5):
    with step(number):
        with phase("train"), phase("rollout"), phase("rollout/generate"):
            print("in", flush=True); sys.stdin.readline()
"""


def test_steps_phases_and_the_oldest_span_are_seen(tmp_path: Path) -> None:
    environment = {**os.environ, "GRPO_DOCTOR_RUN_DIR": str(tmp_path), "RANK": "3"}
    rank = subprocess.Popen(
        [sys.executable, "-c", RANK], env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert rank.stdin
    assert rank.stdout
    watch, headers = Watch(), Headers(tmp_path)
    rank.stdout.readline()
    first = watch.look(headers.read())
    assert first.step == 4
    assert first.ranks == 1
    assert first.slowest is not None
    assert first.slowest[:2] == (3, "rollout/generate")
    assert first.step_time_s is None
    rank.stdin.write("\n")
    rank.stdin.flush()
    rank.stdout.readline()
    second = watch.look(headers.read())
    assert second.step == 5
    assert second.step_time_s is not None
    assert dict(second.shares) == {"rollout": 1.0}
    rank.communicate("\n")
    assert watch.look(headers.read()).slowest is None


def test_shares_and_step_time_are_of_the_same_steps_however_many_ranks() -> None:
    watch = Watch()
    for number in range(12):
        for phase in ("rollout", "rollout", "train", ""):
            ranks = [at(number, phase, rank) for rank in range(256)]
            now = watch.look(ranks)
    assert dict(now.shares) == {"rollout": 0.5, "train": 0.25, "unattributed": 0.25}


def test_old_steps_are_forgotten() -> None:
    watch = Watch()
    for number in range(400):
        for _ in range(4):
            now = watch.look([at(number, "rollout" if number < 200 else "train", 0)])
    assert dict(now.shares) == {"train": 1.0}


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


@pytest.mark.parametrize(("lines", "shown"), [(3, False), (4, True)])
def test_a_screen_of_a_few_rows_is_left_to_the_job(
    screen: Screen, lines: int, *, shown: bool
) -> None:
    line = LiveLine(screen)
    screen.resize(lines)
    line.tick([], {})
    assert bool(screen.shown()) is shown


def test_a_terminal_that_is_anothers_now_shows_nothing(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen.resize(24)
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
    LiveLine(screen).tick([], {})
    assert screen.shown() == ""


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0:00"), (59.9, "0:59"), (60, "1:00"), (3599, "59:59"), (3600, "1:00:00")],
)
def test_the_clock_of_the_line(seconds: float, shown: str) -> None:
    assert (
        compose(Now(None, None, (), None, 1), {}, seconds).split(" · ")[0] == f"grpo-doctor {shown}"
    )
