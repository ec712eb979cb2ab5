"""The one builder of `Evidence` in tests: a job as `attach` would find it, without a job.

Every rank begins as a victim: still, ten seconds into an `all_reduce` of a job that took one every
0.1 s before. A test changes what makes its case.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_doctor_probes.evidence import (
    Await,
    Blocked,
    CallArguments,
    Disk,
    EngineLook,
    Evidence,
    FlightDump,
    Frame,
    GpuLook,
    HostFacts,
    Job,
    Limits,
    LogTail,
    Look,
    Member,
    ProcessLook,
    PythonThread,
    Role,
    Stack,
    Thread,
)

SECOND = 1_000_000_000
BETWEEN_S = 1.2
FIRST_NS = 1_000 * SECOND
UNIX_NS = 1_790_000_000 * SECOND
STEPS = 40
TORCH = "/usr/lib/python3.11/site-packages/torch/distributed"


def frames(*lines: str) -> tuple[Frame, ...]:
    """`"function file:line"`, innermost first."""
    stack = []
    for line in lines:
        function, _, location = line.rpartition(" ")
        file, _, number = location.rpartition(":")
        stack.append(Frame(function, file, int(number)))
    return tuple(stack)


def collective(operation: str, *callers: str) -> tuple[Frame, ...]:
    """The stack of a rank in a collective of torch."""
    inner = (f"{operation} {TORCH}/distributed_c10d.py:3252", f"wrapper {TORCH}/c10d_logger.py:83")
    return frames(*inner, *(callers or ("update /home/me/train.py:70", "main /home/me/train.py:9")))


@dataclass
class FakeProcess:
    """A process of the built job; all of it may be set before `build`."""

    member: Member
    stack: tuple[Frame, ...] = ()
    later_stack: tuple[Frame, ...] | None = None  # at the second look, where it differs
    threads: list[tuple[PythonThread, Thread]] = field(default_factory=list)
    state: str = "S"
    wchan: str = "futex_do_wait"
    still_s: float = 10.0
    cpu_share: float = 0.0
    delay_share: float = 0.0
    wakes: int = 0
    written_bytes: int = 0
    major_faults: int = 0
    swap_bytes: int = 0
    exit_code: int | None = None
    arguments: tuple[int, ...] = ()  # of the call that the main thread sleeps in
    owns_gil: bool = False
    limits: tuple[Limits, Limits] | None = None
    blocked: list[Blocked] = field(default_factory=list)
    awaits: list[Await] = field(default_factory=list)

    def blocks(self, kind: Any, target: str = "", *peers: int, **more: Any) -> None:
        """Its main thread is blocked on something whose other ends are `peers`."""
        tid = more.pop("tid", self.member.pid)
        row = Blocked(self.member.pid, tid, kind, target=target, peers=peers, **more)
        self.blocked.append(row)

    def works(self, stack: tuple[Frame, ...], *, share: float = 0.9, moves: bool = True) -> None:
        """It uses a core; `moves`: its callers' lines change as well."""
        self.stack, self.state, self.wchan = stack, "R", ""
        self.cpu_share, self.still_s, self.wakes = share, 0.0, 50
        if moves:
            self.later_stack = tuple(replace(frame, line=frame.line + 1) for frame in stack)

    def look(self, number: int) -> ProcessLook:
        at_ns = FIRST_NS + int(number * BETWEEN_S * SECOND)
        if self.state in ("Z", "X"):
            return ProcessLook(self.member.pid, at_ns, self.state, exit_code=self.exit_code)
        ticks = int(number * self.cpu_share * BETWEEN_S * 100)
        main = Thread(
            self.member.pid,
            self.member.name,
            self.state,
            self.wchan,
            cpu_ticks=1000 + ticks,
            voluntary=500 + number * self.wakes,
            run_delay_ns=int(number * self.delay_share * BETWEEN_S * SECOND),
            arguments=self.arguments,
            last_ran_ns=at_ns - int(self.still_s * SECOND),
        )
        return ProcessLook(
            self.member.pid,
            at_ns,
            self.state,
            cpu_ticks=1000 + ticks,
            written_bytes=number * self.written_bytes,
            major_faults=300 + number * self.major_faults,
            swap_bytes=self.swap_bytes,
            threads=(main, *(thread for _, thread in self.threads)),
        )

    def stack_at(self, number: int) -> Stack:
        at_ns = FIRST_NS + int(number * BETWEEN_S * SECOND)
        if self.state in ("Z", "X"):
            return Stack(self.member.pid, at_ns, problem="it has ended")
        shown = self.later_stack if number and self.later_stack is not None else self.stack
        main = PythonThread(self.member.pid, "MainThread", shown, owns_gil=self.owns_gil)
        return Stack(self.member.pid, at_ns, (main, *(thread for thread, _ in self.threads)))


