"""For how long the job has not got on, and whether that is long for this job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor.hang.matching import Matching
from grpo_doctor.hang.process import ray_code
from grpo_doctor.hang.process.actor import Actor
from grpo_doctor.hang.wording import seconds_text

FLOOR_S = 5.0  # nothing shorter is called unusual, whatever the history says
FLOOR_WITHOUT_HISTORY_S = 30.0
FLOOR_OF_POLLS_S = 60.0  # for a rank that wakes again and again: who asks often may get an answer
FLOOR_OF_WORK_S = 300.0  # for a rank that is busy: work has long tails
FLOOR_OF_LONG_WORK_S = 1800.0  # for what is known to take minutes, such as a rollout elsewhere
TIMES_LONGEST = 4.0  # of the longest earlier gap
TIMES_LONGEST_OF_WORK = 10.0
LEAST_ENTRIES = 8  # fewer operations than that are no history


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

    def unusual(self, waited_s: float | None = None) -> bool:
        """Whether a rank that stands still has done so for longer than this job ever did."""
        waited = self.waited_s if waited_s is None else waited_s
        if waited is None:
            return False
        told = self.familiar and self.longest_gap_s is not None
        floor_s = FLOOR_S if told else FLOOR_WITHOUT_HISTORY_S
        return waited >= max(floor_s, TIMES_LONGEST * (self.longest_gap_s or 0.0))

    def unusual_for_long_work(self, waited_s: float) -> bool:
        """The same of a rank in a rollout, checkpoint, evaluation and the like."""
        return waited_s >= FLOOR_OF_LONG_WORK_S and self.unusual_for_work(waited_s)

    def unusual_for_polls(self, waited_s: float) -> bool:
        """The same of a rank that wakes now and then, and may have got a part of its answer."""
        history = TIMES_LONGEST_OF_WORK * (self.longest_gap_s or 0.0)
        return waited_s >= max(FLOOR_OF_POLLS_S, history) and self.unusual(waited_s)

    def unusual_for_work(self, waited_s: float | None = None) -> bool:
        """The same of a rank that uses a core: only much longer waits are not just a long tail."""
        waited = self.waited_s if waited_s is None else waited_s
        if waited is None or self.longest_gap_s is None:
            return False
        return waited >= max(FLOOR_OF_WORK_S, TIMES_LONGEST_OF_WORK * self.longest_gap_s)

    def text(self, still_s: float | None = None) -> str:
        """`8.1 s, where 0.4 s was the longest before`. `still_s` of who is to blame, if longer."""
        waits = [one for one in (self.waited_s, still_s) if one is not None]
        if not waits:
            return ""
        waited = seconds_text(max(waits))
        if not self.longest_gap_s or not self.familiar:
            return waited
        return f"{waited}, where {seconds_text(self.longest_gap_s)} was the longest before"


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
    for one in actors:
        frames = one.place.frames
        by_ray = not one.held and (ray_code.in_loop(frames) or ray_code.asks(frames))
        tries = one.place.call == "file-lock" and one.motion.kind == "polling"
        if one.member.role != "rank" or one.look is None or by_ray or tries:
            continue
        thread = one.doer if one.deed.communicates else one.main
        if thread is not None and thread.last_ran_ns:
            ages.append(max(one.look.at_ns - thread.last_ran_ns, 0) / 1e9)
    return max(ages) if ages else None
