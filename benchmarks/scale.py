"""`grpo-doctor report` on up to ten million spans of 1,024 ranks: seconds, peak memory, growth.

Beside it the same question, each rank's phases and waits from the same spans, put to plain pandas
and, where it is installed, to Holistic Trace Analysis (pip install HolisticTraceAnalysis), at a
size that all can do. Ours is then the reader and the analysis alone, as the others write no page.
HTA_PYTHON names the Python that has HTA, if it is another one.

python -m benchmarks.scale [--ranks 1024] [--steps 50 150 500] [--peers-steps 800]
python -m benchmarks.scale --curve [--ranks 64 256 1024 4096] [--steps 100]
python -m benchmarks.scale --samples 2
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.many_ranks import GROUP, write_run, write_samples
from benchmarks.measured import measured
from grpo_doctor.trace.parts import MAIN, folders, packed, read_part, read_parts, unpacked

SECONDS, PEAK_MIB = 60.0, 4096.0
# Ten times the spans may take this many times ten times the seconds, what starting up takes aside.
LINEAR = 1.25
PEER_RATIO = 3.0
_HOSTS = 8
_SENT_RANKS = 256  # of one node, at most
# HTA holds one rank's kernels at a time in each of its processes: it is small, and slow.
LEANER = {"pandas": 3.0, "hta": 1.5}
PEERS = ("ours", "pandas", "hta")
_PEERS = Path(__file__).with_name("scale_peers.py")


def report(recording: Path, page: Path) -> dict[str, float]:
    """What one report takes, and how large its page is."""
    costs = measured(
        [sys.executable, "-m", "grpo_doctor", "report", str(recording), "-o", str(page)]
    )
    return {**costs, "page_mib": page.stat().st_size / 2**20}


def size(folder: Path, ranks: int, steps: int) -> dict[str, Any]:
    """One size: the report from the run directory, which writes trace.json on the way; again with
    it; and from trace.json alone."""
    run, page = folder / "run", folder / "report.html"
    spans = write_run(run, ranks, steps)
    with_trace = report(run, page)
    trace = run / "trace.json"
    costs = {
        "spans": spans,
        "trace_mib": trace.stat().st_size / 2**20,
        "run directory, trace.json written too": with_trace,
        "run directory": report(run, page),
        "trace.json": report(trace, page),
    }
    shutil.rmtree(run)
    return costs


def peers(folder: Path, ranks: int, steps: int) -> dict[str, Any]:
    """The same question at one size that all can do; None for a peer that is not installed."""
    run = folder / "run"
    spans = write_run(run, ranks, steps)
    report(run, folder / "report.html")  # writes the trace
    trace = run / "trace.json"
    costs: dict[str, Any] = {"spans": spans}
    for name in PEERS:
        python = os.environ.get(f"{name.upper()}_PYTHON", sys.executable)
        command = [python, str(_PEERS), name]
        prepared = subprocess.run([*command, "--prepare", str(trace)], check=False).returncode == 0
        costs[name] = measured([*command, str(trace)]) if prepared else None
    shutil.rmtree(run)
    return costs


def curve(folder: Path, ranks: Sequence[int], steps: int) -> bool:
    """Print what a report costs per rank as ranks are added; whether that is constant.

    The report is JSON from span files alone, so that neither a page nor trace.json counts. `read`,
    `packed` and `unpacked` is what `report --ray` adds: the first two on the nodes.
    """
    print(f"{steps} steps; CPU ms and MiB of each rank more than in the row above")
    print(
        "| ranks | spans | CPU s | ms/rank | peak MiB | MiB/rank | kB/rank sent, there; here ms |"
    )
    print("|---|---|---|---|---|---|---|")
    before = {"ranks": 0.0, "cpu_seconds": 0.0, "peak_mib": 0.0}
    slopes: list[float] = []
    for count in ranks:
        run = folder / "run"
        spans = write_run(run, count, steps)
        command = [sys.executable, "-m", "grpo_doctor", "report", str(run), "--read-only"]
        costs = measured([*command, "--json", "-o", str(folder / "report.json")])
        more = {name: costs[name] - before[name] for name in ("cpu_seconds", "peak_mib")}
        added = count - before["ranks"]
        slopes.append(more["cpu_seconds"] / added * 1e3)
        sent, there_ms, here_ms = _sent(run, min(count, _SENT_RANKS))
        print(
            f"| {count:,} | {spans:,} | {costs['cpu_seconds']:.1f} | {slopes[-1]:.1f} "
            f"| {costs['peak_mib']:,.0f} | {more['peak_mib'] / added:.2f} "
            f"| {sent / 1e3:.1f}, {there_ms:.1f}; {here_ms:.1f} |"
        )
        before = {"ranks": float(count), **costs}
        shutil.rmtree(run)
    return slopes[-1] < LINEAR * slopes[len(slopes) // 2]


def _sent(run: Path, ranks: int) -> tuple[float, float, float]:
    """Bytes per rank that a node sends, and the CPU ms per rank there and here."""
    files = folders(run)[0].files[:ranks]
    begun_s = time.process_time()
    data = packed([read_part(run, MAIN, files)])
    packed_s = time.process_time()
    unpacked(data)
    there_s, here_s = packed_s - begun_s, time.process_time() - packed_s
    return len(data) / ranks, there_s / ranks * 1e3, here_s / ranks * 1e3


def samples(folder: Path, jobs: int) -> bool:
    """Print the CPU seconds of reading an hour of samples of eight hosts; whether others take most
    of them from this process."""
    run = folder / "run"
    write_run(run, GROUP, 10)
    for host in range(_HOSTS):
        write_samples(run / "hosts", host, np.arange(36_000) / 10, np.random.default_rng(host))
    alone_s = _reading_s(run, 1)[0]
    own_s, others_s = _reading_s(run, jobs)
    print(f"alone {alone_s:.1f} s; with {jobs} others {own_s:.1f} s, and {others_s:.1f} s in those")
    return own_s < alone_s / 3


def _reading_s(run: Path, jobs: int) -> tuple[float, float]:
    """CPU seconds of reading a run, of this process and of those that it starts."""
    begun = os.times()
    read_parts(run, jobs)
    now = os.times()
    children_s = now.children_user + now.children_system
    return (
        now.user + now.system - begun.user - begun.system,
        children_s - begun.children_user - begun.children_system,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curve", action="store_true", help="what one more rank costs")
    parser.add_argument("--samples", type=int, metavar="JOBS", help="read samples in processes")
    parser.add_argument("--ranks", type=int, nargs="+")
    parser.add_argument("--steps", type=int, nargs="+")
    parser.add_argument("--peers-ranks", type=int, default=64)
    parser.add_argument("--peers-steps", type=int, default=800, help="0: without peers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.samples:
            return 0 if samples(folder, options.samples) else 1
        if options.curve:
            steps = (options.steps or [100])[0]
            return 0 if curve(folder, options.ranks or [64, 256, 1024, 4096], steps) else 1
        ranks = (options.ranks or [1024])[0]
        sizes = [size(folder, ranks, steps) for steps in options.steps or [50, 150, 500]]
        beside = (
            peers(folder, options.peers_ranks, options.peers_steps) if options.peers_steps else {}
        )
    _say(sizes, beside)
    return 0 if _holds(sizes, beside) else 1


def _say(sizes: list[dict[str, Any]], beside: dict[str, Any]) -> None:
    for costs in sizes:
        print(f"{costs['spans']:,} spans, trace.json {costs['trace_mib']:.0f} MiB")
        for source, took in costs.items():
            if isinstance(took, dict):
                print(_line(source, took) + f"  page {took['page_mib']:.1f} MiB")
    if beside:
        print(f"{beside['spans']:,} spans, the same question")
        for peer in PEERS:
            took = beside[peer]
            print(_line(peer, took) if took else f"  {peer}: not installed, left out")


def _line(title: str, took: dict[str, float]) -> str:
    return (
        f"  {title:<40} {took['seconds']:6.1f} s ({took['cpu_seconds']:6.1f} s of processors) "
        f"{took['peak_mib']:6.0f} MiB"
    )


def _holds(sizes: list[dict[str, Any]], beside: dict[str, Any]) -> bool:
    """Whether the bounds hold. Growth is judged by processor time: a busy machine's wall is not."""
    largest = sizes[-1]
    holds = all(
        largest[source]["seconds"] < SECONDS and largest[source]["peak_mib"] < PEAK_MIB
        for source in ("run directory", "trace.json")
    )
    for source in ("run directory", "trace.json"):
        growth = largest[source]["cpu_seconds"] / sizes[0][source]["cpu_seconds"]
        holds &= growth < LINEAR * largest["spans"] / sizes[0]["spans"]
    for peer in PEERS[1:]:
        if beside.get(peer):
            holds &= beside[peer]["cpu_seconds"] > PEER_RATIO * beside["ours"]["cpu_seconds"]
            holds &= beside[peer]["peak_mib"] > LEANER[peer] * beside["ours"]["peak_mib"]
    return holds


if __name__ == "__main__":
    sys.exit(main())
