"""A rank of a job that `torchrun` starts, with no preparation: `torchrun torchrun_rank.py SPEC`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.faults.rank import Spec, run_rank

if __name__ == "__main__":
    run_rank(Spec.from_json(Path(sys.argv[1]).read_text()), int(os.environ["RANK"]))
