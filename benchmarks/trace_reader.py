"""How fast and in how much memory a million spans are read back, beside `json.load` and pandas.

Each reader runs in a process of its own on the same file; the medians of some runs are compared.
Run: `python benchmarks/trace_reader.py [--spans 1000000] [--runs 3] [--json]`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from grpo_doctor.trace.columns import spans_from
from grpo_doctor.trace.model import Exit, Kind, Loss, Metrics, Process, Run, Spans, Trace
from grpo_doctor.trace.write import write_trace

REQUIRED_RATIO = 3.0
RANKS = 8
NAMES = ("step", "rollout", "rollout/generate", "reward", "logprob", "train", "all_reduce")
_MEASURED = """
import resource, sys, time
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begun = time.perf_counter()
{body}
elapsed = time.perf_counter() - begun
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert count >= {spans}, count
print(elapsed, peak * 1024)
"""
_READERS = {
    "read_trace": """
from pathlib import Path
from grpo_doctor.trace.read import read_trace
count = len(read_trace(Path(sys.argv[1])).spans)
""",
    "json.load + pandas.DataFrame": """
import json
import pandas as pd
with open(sys.argv[1], encoding="utf-8") as file:
    frame = pd.DataFrame(json.load(file)["traceEvents"])
count = len(frame)
""",
}


def build(spans: int) -> Trace:
    """A trace of about `spans` rows: steps of `NAMES`, on `RANKS` ranks, with collectives."""
    per_step = len(NAMES)
    steps = -(-spans // (RANKS * per_step))
    step_ns, part_ns = 7_000_000, 1_000_000
    place = np.tile(np.arange(per_step), steps)
    number = np.repeat(np.arange(steps), per_step)
    kinds = np.full(per_step, Kind.SPAN)
    kinds[0], kinds[-1] = Kind.STEP, Kind.COLLECTIVE
    begin = number * step_ns + np.maximum(0, place - 1) * part_ns + 137 * place
    end = np.where(place == 0, begin + step_ns - 1, begin + part_ns - 2000)
    rows = len(place)
    columns = {
        "kind": np.tile(kinds[place], RANKS),
        "process": np.repeat(np.arange(RANKS), rows),
        "thread": np.zeros(rows * RANKS),
        "depth": np.tile(np.minimum(place, 1), RANKS),
        "name": np.tile(place, RANKS),
        "args": np.tile(np.where(place == per_step - 1, 0, -1), RANKS),
        "start_ns": np.tile(begin, RANKS),
        "end_ns": np.tile(end, RANKS),
        "value": np.tile(np.where((place == 0) | (place == per_step - 1), number, 0), RANKS),
        "open": np.zeros(rows * RANKS),
    }
    return _trace(spans_from(columns), steps * step_ns)


def _trace(spans: Spans, duration_ns: int) -> Trace:
    return Trace(
        source="benchmark",
        run=Run(
            id="benchmark",
            world_size=RANKS,
            duration_ns=duration_ns,
            exit=Exit(state="finished", code=0),
        ),
        processes=tuple(
            Process(index=r, pid=1000 * (r + 1), os_pid=r + 1, host="host", rank=r)
            for r in range(RANKS)
        ),
        gpus=(),
        names=NAMES,
        args=({"group": "world"},),
        spans=spans,
        series=(),
        metrics=Metrics(steps=np.array([], dtype=np.int64), values={}),
        loss=Loss(),
    )


def measure(reader: str, path: Path, spans: int, runs: int) -> tuple[float, float]:
    """Median seconds and peak resident bytes of a reader, imports included."""
    code = _MEASURED.format(body=_READERS[reader], spans=spans)
    results = []
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True
        )
        results.append(tuple(float(part) for part in done.stdout.split()))
    seconds, peaks = zip(*results)
    return statistics.median(seconds), statistics.median(peaks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        trace = build(options.spans)
        write_trace(trace, path)
        size_bytes = path.stat().st_size
        results = {r: measure(r, path, len(trace.spans), options.runs) for r in _READERS}
    (ours_s, ours_bytes), (theirs_s, theirs_bytes) = results.values()
    ratios = {"time": theirs_s / ours_s, "peak_rss": theirs_bytes / ours_bytes}
    if options.json:
        print(json.dumps({"spans": len(trace.spans), "file_bytes": size_bytes, "ratios": ratios}))
    else:
        print(f"{len(trace.spans):,} spans, {size_bytes / 1e6:.0f} MB")
        for reader, (seconds, peak) in results.items():
            print(f"  {reader:<30} {seconds:6.2f} s  {peak / 2**20:7.0f} MiB peak")
        print(
            f"  ratio                          {ratios['time']:6.2f}    {ratios['peak_rss']:7.2f}"
        )
    return 0 if min(ratios.values()) >= REQUIRED_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
