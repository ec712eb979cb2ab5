"""For how long the job has made no progress, and whether that is unusual: the only limits, for live
jobs and dumps alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from grpo_doctor.hang.model.matching.model import Matching
from grpo_doctor.hang.model.process import ray_code
from grpo_doctor.hang.model.process.proc import Process
from grpo_doctor.hang.wording import seconds_text

WaitKind = Literal["proven", "asleep", "polls", "outside", "computes", "long"]
LEAST_ENTRIES = 8  # fewer operations than that are no history


@dataclass(frozen=True, slots=True)
class Limit:
    """A wait is unusual if it is longer than both. `untold_s`: without a history of this job."""

    floor_s: float
    times_longest: float
    untold_s: float

    def exceeded(self, waited_s: float, longest_s: float | None, *, history: bool) -> bool:
        """Return whether a wait is unusual; `longest_s` is the longest earlier one, if known."""
        floor_s = self.floor_s if history else self.untold_s
        return waited_s >= max(floor_s, self.times_longest * (longest_s or 0.0))


# Floors are what healthy jobs were seen to take. No recorded healthy or slow job would be called
# stuck at 1.5 times its longest earlier wait; three times leaves room for longer tails.
LIMITS: dict[WaitKind, Limit] = {
    "proven": Limit(3.0, 0.0, 3.0),  # a shorter wait may be a moment in a healthy job
    "asleep": Limit(5.0, 3.0, 30.0),
    "polls": Limit(60.0, 10.0, 60.0),  # a rank that asks often may get a response
    "outside": Limit(60.0, 3.0, 60.0),  # judges were seen to respond after 40 s
    "computes": Limit(300.0, 10.0, math.inf),  # work has long tails
    "long": Limit(1800.0, 10.0, math.inf),  # a rollout, a checkpoint, a download
}
FLOOR_S = LIMITS["asleep"].floor_s


@dataclass(frozen=True, slots=True)
class WaitHistory:
    """How long the ranks that wait have waited, against how long they ever did.

    `waited_s` is the longest present wait of a rank for others, by the recordings, else by when
    main threads last ran. `longest_gap_s` is the longest earlier time without any operation; None
    without history. `familiar`: whether that history has waits like the present ones; at a job's
    first step, and where recorders hold less than a step, it does not.
    """

    waited_s: float | None = None
    longest_gap_s: float | None = None
    familiar: bool = True

    def unusual(self, waited_s: float | None = None, wait_kind: WaitKind = "asleep") -> bool:
        """Whether a wait, the present one by default, is longer than this job's steps ever had."""
        waited = self.waited_s if waited_s is None else waited_s
        if waited is None:
            return False
        limit, longest = LIMITS[wait_kind], self.longest_gap_s
        # Work is held against any history; who sleeps only against waits like its own.
        has_history = longest is not None and (self.familiar or limit.untold_s == math.inf)
        return limit.exceeded(waited, longest, history=has_history)

    def text(self, still_s: float | None = None) -> str:
        """`8.1 s, where 0.4 s was the longest before`. `still_s` of who is to blame, if longer."""
        known = (self.waited_s, still_s)
        waits = [wait_s for wait_s in known if wait_s is not None and wait_s < math.inf]
        if not waits:
            return ""
        waited = seconds_text(max(waits))
        if not self.longest_gap_s or not self.familiar:
            return waited
        return f"{waited}; longest previous wait was {seconds_text(self.longest_gap_s)}"


def wait_history_of(procs: Sequence[Process], matching: Matching) -> WaitHistory:
    """Return the waits of the recordings, or of the ranks' threads where there are none."""
    waits = [
        (pace.taken_ns - pace.waiting_since_ns) / 1e9
        for pace in matching.paces
        if pace.waiting_since_ns is not None and pace.taken_ns
    ]
    waited_s = max(waits) if waits else _longest_still_s(procs)
    return WaitHistory(waited_s, _longest_gap_s(matching), matching.familiar)


def recorded_history(matching: Matching) -> WaitHistory:
    """Return the waits of recordings alone: the rank that enqueued last shows how long they are.

    They count as endless where a watchdog gave up, and where copied files have no time to go by.
    """
    still_s = [pace.still_for_ns() for pace in matching.paces]
    times_s = [still_ns / 1e9 for still_ns in still_s if still_ns is not None]
    waited_s = 0.0 if matching.moved else min(times_s, default=math.inf)
    if any(status.timed_out for status in matching.statuses):
        waited_s = math.inf
    return WaitHistory(waited_s, _longest_gap_s(matching), matching.familiar)


def _longest_gap_s(matching: Matching) -> float | None:
    gaps_ns = [
        pace.longest_gap_ns
        for pace in matching.paces
        if pace.longest_gap_ns is not None and pace.entries >= LEAST_ENTRIES
    ]
    return max(gaps_ns) / 1e9 if gaps_ns else None


def _longest_still_s(procs: Sequence[Process]) -> float | None:
    """For how long a rank has been still: by its thread that is in a call to other ranks, else by
    its main thread. Ranks that Ray wakes by its own clock do not count, nor do those that try a
    lock file again and again.
    """
    ages: list[float] = []
    for proc in procs:
        frames = proc.place.frames
        by_ray = not proc.cannot_run and (ray_code.in_loop(frames) or ray_code.asks(frames))
        tries = proc.place.call == "file-lock" and proc.activity.kind == "polling"
        if proc.member.role != "rank" or proc.look is None or by_ray or tries:
            continue
        if proc.device_wait:  # it runs all the time: nothing older is known than the visit
            ages.append(proc.activity.seconds)
            continue
        thread = proc.blocking_thread if proc.blocking_place.communicates else proc.main
        if thread is not None and thread.last_ran_ns:
            ages.append(max(proc.look.at_ns - thread.last_ran_ns, 0) / 1e9)
    return max(ages, default=None)
