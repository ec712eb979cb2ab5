"""Looks of different moments: what an older one may still be used for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grpo_doctor.hang import dumps
from grpo_doctor.hang.wording import seconds_text
from grpo_doctor_probes.evidence import Evidence, Problem

AT_ONCE_S = 60.0  # hosts that are reached one after the other by hand, and clocks that differ
SLACK_S = 5.0  # between looks at the same time; clocks of hosts differ by less, as a rule
_TOGETHER = "Look at all hosts at the same time; `grpo-doctor attach --help` has the commands."


def apart_s(one: Evidence, other: Evidence) -> float:
    """Seconds between two looks."""
    return abs(one.taken_unix_ns - other.taken_unix_ns) / 1e9


def is_old(taken_unix_ns: int, newest_unix_ns: int) -> bool:
    """Whether a look is so much older than the newest that its ranks may have gone on."""
    return newest_unix_ns - taken_unix_ns > AT_ONCE_S * 1e9


def of_one_moment(
    evidences: Sequence[Evidence],
) -> tuple[tuple[Evidence, ...], tuple[Problem, ...]]:
    """Older looks are used with a word of doubt, and not at all if the job has moved since."""
    newest_ns = max(one.taken_unix_ns for one in evidences)
    kept: list[Evidence] = []
    problems: list[Problem] = []
    for one, moved in zip(evidences, _moved_since(evidences), strict=True):
        age = seconds_text((newest_ns - one.taken_unix_ns) / 1e9)
        begin = f"The look at {one.job.host} is {age} older than the newest one"
        if moved:
            words = f"{begin} and the job has moved since: it is left out."
            problems.append(Problem(words, _TOGETHER))
            continue
        kept.append(one)
        if is_old(one.taken_unix_ns, newest_ns):
            problems.append(Problem(f"{begin}; its ranks may have gone on since.", _TOGETHER))
    return tuple(kept), tuple(problems)


def _moved_since(evidences: Sequence[Evidence]) -> list[bool]:
    """For each look whether a later one, of another host, has recorded calls from after it."""
    newest_ns = max(one.taken_unix_ns for one in evidences)
    oldest_ns = min(one.taken_unix_ns for one in evidences)
    if newest_ns - oldest_ns <= SLACK_S * 1e9:
        return [False] * len(evidences)
    last_ns = [_last_call_ns(one) for one in evidences]
    return [
        any(
            ns > one.taken_unix_ns + (SLACK_S + one.cost.seconds) * 1e9
            and other.taken_unix_ns > one.taken_unix_ns + SLACK_S * 1e9
            for other, ns in zip(evidences, last_ns, strict=True)
        )
        for one in evidences
    ]


def _last_call_ns(evidence: Evidence) -> int:
    """When the last collective was called that a rank of it recorded."""
    return max(
        (
            entry.created_ns or 0
            for recording in dumps.read(evidence.dumps).ranks
            for entry in recording.entries[-64:]
        ),
        default=0,
    )


def without_doubles(evidence: Evidence) -> Evidence:
    """Hosts that share a file system have each found the same dump files."""
    seen = {(one.source, one.rank, one.at_unix_ns, len(one.data)): one for one in evidence.dumps}
    files = {key for key in seen if key[0].startswith("file:")}
    kept = [one for one in evidence.dumps if not one.source.startswith("file:")]
    return replace(evidence, dumps=(*kept, *(seen[key] for key in sorted(files, key=str))))
