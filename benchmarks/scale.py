"""`grpo-doctor report` on up to ten million spans of 1,024 ranks: seconds, peak memory, growth.

python -m benchmarks.scale [--ranks 1024] [--steps 50 150 500]
python -m benchmarks.scale --curve [--ranks 64 256 1024 4096] [--steps 100]
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks.many_ranks import write_run

SECONDS, PEAK_MIB = 60.0, 4096.0
# Ten times the spans may take this many times ten times the seconds, what starting up takes aside.
LINEAR = 1.25
_POLL_S = 0.02


def measured(command: list[str]) -> dict[str, float]:
    """Wall and CPU seconds and peak MiB of a command with its children; it must succeed."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = 0
    with psutil.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                family = [process, *process.children(recursive=True)]
                peak = max(peak, sum(member.memory_info().rss for member in family))
            time.sleep(_POLL_S)
    if process.returncode:
        raise SystemExit(f"{command} failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": time.monotonic() - began,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_mib": peak / 2**20,
    }


def report(recording: Path, page: Path) -> dict[str, float]:
    """What one report takes, and how large its page is."""
    costs = measured(
        [sys.executable, "-m", "grpo_doctor", "report", str(recording), "-o", str(page)]
    )
    return {**costs, "page_mib": page.stat().st_size / 2**20}


def size(folder: Path, ranks: int, steps: int) -> dict[str, Any]:
    """One size: the report from the run directory, which writes trace.json on the way; and from
    trace.json alone."""
    run, page = folder / "run", folder / "report.html"
    spans = write_run(run, ranks, steps)
    from_run = report(run, page)
    trace = run / "trace.json"
    costs = {
        "spans": spans,
        "trace_mib": trace.stat().st_size / 2**20,
        "run directory": from_run,
        "trace.json": report(trace, page),
    }
    shutil.rmtree(run)
    return costs


def curve(folder: Path, ranks: Sequence[int], steps: int) -> bool:
    """Print what a report costs per rank as ranks are added; whether that is constant.

    The report is JSON from span files alone, so that neither a page nor trace.json counts.
    """
    print(f"{steps} steps; CPU ms and MiB of each rank more than in the row above")
    print("| ranks | spans | CPU s | ms/rank | peak MiB | MiB/rank |")
    print("|---|---|---|---|---|---|")
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
        print(
            f"| {count:,} | {spans:,} | {costs['cpu_seconds']:.1f} | {slopes[-1]:.1f} "
            f"| {costs['peak_mib']:,.0f} | {more['peak_mib'] / added:.2f} |"
        )
        before = {"ranks": float(count), **costs}
        shutil.rmtree(run)
    return slopes[-1] < LINEAR * slopes[len(slopes) // 2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curve", action="store_true", help="what one more rank costs")
    parser.add_argument("--ranks", type=int, nargs="+")
    parser.add_argument("--steps", type=int, nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.curve:
            steps = (options.steps or [100])[0]
            return 0 if curve(folder, options.ranks or [64, 256, 1024, 4096], steps) else 1
        ranks = (options.ranks or [1024])[0]
        sizes = [size(folder, ranks, steps) for steps in options.steps or [50, 150, 500]]
    _say(sizes)
    return 0 if _holds(sizes) else 1


def _say(sizes: list[dict[str, Any]]) -> None:
    for costs in sizes:
        print(f"{costs['spans']:,} spans, trace.json {costs['trace_mib']:.0f} MiB")
        for source, took in costs.items():
            if isinstance(took, dict):
                print(
                    f"  {source:<40} {took['seconds']:6.1f} s ({took['cpu_seconds']:6.1f} s of "
                    f"CPUs) {took['peak_mib']:6.0f} MiB  page {took['page_mib']:.1f} MiB"
                )


def _holds(sizes: list[dict[str, Any]]) -> bool:
    """Whether the bounds hold. Growth is judged by CPU time: a busy machine's wall is not."""
    largest = sizes[-1]
    holds = all(
        largest[source]["seconds"] < SECONDS and largest[source]["peak_mib"] < PEAK_MIB
        for source in ("run directory", "trace.json")
    )
    for source in ("run directory", "trace.json"):
        growth = largest[source]["cpu_seconds"] / sizes[0][source]["cpu_seconds"]
        holds &= growth < LINEAR * largest["spans"] / sizes[0]["spans"]
    return holds


if __name__ == "__main__":
    sys.exit(main())
