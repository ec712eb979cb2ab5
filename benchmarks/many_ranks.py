"""A synthetic run directory of many ranks: GRPO steps with phases, sub-spans and collectives.

Rank by rank, so that it takes no memory: a rank's file is written before the next one's is made.
Ranks meet at the end of `logprob`, in `train` and in `sync`, in groups of eight and all together;
lengths vary from step to step, and one rank in a thousand is slower. Each host has eight ranks, and
samples of its GPUs, its CPUs and its ranks, once a step.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace.model import Kind
from grpo_doctor.trace.spanfile import RECORD
from grpo_doctor_probes.record import layout

START_NS = 5_000_000_000_000
GROUP = 8
# Name, seconds of work, sub-spans, and how the phase ends: in a collective of which group.
PHASES: tuple[tuple[str, float, tuple[str, ...], str | None], ...] = (
    ("dataload", 0.05, (), None),
    ("rollout", 4.0, ("rollout/prepare", "rollout/generate"), "world"),
    ("reward", 0.4, ("reward/accuracy", "reward/format"), "world"),
    ("logprob", 1.0, (), "inner"),
    ("train", 3.0, ("train/forward", "train/backward"), "inner"),
    ("optimizer", 0.2, (), "world"),
    ("sync", 0.3, (), "world"),
)
ROWS_PER_STEP = 1 + sum(1 + len(inner) + (group is not None) for _, _, inner, group in PHASES)
_TRANSFER_S = 0.01
_OF_GPUS = ("gpu.util", "gpu.power", "gpu.memory_used")
_OF_RANKS = ("rank.cpu", "rank.rss")


def write_run(folder: Path, ranks: int, steps: int, seed: int = 0) -> int:
    """Writes the run directory; returns how many spans it holds."""
    (folder / "ranks").mkdir(parents=True)
    clock = {"monotonic_ns": START_NS, "unix_ns": START_NS}
    head = {"id": "many-ranks", "command": ["benchmark"], "host": "host-0", "world_size": ranks}
    shared = {"clock_id": "benchmark", "started_ns": START_NS, "clock": clock}
    rng = np.random.default_rng(seed)
    work, leave = _schedule(rng, ranks, steps)
    end_ns = START_NS + int(leave[-1].max() * 1e9)
    ending = {"end": {"state": "finished", "code": 0, "ended_ns": end_ns}}
    (folder / "run.json").write_text(json.dumps({**head, **shared, **ending}))
    metrics = ({"step": n, "metrics": {"reward": n / steps}} for n in range(steps))
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in metrics))
    for rank in range(ranks):
        _write_rank(folder / "ranks", rank, work[:, :, rank], leave[:, :, rank], ranks)
    for host in range(-(-ranks // GROUP)):
        write_samples(folder / "hosts", host, leave[:, -1, host * GROUP], rng)
    return ranks * steps * ROWS_PER_STEP


def write_samples(
    folder: Path, host: int, ends_s: NDArray[np.float64], rng: np.random.Generator
) -> None:
    """Writes what a host with eight GPUs and ranks samples at some moments; all of it changes."""
    host_name = f"host-{host}"
    gpus = [f"GPU-{host}-{index}" for index in range(GROUP)]
    ranks = [
        {"rank": rank, "pid": 10_000 + rank} for rank in range(host * GROUP, (host + 1) * GROUP)
    ]
    tracks: list[dict[str, object]] = [{"name": "host.cpu"}]
    tracks += ({"name": name, "gpu": gpu} for name in _OF_GPUS for gpu in gpus)
    tracks += ({"name": name, **rank} for name in _OF_RANKS for rank in ranks)
    clock = {"clock_id": "benchmark", "t_ns": START_NS, "unix_ns": START_NS}
    rows: list[dict[str, object]] = [
        {"format": 1, "host": host_name, **clock},
        *({"gpu": gpu, "index": i, "memory_total_bytes": 80 << 30} for i, gpu in enumerate(gpus)),
        *({"track": number, "unit": "%", **track} for number, track in enumerate(tracks)),
    ]
    values = rng.integers(0, 100, (len(ends_s), len(tracks))).astype(float).tolist()
    times = (START_NS + np.rint(ends_s * 1e9)).astype(np.int64).tolist()
    rows += ({"t": t, "v": dict(enumerate(row))} for t, row in zip(times, values))
    folder.mkdir(exist_ok=True)
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / f"{host_name}.samples.jsonl").write_text(text)


def _schedule(
    rng: np.random.Generator, ranks: int, steps: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """When each rank ends its own work of each phase, and when it leaves the phase's collective;
    seconds, shape (steps, phases, ranks)."""
    arrive = np.empty((steps, len(PHASES), ranks))
    leave = np.empty_like(arrive)
    now = np.zeros(ranks)
    slow = np.where(np.arange(ranks) % 1000 == 7, 1.2, 1.0)
    for step in range(steps):
        now = now + 0.02
        for position, (_, seconds, _, group) in enumerate(PHASES):
            arrive[step, position] = now + seconds * slow * rng.normal(1, 0.03, ranks)
            now = arrive[step, position].copy()
            if group == "world":
                now[:] = now.max() + _TRANSFER_S
            elif group == "inner":
                for first in range(0, ranks, GROUP):
                    now[first : first + GROUP] = now[first : first + GROUP].max() + _TRANSFER_S
            leave[step, position] = now
    return arrive, leave


def _write_rank(
    folder: Path, rank: int, arrive: NDArray[np.float64], leave: NDArray[np.float64], ranks: int
) -> None:
    names: dict[str, int] = {}
    records = _records(arrive, leave, names, rank)
    first, last = int(records["start_ns"].min()), int(records["end_ns"].max())
    path = folder / f"{rank:05d}.spans"
    with path.open("wb") as file:
        segments = -(-len(records) // layout.SEGMENT_RECORDS)
        file.write(_header(rank, list(names), segments, last))
        for number in range(segments):
            part = records[number * layout.SEGMENT_RECORDS :][: layout.SEGMENT_RECORDS]
            begin = layout.SEGMENT_HEADER.pack(layout.SEGMENT_MAGIC, number + 1)
            content = begin.ljust(layout.SEGMENT_HEADER_BYTES, b"\0") + part.tobytes()
            file.write(content.ljust(layout.SEGMENT_BYTES, b"\0"))
    facts = {
        "format": 1, "rank": rank, "local_rank": rank % GROUP, "world_size": ranks,
        "pid": 10_000 + rank, "parent_pid": 1, "host": f"host-{rank // GROUP}",
        "clock_id": "benchmark", "process_start_ns": first,
        "clocks": [{"monotonic_ns": START_NS, "unix_ns": START_NS}],
    }  # fmt: skip
    path.with_suffix(".json").write_text(json.dumps(facts))


def _header(rank: int, names: list[str], segments: int, closed_ns: int) -> bytes:
    header = bytearray(layout.HEADER_BYTES)
    layout.FIXED.pack_into(
        header, 0, layout.MAGIC, layout.VERSION, layout.HEADER_BYTES, layout.SEGMENT_BYTES,
        layout.SEGMENT_RECORDS, 10_000 + rank, rank, START_NS, START_NS,
    )  # fmt: skip
    state = np.frombuffer(header, "<u8", 8, layout.STATE_OFFSET)
    state[layout.STATE_SEGMENTS] = segments
    state[layout.STATE_NAMES] = len(names)
    state[layout.STATE_CLOSED_NS] = closed_ns
    at = layout.NAMES_OFFSET
    for name in names:
        encoded = name.encode()
        layout.NAME_LENGTH.pack_into(header, at, len(encoded))
        at += layout.NAME_LENGTH.size
        header[at : at + len(encoded)] = encoded
        at += len(encoded)
    return bytes(header)


def _records(
    arrive: NDArray[np.float64], leave: NDArray[np.float64], names: dict[str, int], rank: int
) -> NDArray[np.void]:
    """One rank's records, in the order in which its spans ended."""
    steps = len(arrive)
    table = np.zeros((steps, ROWS_PER_STEP), dtype=RECORD)
    sequence = {"world": 0, "inner": 0}
    per_step = {group: sum(g == group for *_, g in PHASES) for group in sequence}
    row = 0
    begins = np.r_[0.0, leave[:-1, -1]] + 0.02
    at = begins
    for position, (phase, _, inner, group) in enumerate(PHASES):
        edges = np.linspace(at, arrive[:, position], len(inner) + 1)
        for number, name in enumerate(inner):
            _fill(table[:, row], Kind.SPAN, names, name, edges[number], edges[number + 1], 2)
            row += 1
        if group is not None:
            sequence[group] += 1
            word = group if group == "world" else f"inner{rank // GROUP}"
            name = f'all_reduce{layout.ARGS_SEPARATOR}{{"group":"{word}"}}'
            begin, end = arrive[:, position], leave[:, position]
            _fill(table[:, row], Kind.COLLECTIVE, names, name, begin, end, 2)
            table[:, row]["value"] = sequence[group] + per_step[group] * np.arange(steps)
            row += 1
        _fill(table[:, row], Kind.SPAN, names, phase, at, leave[:, position], 1)
        row += 1
        at = leave[:, position]
    _fill(table[:, row], Kind.STEP, names, "step", begins, at, 0)
    table[:, row]["value"] = np.arange(steps)
    return table.reshape(-1)


def _fill(  # noqa: PLR0913 - the columns of a record
    rows: NDArray[np.void], kind: int, names: dict[str, int], name: str,
    start_s: NDArray[np.float64], end_s: NDArray[np.float64], depth: int,
) -> None:  # fmt: skip
    rows["start_ns"] = START_NS + np.rint(start_s * 1e9)
    rows["end_ns"] = START_NS + np.rint(end_s * 1e9)
    rows["name"] = names.setdefault(name, len(names) + 1)
    rows["depth"], rows["kind"] = depth, kind
