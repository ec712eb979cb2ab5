"""Runs every benchmark in turn: `python -m benchmarks`, or `make bench`. About twenty minutes."""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = (
    "recorder",
    "scale",
    "overhead",
    "trainer_speed",
    "learning",
)


def main() -> int:
    """Each in its own process; a peer that is not installed is said and left out."""
    worst = 0
    for name in BENCHMARKS:
        print(f"== {name}", flush=True)
        worst = max(worst, subprocess.call([sys.executable, "-m", f"benchmarks.{name}"]))
    return worst


if __name__ == "__main__":
    sys.exit(main())
