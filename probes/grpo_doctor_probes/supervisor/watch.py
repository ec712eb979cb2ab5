"""What this host's ranks are doing at this moment, for the live line.

Shares come from looking, not from records: how often a phase was open when looked at. That costs
the same for a thousand spans a second as for one.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor_probes.live import Header

_STEPS_REMEMBERED = 8
_LOOKS_REMEMBERED = 600


@dataclass(frozen=True, slots=True)
class Now:
    """A look at the job. `slowest` is (rank, span, seconds) of the oldest open phase."""

    step: int | None
    step_time_s: float | None
    shares: tuple[tuple[str, float], ...]
    slowest: tuple[int, str, float] | None
    ranks: int


class Watch:
    """Remembers of the headers it is shown what the line needs."""

    def __init__(self) -> None:
        self._looks: deque[str] = deque(maxlen=_LOOKS_REMEMBERED)
        self._begun: deque[tuple[int, float]] = deque(maxlen=_STEPS_REMEMBERED)

    def look(self, headers: Sequence[Header]) -> Now:
        """One look at the headers of this moment."""
        now_ns = time.monotonic_ns()
        oldest: tuple[int, str, float] | None = None
        step: int | None = None
        for header in headers:
            spans = [s for s in header.open_spans if s.thread == 0 and s.name != "step"]
            if header.step is not None:
                step = header.step if step is None else min(step, header.step)
            if not spans or header.closed_ns:
                continue
            self._looks.append(spans[0].name.partition("/")[0])
            age_s = (now_ns - spans[-1].start_ns) / 1e9
            if oldest is None or age_s > oldest[2]:
                oldest = (header.rank, spans[-1].name, age_s)
        if step is not None and (not self._begun or self._begun[-1][0] != step):
            if not self._begun:
                self._looks.clear()  # the shares are a step's; the start-up is over
            self._begun.append((step, now_ns / 1e9))
        return Now(step, self._step_time_s(), self._shares(), oldest, len(headers))

    def _step_time_s(self) -> float | None:
        if len(self._begun) < 2:
            return None
        (first, begun_s), (last, ended_s) = self._begun[0], self._begun[-1]
        return (ended_s - begun_s) / (last - first) if last > first else None

    def _shares(self) -> tuple[tuple[str, float], ...]:
        total = len(self._looks)
        return tuple((name, n / total) for name, n in Counter(self._looks).most_common(4))
