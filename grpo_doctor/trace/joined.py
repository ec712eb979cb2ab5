"""Servers that `run --join RUN` started: each has a run directory of its own in `RUN/joined/`.

So nothing of theirs is taken for the run's: neither files, nor processes, which the run's own
supervisor may end. They begin before the run and end after it; what they do in between counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from grpo_doctor.trace.facts import RunFacts, read_facts
from grpo_doctor.trace.model import Series, Spans
from grpo_doctor.trace.processes import Recording, read_recordings
from grpo_doctor.trace.samples import Samples, read_host_samples
from grpo_doctor_probes.rundir import JOINED, RANKS

# What a server's process is that does not say so itself: its front, or what holds the engine.
_ROLE = "rollout"
_WORDS = 6  # of a command, in a note


@dataclass(frozen=True, slots=True)
class JoinedServers:
    """What all of them left."""

    recordings: tuple[Recording, ...] = ()
    samples: tuple[Samples, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def read_joined(folder: Path, sampled_hosts: frozenset[str]) -> JoinedServers:
    """The servers of a run.

    Args:
        folder: the run directory.
        sampled_hosts: those whose GPUs the run itself sampled. There the server's samples are the
            same ones once more.
    """
    recordings: list[Recording] = []
    samples: dict[str, Samples] = {}
    notes: list[str] = []
    problems: list[str] = []
    for own in sorted((folder / JOINED).glob("*")):
        facts = read_facts(own)
        server, damaged = read_recordings(own / RANKS)
        recordings += [replace(r, role=r.stated_role or _ROLE, joined=True) for r in server]
        for section in read_host_samples(own):
            if section.host not in sampled_hosts:
                samples.setdefault(section.host, _of_the_host(section))
        notes.append(_note(facts, len(server)))
        problems += [*damaged, *facts.problems]
    return JoinedServers(tuple(recordings), tuple(samples.values()), tuple(notes), tuple(problems))


def _of_the_host(section: Samples) -> Samples:
    """Without what is said of ranks: a server's rank 0 is not the run's."""
    series = tuple(s for s in section.series if s.scope != "rank" and s.rank is None)
    return replace(section, series=series, joined=True)


def _note(facts: RunFacts, processes: int) -> str:
    command = facts.run.command
    words = " ".join(command[:_WORDS]) + (" ..." if len(command) > _WORDS else "")
    state = facts.run.exit
    how = f"exit code {state.code}" if state.code is not None else state.state
    seen = "" if processes else "; it left no spans"
    return f"`{words}` on {facts.host} joined this run ({how}){seen}"


def within_run(spans: Spans, duration_ns: int) -> Spans:
    """What lies within the run, cut at its ends."""
    inside = (spans.end_ns >= 0) & (spans.start_ns <= duration_ns)
    kept = spans.select(inside)
    return replace(
        kept,
        start_ns=np.maximum(kept.start_ns, 0),
        end_ns=np.minimum(kept.end_ns, duration_ns),
    )


def series_within_run(series: Series, duration_ns: int) -> Series:
    """Samples of the time of the run."""
    inside = (series.t_ns >= 0) & (series.t_ns <= duration_ns)
    return replace(series, t_ns=series.t_ns[inside], values=series.values[inside])