class EvidenceBuilder:
    """Collects; `build()` gives the `Evidence`.

    Usage::

        build = EvidenceBuilder(ranks=4)
        build.rank(2).state = "T"
        verdict = diagnose(build.build()).verdict
    """

    def __init__(
        self, ranks: int = 4, *, framework: str = "bundled", recorded: bool = True
    ) -> None:
        self.world = ranks
        self.framework = framework
        self.recorded = recorded
        self.processes: dict[int, FakeProcess] = {}
        self.missing: set[int] = set()
        self.local_ranks: int | None = ranks
        self.kernel: list[tuple[float, str]] = []
        self.disks: list[Disk] = []
        self.logs: list[LogTail] = []
        self.engines: list[tuple[EngineLook, ...]] = []
        self.gpus: list[tuple[GpuLook, ...]] = []
        self.arguments: list[CallArguments] = []
        self.joins: dict[int, list[dict[str, Any]]] = {}
        self.groups: dict[str, Sequence[int]] = {}
        self.waited_s = 10.0
        self.step_s = 0.1  # between two collectives, while all was well
        for rank in range(ranks):
            self._add(100 + rank, "rank", rank, collective("all_reduce"))

    def rank(self, rank: int) -> FakeProcess:
        """The training process of this rank."""
        return self.processes[100 + rank]

    def child(self, rank: int, role: Role, *, pid: int, parent: int | None = None) -> FakeProcess:
        """Another process, that works for this rank."""
        return self._add(pid, role, rank, (), parent or 100 + rank)

    def lose(self, rank: int) -> None:
        """There is no such process."""
        del self.processes[100 + rank]
        self.missing.add(rank)

    def elsewhere(self, rank: int, stack: tuple[Frame, ...]) -> FakeProcess:
        """This rank is not in the collective that the others are in."""
        process = self.rank(rank)
        process.stack = stack
        self.joins[rank] = []
        return process

    def calls(
        self,
        rank: int,
        operation: str,
        *,
        size: int = 64,
        group: str = "0",
        number: int | None = None,
        done: bool = False,
    ) -> None:
        """The last recorded operation of this rank, instead of the others' `all_reduce`.

        `number` in its group: the next of the world, or 1.
        """
        self.joins.setdefault(rank, []).append(
            {"op": operation, "size": size, "group": group, "number": number, "done": done}
        )

    def build(self, order: Mapping[int, int] | None = None) -> Evidence:
        """The evidence. `order` gives processes another place in every list, by pid."""
        chosen = sorted(self.processes.values(), key=lambda p: (order or {}).get(p.member.pid, 0))
        looks = tuple(
            Look(FIRST_NS + int(n * BETWEEN_S * SECOND), tuple(p.look(n) for p in chosen))
            for n in (0, 1)
        )
        return Evidence(
            job=Job(
                host="node-1",
                members=tuple(p.member for p in chosen),
                world_size=self.world,
                local_ranks=self.local_ranks,
                ranks_missing=tuple(sorted(self.missing)),
                framework=self.framework,
            ),
            taken_unix_ns=UNIX_NS,
            looks=looks,
            stacks=tuple(tuple(p.stack_at(n) for p in chosen) for n in (0, 1)),
            limits=tuple(
                tuple(p.limits[n] if p.limits else Limits(p.member.pid) for p in chosen)
                for n in (0, 1)
            ),
            blocked=tuple(row for p in chosen for row in p.blocked),
            awaits=tuple(row for p in chosen for row in p.awaits),
            arguments=tuple(self.arguments),
            gpus=tuple(self.gpus),
            engines=tuple(self.engines),
            dumps=tuple(self._dump(p) for p in chosen if self._records(p)) if self.recorded else (),
            host=HostFacts("node-1", 8, kernel=tuple(self.kernel), disks=tuple(self.disks)),
            logs=tuple(self.logs),
        )

    def _add(
        self, pid: int, role: Role, rank: int, stack: tuple[Frame, ...], parent: int = 99
    ) -> FakeProcess:
        name = "python" if role == "rank" else role
        member = Member(pid, parent, 5000 + pid, role, name, f"python {name}.py", rank, rank)
        self.processes[pid] = FakeProcess(member, stack)
        return self.processes[pid]

    def _records(self, process: FakeProcess) -> bool:
        return process.member.role == "rank" and process.state not in ("Z", "X")

    def _dump(self, process: FakeProcess) -> FlightDump:
        """As torch 2.13 gives it for gloo: nothing is ever started, done means retired."""
        rank = process.member.rank or 0
        began = UNIX_NS - int(self.waited_s * SECOND)
        past = [
            self._entry(n, "all_reduce", began - int((STEPS - n) * self.step_s * SECOND), done=True)
            for n in range(1, STEPS)
        ]
        last = self.joins.get(rank, [{"op": "all_reduce", "size": 64, "group": "0"}])
        now = [
            self._entry(
                STEPS,
                call["op"],
                began,
                done=call.get("done", False),
                size=call["size"],
                group=call["group"],
                number=call.get("number"),
            )
            for call in last
        ]
        document = {
            "version": "2.10",
            "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}},
            "pg_status": {},
            "entries": past + now,
        }
        data = json.dumps(document).encode()
        return FlightDump("ptrace", rank, process.member.pid, "fr", UNIX_NS, data)

    def _entry(
        self,
        sequence: int,
        operation: str,
        created_ns: int,
        *,
        done: bool,
        size: int = 64,
        group: str = "0",
        number: int | None = None,
    ) -> dict[str, Any]:
        return {
            "record_id": sequence,
            "pg_id": int(group),
            "process_group": [group, "default_pg" if group == "0" else "undefined"],
            "collective_seq_id": number or (sequence if group == "0" else 1),
            "p2p_seq_id": 0,
            "op_id": sequence,
            "profiling_name": f"gloo:{operation}",
            "time_created_ns": created_ns,
            "input_sizes": [[size]],
            "output_sizes": [[size]],
            "input_dtypes": ["Float"],
            "output_dtypes": ["Float"],
            "state": "scheduled",
            "time_discovered_started_ns": 0,
            "time_discovered_completed_ns": 0,
            "retired": done,
            "timeout_ms": 1800000,
            "is_p2p": False,
            "thread_id": "1",
            "thread_name": "python",
        }


