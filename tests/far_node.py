"""Faults on the far node of a job on two: Slurm, Ray, torchrun with ssh; looks at healthy jobs.

`python -m tests.far_node [--only NAME ...] [--looks N]` prints what is right of state, rank, host,
line and class. Needs what `make cluster` needs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.frameworks import test_ray_cluster
from tests.integration import hosts_job
from tests.integration.test_attach_hosts import NAMES
from tests.integration.test_attach_slurm import slurm
from tests.integration.test_attach_ssh import ssh_job

_JUDGED_S = 100.0  # a wait that polls is unusual after 60 s
_YOUNG_S = 15.0  # where slow is right, as of a computation of less than 5 minutes
_RESERVED = 'hosts_job.FAULTS["reward"]()'
Attach = Callable[[], dict[str, Any]]
Where = Literal["slurm", "ray", "torchrun"]


@dataclass(frozen=True)
class Wanted:
    """What is right of a fault: its classes, and whether it is stuck within `_JUDGED_S`."""

    classes: tuple[str, ...]
    stuck: bool = True

    @property
    def states(self) -> tuple[str, ...]:
        """The states that are right at the end."""
        return ("stuck",) if self.stuck else ("slow", "stuck")


WANTED = {
    "stopped": Wanted(("rank-stopped",)),
    "reward": Wanted(("reward-blocked",)),
    "http": Wanted(("reward-blocked",)),
    "pipe": Wanted(("reward-blocked",)),
    "queue": Wanted(("reward-blocked",)),
    "lock": Wanted(("thread-deadlock", "lock-held")),
    "child": Wanted(("child-stuck",)),
    "marker": Wanted(("reward-blocked",)),
    "fifo": Wanted(("storage-blocked",)),
    "coroutine": Wanted(("reward-blocked",)),
    "regex": Wanted(("reward-busy",), stuck=False),
    "loop": Wanted(("reward-busy",), stuck=False),
}


@contextmanager
def _running(where: Where, fault: str) -> Iterator[Attach]:
    with tempfile.TemporaryDirectory(prefix="far-") as name:
        folder = Path(name)
        if where == "slurm":
            with slurm(fault, folder) as site:
                yield lambda: site.attach()[1]
            return
        if where == "torchrun":
            with ssh_job(fault, folder) as attach:
                yield lambda: attach("--ssh", ",".join(NAMES))[1]
            return
        job = test_ray_cluster.JOB.replace(_RESERVED, f'hosts_job.FAULTS["{fault}"]()')
        job = test_ray_cluster.HEALTHY if fault == "none" else job
        with test_ray_cluster.stuck_job(folder, job) as (hosts, environment):
            address = f"{hosts[0].address}:6379"
            yield lambda: test_ray_cluster.document_of(hosts[0], environment, address)


def _of_fault(where: Where, fault: str) -> dict[str, bool]:
    wanted = WANTED[fault]
    with _running(where, fault) as attach:
        begun_s = time.monotonic()
        verdict = attach()["verdict"]
        while verdict["state"] != "stuck" and time.monotonic() - begun_s < (
            _JUDGED_S if wanted.stuck else _YOUNG_S
        ):
            verdict = attach()["verdict"]
    summary = verdict["summary"]
    right = {
        "state": verdict["state"] in wanted.states,
        "rank": verdict["culprits"] == [hosts_job.CULPRIT],
        "host": f"on {NAMES[1]}" in summary,
        "line": hosts_job.FAULTS[fault].__name__ in summary,
        "class": verdict["class"] in wanted.classes,
    }
    wrong = ", ".join(name for name, is_right in right.items() if not is_right)
    _say(f"{where} {fault}: {f'wrong: {wrong}' if wrong else 'right'}; {verdict['state']}, "
         f"{verdict['class']}: {summary}")  # fmt: skip
    return right


def _of_healthy(where: Where, looks: int) -> list[str]:
    with _running(where, "none") as attach:
        verdicts = [attach()["verdict"] for _ in range(looks)]
    for verdict in verdicts:
        _say(f"{where} healthy: {verdict['state']}, {verdict['class']}: {verdict['summary']}")
    return [verdict["state"] for verdict in verdicts]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Print every answer, and how many are right."""
    parser = argparse.ArgumentParser(prog="python -m tests.far_node", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[*WANTED], choices=[*WANTED], metavar="NAME")
    places = ["slurm", "ray", "torchrun"]
    parser.add_argument("--where", nargs="+", default=places, choices=places)
    parser.add_argument("--looks", type=int, default=10, metavar="N", help="at each healthy job")
    options = parser.parse_args()
    rows = [_of_fault(where, fault) for where in options.where for fault in options.only]
    for name in rows[0]:
        _say(f"{name} right: {sum(row[name] for row in rows)} of {len(rows)}")
    _say(f"all right: {sum(all(row.values()) for row in rows)} of {len(rows)}")
    states = [state for w in options.where for state in _of_healthy(w, options.looks)]
    for state in sorted(set(states)):
        _say(f"looks at healthy jobs that say {state}: {states.count(state)} of {len(states)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
