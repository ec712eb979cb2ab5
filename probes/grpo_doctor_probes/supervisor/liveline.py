"""The live line: one line at the bottom of a terminal, or a plain line now and then in a log.

On a terminal the last row is taken out of the scrolling region (as apt does for its progress bar),
so that the job's own output keeps scrolling above it and is never overwritten.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from grpo_doctor_probes.procs.live import Header
from grpo_doctor_probes.record import layout
from grpo_doctor_probes.supervisor.outlet import Outlet

_STEPS, _LOOKS = 8, 600
_SHARES_SHOWN = 4
_UNATTRIBUTED = "unattributed"
LOG_EVERY_S = 30.0
# A span that is open for less is what a rank does just now, not what it is in.
_OLD_S = 1.0
_SAVE, _RESTORE, _CLEAR_LINE, _INDEX = "\0337", "\0338", "\033[2K", "\033D"


@dataclass(frozen=True, slots=True)
class Now:
    """A sample of the job. `slowest` is (rank, span, seconds) of the oldest open phase."""

    step: int | None
    step_time_s: float | None
    shares: tuple[tuple[str, float], ...]
    slowest: tuple[int, str, float] | None
    ranks: int


@dataclass(slots=True)
class _Step:
    """A step: when it was first seen, how often it was looked at, and the phases seen open."""

    number: int | None
    begun_s: float
    looks: int
    phases: Counter[str]


class Watch:
    """Remembers of the headers it is shown what the line needs.

    Shares come from looking, not from records: how often a phase was open when looked at. That
    costs the same for a thousand spans a second as for one. Step time and shares are of the same
    steps: the last eight or, of short ones, those of 600 looks.
    """

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque()

    def look(self, headers: Sequence[Header]) -> Now:
        """Return one sample of the headers at this moment."""
        now_ns = time.monotonic_ns()
        phases, oldest = _open_phases(headers, now_ns)
        number = min((header.step for header in headers if header.step is not None), default=None)
        steps = self._steps
        if number is not None and steps and steps[0].number is None:
            steps.clear()  # the shares are a step's; the start-up is over
        if not steps or steps[-1].number != number:
            steps.append(_Step(number, now_ns / 1e9, 0, Counter()))
        steps[-1].looks += 1
        steps[-1].phases.update(phases)
        while len(steps) > _STEPS and sum(s.looks for s in steps) - steps[0].looks >= _LOOKS:
            steps.popleft()
        counts = sum((step.phases for step in steps), Counter[str]())
        shares = [(name, n / counts.total()) for name, n in counts.most_common(_SHARES_SHOWN)]
        return Now(number, self._step_time_s(), tuple(shares), oldest, len(headers))

    def _step_time_s(self) -> float | None:
        first, last = self._steps[0], self._steps[-1]
        if first.number is None or last.number is None or last.number <= first.number:
            return None
        return (last.begun_s - first.begun_s) / (last.number - first.number)


def _open_phases(
    headers: Sequence[Header], now_ns: int
) -> tuple[Counter[str], tuple[int, str, float] | None]:
    """How many ranks are in which phase, and the (rank, span, seconds) of the oldest open one."""
    phases: Counter[str] = Counter()
    oldest: tuple[int, str, float] | None = None
    for header in headers:
        main = [span for span in header.open_spans if span.thread == 0]
        spans = [span for span in main if span.name != "step"]
        if header.closed_ns or not main:
            continue
        if not spans:
            phases[_UNATTRIBUTED] += 1  # within a step and in no phase, as in the report
            continue
        # The innermost has the time: a Trainer of transformers' generates within its `train`.
        innermost = ([span for span in spans if span.kind == layout.SPAN] or spans)[-1]
        phases[innermost.name.partition("/")[0]] += 1
        age_s = (now_ns - spans[-1].start_ns) / 1e9
        if oldest is None or age_s > oldest[2]:
            oldest = (header.rank, spans[-1].name, age_s)
    return phases, oldest


def compose(now: Now, samples: Mapping[str, float], elapsed_s: float) -> str:
    """Return the line's words."""
    phrases = [f"grpo-doctor {_clock(elapsed_s)}"]
    if now.step is not None:
        phrases.append(f"step {now.step}")
    if now.step_time_s is not None:
        phrases.append(f"{now.step_time_s:.3g} s/step")
    if now.shares:
        phrases.append(" ".join(f"{name} {share:.0%}" for name, share in now.shares))
    if "gpu.util" in samples:
        phrases.append(f"GPU {samples['gpu.util']:.0f}%")
    elif "host.cpu" in samples:
        phrases.append(f"CPU {samples['host.cpu']:.0f}%")
    if now.slowest is not None and now.slowest[2] >= _OLD_S:
        rank, name, seconds = now.slowest
        phrases.append(f"rank {rank} in {name} {seconds:.0f} s")
    if now.ranks == 0:
        phrases.append("waiting for the first rank to report")
    return " · ".join(phrases)


class LiveLine:
    """Shows `compose` on `stream` at each `tick`; `close` gives the terminal back."""

    def __init__(self, stream: TextIO) -> None:
        self._watch = Watch()
        self._stream = stream
        self._outlet = Outlet(patience_s=1.0)
        self._start_s = time.monotonic()
        self._next_log = self._start_s + LOG_EVERY_S
        self._size: os.terminal_size | None = None
        shows = not stream.closed and stream.isatty()
        self._terminal = shows and os.environ.get("TERM", "dumb") != "dumb"

    def tick(self, headers: Sequence[Header], samples: Mapping[str, float]) -> None:
        """Shows how the job is. A terminal that went away is not a problem: nothing is shown."""
        now = self._watch.look(headers)
        try:
            if self._terminal:
                if os.tcgetpgrp(self._stream.fileno()) != os.getpgrp():
                    return  # the terminal is another program's now
                self._paint(compose(now, samples, time.monotonic() - self._start_s))
            elif time.monotonic() >= self._next_log:
                self._next_log = time.monotonic() + LOG_EVERY_S
                words = compose(now, samples, time.monotonic() - self._start_s)
                self._outlet.write(self._stream, words + "\n")
        except (OSError, ValueError):
            self._terminal = False
            self._next_log = float("inf")

    def close(self) -> None:
        """Give the last row back to the terminal."""
        if self._size is None:
            return
        rows, self._size = self._size.lines, None
        with contextlib.suppress(OSError, ValueError):
            self._outlet.write(self._stream, f"{_SAVE}\033[r\033[{rows};1H{_CLEAR_LINE}{_RESTORE}")

    def _paint(self, line: str) -> None:
        size = os.get_terminal_size(self._stream.fileno())
        if size.lines < 4:
            return
        text = ""
        if size != self._size:
            if self._size is not None:
                text += f"{_SAVE}\033[r\033[{self._size.lines};1H{_CLEAR_LINE}{_RESTORE}"
            # One row down and up again, scrolling at the bottom: the cursor is then above the row
            # that is taken out, in the column where the job's unfinished line ends.
            text += f"{_INDEX}{_SAVE}\033[1;{size.lines - 1}r{_RESTORE}\033[1A"
        shown = line[: size.columns - 1]
        row = f"{_SAVE}\033[{size.lines};1H{_CLEAR_LINE}\033[7m{shown}\033[0m{_RESTORE}"
        if self._outlet.write(self._stream, text + row):
            self._size = size


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