def without_communication(build: EvidenceBuilder, rank: int) -> FakeProcess:
    """Of all ranks this one has none of gloo's threads, and is not in the others' collective."""
    for other in set(range(build.world)) - {rank}:
        gloo = Thread(900 + other, "pt_gloo_runloop", "S", last_ran_ns=1)
        build.rank(other).threads = [(PythonThread(900 + other, "", ()), gloo)]
    return build.elsewhere(rank, frames("upload /home/me/logs.py:3"))


def with_look(evidence: Evidence, number: int, pid: int, **fields: Any) -> Evidence:
    """The same where a look has this of a process; without any fields it was not there."""
    look = evidence.looks[number]
    processes = (
        replace(process, **fields) if process.pid == pid else process
        for process in look.processes
        if fields or process.pid != pid
    )
    looks = list(evidence.looks)
    looks[number] = replace(look, processes=tuple(processes))
    return replace(evidence, looks=tuple(looks))


def with_entries(
    evidence: Evidence,
    edit: Callable[[list[dict[str, Any]]], None],
    *ranks: int,
    later_s: float = 0,
) -> Evidence:
    """The same where the recorders of these ranks have other entries, and were read later."""
    dumps = list(evidence.dumps)
    for at, dump in enumerate(dumps):
        if dump.rank in ranks:
            document = json.loads(dump.data)
            edit(document["entries"])
            read_ns = dump.at_unix_ns + int(later_s * SECOND)
            dumps[at] = replace(dump, data=json.dumps(document).encode(), at_unix_ns=read_ns)
    return replace(evidence, dumps=tuple(dumps))
