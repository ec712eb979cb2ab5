"""What `make test-fast` leaves out because it was measured to take long: costly.txt.

On a quiet machine `make test-fast PYTEST_ARGS="-p tests.costly"` runs that too and writes what each
test took; then `python -m tests.costly` writes the list anew. A test that the list does not have
is run.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_name("costly.txt")
TIMES = ROOT / ".pytest_cache" / "times.jsonl"
# The 7,800 tests below it take 50 of the 120 s that two cores have in a minute.
COSTLY_CPU_S = 0.03
COSTLY_WALL_S = 1.0


def names() -> frozenset[str]:
    """The functions in the list, as pytest names them."""
    return frozenset(LIST.read_text().split())


def function(test: str) -> str:
    """The name of a test without its parameters."""
    return test.partition("[")[0]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None]:
    """Adds to `TIMES` what the test took, setting up and taking down included."""
    began_s, cpu_s = time.monotonic(), _cpu_s()
    yield
    TIMES.parent.mkdir(exist_ok=True)
    with TIMES.open("a") as file:  # short lines: those of several processes do not mix
        row = (item.nodeid, _cpu_s() - cpu_s, time.monotonic() - began_s)
        file.write(json.dumps(row) + "\n")


def _cpu_s() -> float:
    """Seconds of a processor of this process, and of the children that it has waited for."""
    times = os.times()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return times.user + times.system + children.ru_utime + children.ru_stime


def costly(rows: Iterable[tuple[str, float, float]]) -> list[str]:
    """Functions that take long in the mean of their parameters; `rows` are of the plugin."""
    took: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for test, cpu_s, wall_s in rows:
        took[function(test)].append((cpu_s, wall_s))
    return sorted(
        name
        for name, times in took.items()
        if sum(cpu_s for cpu_s, _ in times) >= COSTLY_CPU_S * len(times)
        or max(wall_s for _, wall_s in times) >= COSTLY_WALL_S
    )


if __name__ == "__main__":
    measured = [json.loads(line) for line in TIMES.read_text().splitlines()]
    LIST.write_text("\n".join(costly(measured)) + "\n")
    TIMES.unlink()
