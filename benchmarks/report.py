"""`grpo-doctor report` on a trace of a million spans: seconds, peak memory, size of the page.

python -m benchmarks.report [--spans 1000000] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.traces import write_large_trace


def measured(command: list[str]) -> tuple[float, float]:
    """Wall seconds and peak RSS in MiB of a command, from its own accounting."""
    began = time.monotonic()
    pid = os.posix_spawn(command[0], command, dict(os.environ))
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{command} failed")
    return time.monotonic() - began, usage.ru_maxrss / 1024


def main() -> None:
    """Writes the trace, reports on it, prints what that took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace, page = Path(folder) / "trace.json", Path(folder) / "report.html"
        spans = write_large_trace(trace, options.spans)
        command = [sys.executable, "-m", "grpo_doctor", "report", str(trace), "-o", str(page)]
        seconds, peak_mib = measured(command)
        result = {
            "spans": spans,
            "trace_mib": trace.stat().st_size / 2**20,
            "seconds": seconds,
            "peak_rss_mib": peak_mib,
            "report_mib": page.stat().st_size / 2**20,
        }
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        print(
            f"{result['spans']:,} spans, {result['trace_mib']:.0f} MiB: {seconds:.1f} s, "
            f"{peak_mib:.0f} MiB peak, page {result['report_mib']:.2f} MiB"
        )


if __name__ == "__main__":
    main()
