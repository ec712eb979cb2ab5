"""The one builder of traces in tests: a recording in code, in seconds, without files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from grpo_doctor.trace.columns import DTYPES, Interned, join, spans_from
from grpo_doctor.trace.model import (
    SAME_CLOCK,
    Exit,
    Gpu,
    Kind,
    Loss,
    Metrics,
    Process,
    RolloutServer,
    Run,
    Series,
    Trace,
)
from grpo_doctor_reports.schema.trajectories import Trajectories

SECOND = 1_000_000_000


class TraceBuilder:
    """Collects spans, series and facts; `build()` gives the `Trace`.

    Usage::

        build = TraceBuilder(ranks=2)
        for n in range(10):
            for rank in (0, 1):
                build.step(rank, n, start_s=n, phases={"rollout": 0.6, "train": 0.4})
        trace = build.build()
    """

    def __init__(
        self,
        ranks: int = 1,
        *,
        framework: str = "bundled",
        framework_version: str | None = "0.1.0",
        knobs: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        loss: Loss | None = None,
        exit: Exit | None = None,  # noqa: A002 - the model's word
        hosts: Sequence[str] | None = None,
    ) -> None:
        self.ranks = ranks
        self.framework = framework
        self.framework_version = framework_version
        self.knobs = dict(knobs or {})
        self.config = dict(config or {})
        self.loss = loss or Loss()
        self.exit = exit or Exit(state="finished", code=0)
        self.hosts = list(hosts or ["host-a"] * ranks)
        self.open_ranks: set[int] = set()
        self.roles: dict[int, str] = {}  # of processes that do not train
        self.servers: list[RolloutServer] = []
        self.run_facts: dict[str, Any] = {}
        self._names = Interned()
        self._args: list[Mapping[str, Any]] = []
        self._rows: dict[str, list[Any]] = {name: [] for name in DTYPES}
        self._series: list[Series] = []
        self._gpus: list[Gpu] = []
        self._metrics: dict[int, Mapping[str, float]] = {}
        self.trajectories: Trajectories | None = None

    def row(
        self,
        kind: Kind,
        rank: int,
        name: str,
        start_s: float,
        end_s: float,
        *,
        depth: int = 1,
        value: float = 0.0,
        args: Mapping[str, Any] | None = None,
        thread: int = 0,
        open: bool = False,  # noqa: A002 - the model's word
    ) -> TraceBuilder:
        """Adds any row; the methods below are shorter."""
        if args:
            self._args.append(args)
        values = {
            "kind": kind,
            "process": rank,
            "thread": thread,
            "depth": depth,
            "name": self._names[name],
            "args": len(self._args) - 1 if args else -1,
            "start_ns": round(start_s * SECOND),
            "end_ns": round(end_s * SECOND),
            "value": value,
            "open": open,
        }
        for column, item in values.items():
            self._rows[column].append(item)
        return self

    def span(self, rank: int, name: str, start_s: float, end_s: float, **more: Any) -> TraceBuilder:
        """Adds a phase or sub-span."""
        return self.row(Kind.SPAN, rank, name, start_s, end_s, **more)

    def step(
        self,
        rank: int,
        number: int,
        start_s: float,
        phases: Mapping[str, float],
        *,
        end_s: float | None = None,
    ) -> TraceBuilder:
        """Adds a step whose phases follow each other; a longer `end_s` leaves time unattributed."""
        now = start_s
        for name, seconds in phases.items():
            self.span(rank, name, now, now + seconds)
            now += seconds
        self.row(Kind.STEP, rank, "step", start_s, end_s or now, depth=0, value=float(number))
        return self

    def collective(
        self,
        rank: int,
        sequence: int,
        start_s: float,
        end_s: float,
        *,
        name: str = "all_reduce",
        group: str = "world",
    ) -> TraceBuilder:
        """Adds one rank's side of a collective; the same `sequence` on others is the same one."""
        return self.row(
            Kind.COLLECTIVE,
            rank,
            name,
            start_s,
            end_s,
            depth=2,
            value=float(sequence),
            args={"group": group},
        )

    def open(self, rank: int, name: str, start_s: float, seen_s: float) -> TraceBuilder:
        """Adds a span that never ended; its rank counts as killed."""
        self.open_ranks.add(rank)
        return self.row(Kind.SPAN, rank, name, start_s, seen_s, open=True)

    def series(
        self,
        name: str,
        unit: str,
        t_s: Sequence[float],
        values: Sequence[float],
        *,
        scope: str = "host",
        gpu: str | None = None,
        rank: int | None = None,
        pid: int | None = None,
    ) -> TraceBuilder:
        """Adds a sampled series."""
        t_ns = np.array([round(t * SECOND) for t in t_s], dtype=np.int64)
        self._series.append(
            Series(
                name=name,
                unit=unit,
                scope=scope,
                host=self.hosts[0],
                t_ns=t_ns,
                values=np.array(values, dtype=np.float64),
                gpu=gpu,
                rank=rank,
                pid=pid,
            )
        )
        return self

    def gpu(self, uuid: str, *, index: int = 0, memory_gib: float = 80.0) -> TraceBuilder:
        """Adds a GPU."""
        total = round(memory_gib * 2**30)
        self._gpus.append(Gpu(uuid, "NVIDIA A100-SXM4-80GB", index, self.hosts[0], total))
        return self

    def metrics(self, step: int, **values: float) -> TraceBuilder:
        """Adds one step's training metrics."""
        self._metrics[step] = values
        return self

    def build(self) -> Trace:
        """The trace. Everything added so far; the builder can go on afterwards."""
        spans = join([spans_from(self._rows)])
        end_ns = int(spans.end_ns.max()) if len(spans) else 0
        keys = sorted({key for row in self._metrics.values() for key in row})
        steps = sorted(self._metrics)
        return Trace(
            source="built in a test",
            run=Run(
                id="built",
                framework=self.framework,
                framework_version=self.framework_version,
                world_size=self.ranks,
                started_unix_ns=1_763_680_000 * SECOND,
                duration_ns=end_ns,
                exit=self.exit,
                config=self.config,
                knobs=self.knobs,
                servers=tuple(self.servers),
                **{"command": ("grpo-doctor-trainer",), **self.run_facts},
            ),
            processes=tuple(
                Process(
                    index=rank,
                    pid=1000 * (rank + 1),
                    os_pid=4000 + rank,
                    host=self.hosts[rank],
                    rank=rank,
                    role=self.roles.get(rank, "trainer"),
                    state="open" if rank in self.open_ranks else "finished",
                    start_ns=0,
                    end_ns=end_ns,
                    clock=SAME_CLOCK,
                )
                for rank in range(self.ranks)
            ),
            gpus=tuple(self._gpus),
            names=self._names.names,
            args=tuple(self._args),
            spans=spans,
            series=tuple(self._series),
            metrics=Metrics(
                steps=np.array(steps, dtype=np.int64),
                values={
                    key: np.array([self._metrics[s].get(key, np.nan) for s in steps])
                    for key in keys
                },
                absent={
                    key: np.array([key not in self._metrics[s] for s in steps])
                    for key in keys
                    if any(key not in self._metrics[s] for s in steps)
                },
            ),
            loss=self.loss,
            trajectories=self.trajectories,
        )
