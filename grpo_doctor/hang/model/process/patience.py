"""For how long the job has made no progress, and whether that is long for this job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor.hang.limits import LEAST_ENTRIES, LIMITS, Pace
from grpo_doctor.hang.model.matching import Matching
from grpo_doctor.hang.model.process import ray_code
from grpo_doctor.hang.model.process.actor import Actor
from grpo_doctor.hang.wording import seconds_text


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the ranks that wait have waited, against how long they ever did.

    `waited_s` is the longest present wait of a rank for others, by the recordings, else by when
    main threads last ran. `longest_gap_s` is the longest earlier time without any operation; None
    without history. `familiar`: whether that history has waits like the present ones; at a job's
    first step, and where recorders hold less than a step, it does not.
    """

    waited_s: float | None = None
    longest_gap_s: float | None = None
    familiar: bool = True

    def unusual(self, waited_s: float | None = None, pace: Pace = "asleep") -> bool:
        """Whether a wait, the present one by default, is longer than this job's steps ever had."""
        waited = self.waited_s if waited_s is None else waited_s
        if waited is None:
            return False
        limit, longest = LIMITS[pace], self.longest_gap_s
        # Work is held against any history; who sleeps only against waits like its own.
        has_history = longest is not None and (self.familiar or limit.untold_s == math.inf)
        return limit.exceeded(waited, longest, history=has_history)

    def text(self, still_s: float | None = None) -> str:
        """`8.1 s, where 0.4 s was the longest before`. `still_s` of who is to blame, if longer."""
        waits = [wait_s for wait_s in (self.waited_s, still_s) if wait_s is not None]
        if not waits:
            return ""
        waited = seconds_text(max(waits))
        if not self.longest_gap_s or not self.familiar:
            return waited
        return f"{waited}; longest previous wait was {seconds_text(self.longest_gap_s)}"


def patience_of(actors: Sequence[Actor], matching: Matching) -> Patience:
    """Reads the waits of the recordings, and of the ranks' threads where there are none."""
    waits: list[float] = []
    longest: list[int] = []
    for rhythm in matching.rhythms:
        if rhythm.longest_gap_ns is not None and rhythm.entries >= LEAST_ENTRIES:
            longest.append(rhythm.longest_gap_ns)
        since = rhythm.waiting_since_ns
        if since is not None and rhythm.taken_ns:
            waits.append((rhythm.taken_ns - since) / 1e9)
    return Patience(
        waited_s=max(waits) if waits else _longest_still_s(actors),
        longest_gap_s=max(longest) / 1e9 if longest else None,
        familiar=matching.familiar,
    )


def _longest_still_s(actors: Sequence[Actor]) -> float | None:
    """For how long a rank has been still: by its thread that is in a call to other ranks, else by
    its main thread. Ranks that Ray wakes by its own clock do not count, nor do those that try a
    lock file again and again.
    """
    ages: list[float] = []
    for actor in actors:
        frames = actor.place.frames
        by_ray = not actor.held and (ray_code.in_loop(frames) or ray_code.asks(frames))
        tries = actor.place.call == "file-lock" and actor.motion.kind == "polling"
        if actor.member.role != "rank" or actor.look is None or by_ray or tries:
            continue
        if actor.device_wait:  # it runs all the time: nothing older is known than the visit
            ages.append(actor.motion.seconds)
            continue
        thread = actor.doer if actor.deed.communicates else actor.main
        if thread is not None and thread.last_ran_ns:
            ages.append(max(actor.look.at_ns - thread.last_ran_ns, 0) / 1e9)
    return max(ages, default=None)
