"""Servers that `run --join RUN` started: each has a run directory of its own in `RUN/joined/`.

So nothing of theirs is taken for the run's: neither files, nor processes, which the run's own
supervisor may end. They begin before the run and end after it; what they do in between counts.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from grpo_doctor.trace.facts import RunFacts
from grpo_doctor.trace.model import RolloutServer, Series, Spans
from grpo_doctor.trace.parts import Part
from grpo_doctor.trace.processes import Recording, by_rank
from grpo_doctor.trace.samples import Samples

if TYPE_CHECKING:
    from grpo_doctor_probes.samplers.server import Address

# What a server's process is that does not say so itself: its front, or what holds the engine.
_ROLE = "rollout"
_SERVER = "server"  # the scope of what a server said itself
_WORDS = 6  # of a command, in a note


@dataclass(frozen=True, slots=True)
class JoinedServers:
    """What all of them left; `samples` are theirs and the run's, none of them twice."""

    recordings: tuple[Recording, ...] = ()
    samples: tuple[Samples, ...] = ()
    servers: tuple[RolloutServer, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Server:
    facts: RunFacts
    recordings: tuple[Recording, ...]
    sections: tuple[Samples, ...]

    @property
    def front_pid(self) -> int:
        """The process that takes requests, else the one that was started."""
        fronts = (r.pid for r in self.recordings if r.role == _ROLE)
        return next(fronts, self.facts.job_pid)

    def described(self) -> RolloutServer:
        """Return how it was started, and who it is."""
        return RolloutServer(self.facts.host, self.front_pid, tuple(self.facts.run.command))

    def its_own(self) -> list[Samples]:
        """Return what its `/metrics` said."""
        answers = [
            replace(section, series=_answers(section, self.front_pid), gpus=(), notes=())
            for section in self.sections
        ]
        return [replace(section, joined=True) for section in answers if section.series]


def joined_servers(
    parts: Sequence[Part], facts: RunFacts, sampled: Sequence[Samples]
) -> JoinedServers:
    """Return the servers of a run.

    Args:
        parts: one for each server.
        facts: of the run.
        sampled: what the run itself sampled. On those hosts the servers' samples of GPUs and host
            are the same ones once more.
    """
    servers: list[_Server] = []
    problems: list[str] = []
    for part in parts:
        roles = (
            replace(r, role=r.stated_role or _ROLE, joined=True) for r in by_rank(part.recordings)
        )
        servers.append(_Server(part.facts, tuple(roles), tuple(part.sections)))
        problems += [*part.problems, *part.facts.problems]
    hosts = {section.host: section for section in sampled}
    unsampled: dict[str, Samples] = {}
    for section in (section for server in servers for section in server.sections):
        if section.host not in hosts:
            unsampled.setdefault(section.host, _of_the_host(section))
    watched, answers = _counted_once(facts, sampled, servers)
    return JoinedServers(
        recordings=tuple(r for server in servers for r in server.recordings),
        samples=(*watched, *unsampled.values(), *answers),
        servers=tuple(server.described() for server in servers),
        notes=tuple(_note(server.facts, len(server.recordings)) for server in servers),
        problems=tuple(problems),
    )


def _answers(section: Samples, pid: int | None = None) -> tuple[Series, ...]:
    return tuple(replace(s, pid=pid) for s in section.series if s.scope == _SERVER)


def _of_the_host(section: Samples) -> Samples:
    """Return the section without series of ranks and of the server: its rank 0 is not the run's."""
    series = tuple(s for s in section.series if s.scope not in ("rank", _SERVER) and s.rank is None)
    return replace(section, series=series, joined=True)


def _counted_once(
    facts: RunFacts, sampled: Sequence[Samples], servers: Sequence[_Server]
) -> tuple[Sequence[Samples], list[Samples]]:
    """The run's samples and the servers' answers, where the run asked some of the same servers.

    The run has one sum over all that it asked. The servers' own say more; but where some of those
    that the run asked have not joined, it is the sum that has all of them.
    """
    answering = [server for server in servers if server.its_own()]
    if not answering or not any(_answers(section) for section in sampled):
        return sampled, [section for server in answering for section in server.its_own()]
    targets = _asked_by_run(facts)
    joined = {each for each in targets for server in answering if _is_at(server, each, facts.host)}
    if joined == targets:
        own = (tuple(s for s in each.series if s.scope != _SERVER) for each in sampled)
        sampled = [replace(each, series=series) for each, series in zip(sampled, own)]
    else:
        answering = [
            server
            for server in answering
            if not any(_is_at(server, each, facts.host) for each in joined)
        ]
    return sampled, [section for server in answering for section in server.its_own()]


def _asked_by_run(facts: RunFacts) -> set[Address]:
    from grpo_doctor_probes.samplers.server import named_servers  # noqa: PLC0415 - loads NVML

    return set(named_servers(facts.run.command))


def _is_at(server: _Server, address: Address, run_host: str) -> bool:
    """Return whether a server that the run asked is this one; an IP address may be any host's."""
    from grpo_doctor_probes.samplers.server import serving_at  # noqa: PLC0415 - loads NVML

    if address.port not in {own.port for own in serving_at(server.facts.run.command)}:
        return False
    name, host = address.host, server.facts.host
    try:
        number = ipaddress.ip_address(name)
    except ValueError:
        return host == run_host if name == "localhost" else _short(name) == _short(host)
    return host == run_host or not number.is_loopback


def _short(name: str) -> str:
    return name.partition(".")[0]


def _note(facts: RunFacts, processes: int) -> str:
    command = facts.run.command
    words = " ".join(command[:_WORDS]) + (" ..." if len(command) > _WORDS else "")
    state = facts.run.exit
    how = f"exit code {state.code}" if state.code is not None else state.state
    loss = "" if processes else "; it left no spans"
    return f"`{words}` on {facts.host} joined this run ({how}){loss}"


def within_run(spans: Spans, duration_ns: int) -> Spans:
    """Return what lies within the run, cut at its ends."""
    inside = (spans.end_ns >= 0) & (spans.start_ns <= duration_ns)
    clipped = spans.select(inside)
    return replace(
        clipped,
        start_ns=np.maximum(clipped.start_ns, 0),
        end_ns=np.minimum(clipped.end_ns, duration_ns),
    )


def series_within_run(series: Series, duration_ns: int) -> Series:
    """Samples of the time of the run, with what held when it began and when it ended: a server
    that was idle by then had said so once, long before."""
    t_ns, values = series.t_ns, series.values
    begin, end = np.searchsorted(t_ns, (0, duration_ns), side="right").tolist()
    inside_ns, inside = t_ns[begin:end], values[begin:end]
    if begin and begin < len(t_ns):
        inside_ns, inside = np.r_[0, inside_ns], np.r_[values[begin - 1], inside]
    if end < len(t_ns) and len(inside):
        inside_ns, inside = np.r_[inside_ns, duration_ns], np.r_[inside, inside[-1]]
    return replace(series, t_ns=inside_ns, values=inside)
