"""What `make test-fast` leaves out because it was measured to take long: costly.txt.

On a quiet machine `make test-fast PYTEST_ARGS="-p tests.costly"` runs that too and writes what each
test took; then `python -m tests.costly` writes the list again. A test that the list does not have
is run.
"""

from __future__ import annotations

import json
import resource
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from statistics import fmean

import pytest

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_name("costly.txt")
TIMES = ROOT / ".pytest_cache" / "times.jsonl"
# The 8,300 tests below it take 42 of the 120 s that two cores have in a minute, reading them 40.
COSTLY_CPU_S = 0.02
COSTLY_FILE_CPU_S = 0.1
COSTLY_WALL_S = 1.0


def names() -> frozenset[str]:
    """The functions and files in the list, as pytest names them."""
    return frozenset(LIST.read_text().split())


def is_in(listed: frozenset[str], test: str) -> bool:
    """Whether the list has this test's function or its file."""
    return _function(test) in listed or _file(test) in listed


def _function(test: str) -> str:
    return test.partition("[")[0]


def _file(test: str) -> str:
    return test.partition("::")[0]


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
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def costly(rows: Iterable[tuple[str, float, float]]) -> list[str]:
    """What takes long in the mean of its tests; `rows` are of the plugin.

    Of a file that does, all: what its tests share is paid by the first that runs.
    """
    files: dict[str, list[float]] = defaultdict(list)
    functions: dict[str, list[float]] = defaultdict(list)
    waiting: set[str] = set()
    for test, cpu_s, wall_s in rows:
        files[_file(test)].append(cpu_s)
        functions[_function(test)].append(cpu_s)
        if wall_s >= COSTLY_WALL_S:
            waiting.add(_function(test))
    whole = {name for name, times in files.items() if fmean(times) >= COSTLY_FILE_CPU_S}
    some = {name for name, times in functions.items() if fmean(times) >= COSTLY_CPU_S} | waiting
    return sorted(whole | {name for name in some if _file(name) not in whole})


if __name__ == "__main__":
    measured = [json.loads(line) for line in TIMES.read_text().splitlines()]
    LIST.write_text("\n".join(costly(measured)) + "\n")
    TIMES.unlink()
