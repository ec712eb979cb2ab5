"""One torch: a stuck job of it, what `attach` says, and whether its dump files can be read."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_doctor.hang.collection import bundle

RANKS, GUILTY = 4, 2
JOB = Path(__file__).with_name("job.py")
VERSIONS_WITHOUT = (2, 11)  # older recorders must be asked for
_CLASSES = ("collective-skipped", "collective-mismatch")
_STILL_S, _AT_MOST_S = 6.0, 180.0


@dataclass(frozen=True)
class Answer:
    """What `attach` said of one job. `dumps`: by rank and recorder, how its dump came."""

    torch: str
    state: str
    cause: str
    culprits: tuple[int, ...]
    confidence: float
    seconds: float
    max_pause_ms: float
    summary: str
    dumps: dict[str, str] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        """Whether the guilty rank is named, with its class."""
        culprit_right = self.culprits == (GUILTY,) and self.cause in _CLASSES
        return culprit_right and self.state == "stuck"


@dataclass(frozen=True)
class Result:
    """`live`: of the job; `files`: of each kind of dump file, by `attach --dumps`."""

    version: str
    live: Answer
    files: dict[str, Answer]
    problem: str = ""


def check(version: str, python: Path, folder: Path, *, recorder: bool = True) -> Result:
    """Runs the job, asks, and compares. `recorder`: it is asked for where it is off by default.

    The dump files stay in `folder`/pickle and `folder`/json.
    """
    with stuck_job(version, python, folder, recorder=recorder) as (torch, pids):
        live = _attach(torch, folder / "bundle", [str(pids[0])])
        for pid in pids:
            os.kill(pid, signal.SIGUSR2)
        _wait(lambda: all((folder / f"trace_rank_{r}").exists() for r in range(RANKS)))
    files = {}
    for kind, pattern in (("pickle", "trace_rank_?"), ("json", "trace_rank_?.json")):
        alone = folder / kind
        alone.mkdir()
        for path in folder.glob(pattern):
            path.rename(alone / path.name)
        files[kind] = _attach(torch, folder / f"bundle-{kind}", ["--dumps", str(alone)])
    return Result(version, live, files)


@contextmanager
def stuck_job(
    version: str, python: Path, folder: Path, *, recorder: bool
) -> Iterator[tuple[str, list[int]]]:
    """The version that it says it is, and its ranks, once none of them has run for a while."""
    environment = dict(os.environ)
    if recorder and tuple(map(int, version.split(".")[:2])) < VERSIONS_WITHOUT:
        environment["TORCH_FR_BUFFER_SIZE"] = "2000"
    script = Path(shutil.copy(JOB, folder))  # its path gets into the dumps
    with (folder / "log").open("wb") as log:
        job = subprocess.Popen(
            [str(python), str(script), str(folder), str(RANKS), str(GUILTY)],
            stdout=subprocess.PIPE, stderr=log, text=True, env=environment,
        )  # fmt: skip
    pids: list[int] = []
    try:
        assert job.stdout
        torch, *numbers = job.stdout.readline().split() or [""]
        pids = [int(number) for number in numbers]
        assert len(pids) == RANKS, (folder / "log").read_text()
        _wait(lambda: _still_s(pids) > _STILL_S)
        yield torch, pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        job.kill()
        job.communicate()


def _still_s(pids: Sequence[int], last_runs: dict[int, tuple[str, float]] = {}) -> float:  # noqa: B006 - what was seen at the looks before
    """For how long the main thread that ran last has not run."""
    now = time.monotonic()
    for pid in pids:
        ran = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]
        if last_runs.get(pid, ("", 0.0))[0] != ran:
            last_runs[pid] = (ran, now)
    return min(now - last_runs[pid][1] for pid in pids)


def _wait(until: Any) -> None:
    deadline = time.monotonic() + _AT_MOST_S
    while not until():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.2)


def _attach(torch: str, folder: Path, arguments: Sequence[str]) -> Answer:
    command = [sys.executable, "-m", "grpo_doctor", "attach", "--json", "--out", str(folder)]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=_AT_MOST_S, check=False
    )
    if not done.stdout:
        return Answer(torch, "", "", (), 0.0, 0.0, 0.0, done.stderr.strip())
    document = json.loads(done.stdout)
    verdict, cost = document["verdict"], document["cost"]
    return Answer(
        torch, verdict["state"], verdict["class"], tuple(verdict["culprits"]),
        verdict["confidence"], cost["seconds"], cost["max_pause_ms"], verdict["summary"],
        _dumps(folder),
    )  # fmt: skip


def _dumps(folder: Path) -> dict[str, str]:
    return {
        f"{dump.rank}/{dump.backend}": dump.problem or f"{dump.source}, {len(dump.data)} bytes"
        for dump in bundle.read(folder).dumps
    }
