"""The judge as a process of its own, which is no part of any job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Judge:
    """`port` answers HTTP after as long as it is asked to; `silent` never does."""

    port: int
    silent: int


@contextmanager
def judge() -> Iterator[Judge]:
    """A judge until the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.frameworks.judge"], cwd=_ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    port, silent = process.stdout.readline().split()
    try:
        yield Judge(int(port), int(silent))
    finally:
        process.kill()
        process.wait()
