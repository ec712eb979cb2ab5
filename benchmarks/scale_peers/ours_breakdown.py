"""Each rank's seconds per phase, idle time and wait for others, by our reader and analysis."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from grpo_doctor.analysis import analyse
from grpo_doctor.phases import PHASES
from grpo_doctor.trace.read import read_trace

if __name__ == "__main__":
    if sys.argv[1] == "--installed":
        sys.exit(0)
    analysis = analyse(read_trace(Path(sys.argv[1])))
    account = analysis.accounting
    for name, table in (("wait", account.wait), ("transfer", account.transfer)):
        print(name, table.mean(axis=0))
    print("idle", account.idle.mean(axis=0))
    print(*zip(PHASES, np.round(analysis.seconds.mean(axis=(0, 1)), 3)))
