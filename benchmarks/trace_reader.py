"""How fast and in how much memory a million spans are read back, beside `json.load` and pandas.

Each reader runs in a process of its own on the same file; the medians of some runs are compared.
Run: `python -m benchmarks.trace_reader [--spans 1000000] [--runs 3] [--json]`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.traces import write_large_trace

REQUIRED_RATIO = 3.0
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


def measure(reader: str, path: Path, spans: int, runs: int) -> tuple[float, float]:
    """Median seconds and peak resident bytes of a reader, imports included."""
    code = _MEASURED.format(body=_READERS[reader], spans=spans)
    results = []
    for _ in range(runs):
        reader_run = subprocess.run(
            [sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True
        )
        results.append(tuple(float(part) for part in reader_run.stdout.split()))
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
        spans = write_large_trace(path, options.spans)
        size_bytes = path.stat().st_size
        results = {r: measure(r, path, spans, options.runs) for r in _READERS}
    (ours_s, ours_bytes), (theirs_s, theirs_bytes) = results.values()
    ratios = {"time": theirs_s / ours_s, "peak_rss": theirs_bytes / ours_bytes}
    if options.json:
        print(json.dumps({"spans": spans, "file_bytes": size_bytes, "ratios": ratios}))
    else:
        print(f"{spans:,} spans, {size_bytes / 1e6:.0f} MB")
        for reader, (seconds, peak) in results.items():
            print(f"  {reader:<30} {seconds:6.2f} s  {peak / 2**20:7.0f} MiB peak")
        print(
            f"  ratio                          {ratios['time']:6.2f}    {ratios['peak_rss']:7.2f}"
        )
    return 0 if min(ratios.values()) >= REQUIRED_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
