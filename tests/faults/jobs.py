"""Starting a job, knowing its processes, and leaving nothing of it behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.faults.events import POLL_S, count, events_in, wait_for
from tests.faults.rank import Spec
from tests.faults.registry import Launch
from tests.faults.user_rewards import SPEC
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
START_S = 120.0
HEALTHY_S = 240.0
# This checkout's packages, whichever the environment was installed from.
_IMPORTS = os.pathsep.join(str(ROOT / part) for part in (".", "probes", "reports", "trainer"))
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": _IMPORTS}


def environment() -> dict[str, str]:
    """This process's, without what a job or a recording around it has set."""
    prefixes = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "GRPO_DOCTOR", "TORCHELASTIC")
    return {k: v for k, v in os.environ.items() if not k.startswith(prefixes)} | _ENVIRONMENT


class ForkServer:
    """The process that has torch imported and forks jobs; see `launcher.py`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.launcher"],
            cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def fork(self, spec: Spec) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(spec.to_json() + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()


@dataclass
class Job:
    """A running job. `pids` are its ranks'; the launcher's session or process tells the rest."""

    folder: Path
    spec: Spec
    launch: Launch
    pids: dict[int, int] = field(default_factory=dict)
    launcher: int = 0

    def await_healthy(self) -> None:
        """Waits until every rank has done its healthy steps."""
        wait_for(
            self.folder,
            lambda events: count(events, "healthy") >= len(self.pids),
            "healthy steps of every rank", HEALTHY_S,
        )  # fmt: skip

    def exits(self) -> dict[int, int]:
        """Ranks that have ended, with their wait status."""
        return {e.rank: e.more["status"] for e in events_in(self.folder) if e.name == "exit"}

    def living(self) -> dict[int, int]:
        """Ranks of which there still is a process that is not a zombie."""
        return {rank: pid for rank, pid in self.pids.items() if _state(pid) not in "ZX"}

    def errors(self) -> list[str]:
        """What ranks said when they failed."""
        return [
            f"rank {e.rank}: {e.more['text']}" for e in events_in(self.folder) if e.name == "error"
        ]


@contextlib.contextmanager
def started(server: ForkServer, spec: Spec, launch: Launch = "fork") -> Iterator[Job]:
    """A job in a folder of its own; killed to the last process at the end.

    Raises:
        Silence: it did not come up.
    """
    folder = Path(tempfile.mkdtemp(prefix="job-"))
    spec = replace(spec, folder=str(folder), port=free_port())
    job = Job(folder, spec, launch)
    try:
        if launch == "fork":
            server.fork(spec)
            events = wait_for(
                folder, lambda events: count(events, "launched") > 0, "launch", START_S
            )
            launched = next(e for e in events if e.name == "launched")
            job.launcher = launched.pid
            job.pids = {int(rank): pid for rank, pid in launched.more["ranks"].items()}
        elif launch in {"torchrun", "spawn"}:
            _script(job)
        else:
            _trainer(job, recorded=launch == "recorded")
        yield job
    finally:
        _kill(job)
        shutil.rmtree(folder, ignore_errors=True)


_TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def _script(job: Job) -> None:
    """A user's script, started by torchrun or starting its ranks itself."""
    path = job.folder / "spec.json"
    path.write_text(job.spec.to_json())
    file = Path(__file__)
    if job.launch == "spawn":
        start(job, [sys.executable, str(file.with_name("spawned_ranks.py")), str(path)])
    else:
        script = str(file.with_name("torchrun_rank.py"))
        start(job, [*_TORCHRUN, str(job.spec.world_size), script, str(path)])
    expected = job.spec.world_size
    events = wait_for(
        job.folder,
        lambda events: count(events, "started") >= expected,
        "start of every rank",
        START_S,
    )
    job.pids = {e.rank: e.pid for e in events if e.name == "started"}


def _trainer(job: Job, *, recorded: bool) -> None:
    """The bundled trainer, until its ranks have called the reward function often enough."""
    path = job.folder / "spec.json"
    path.write_text(job.spec.to_json())
    ranks = str(job.spec.world_size)
    rewards = f"{Path(__file__).with_name('user_rewards.py')}:score_answers"
    flags = ["--reward_funcs", rewards, "--max_steps", "100000", "--output_dir", "out"]
    flags += job.spec.facts.get("trainer_flags", [])
    if recorded:
        command = [sys.executable, "-m", "grpo_doctor", "run", "-o", "run", "--nproc", ranks]
        start(job, [*command, "--no-watchdog", "--", *flags], **{SPEC: str(path)})
    else:
        start(job, [*_TORCHRUN, ranks, "-m", "grpo_doctor_trainer", *flags], **{SPEC: str(path)})
    expected = job.spec.world_size
    wait_for(
        job.folder, lambda events: count(events, "healthy") >= expected, "first steps", HEALTHY_S
    )
    job.pids = _trainer_ranks(job.folder)


def _trainer_ranks(folder: Path) -> dict[int, int]:
    """Processes of the trainer that have a rank and are nobody's helper."""
    processes: dict[int, tuple[int, int]] = {}
    for entry in _proc():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            inside = (entry / "cwd").readlink() == folder
            if inside and words[1:4] == [b"-u", b"-m", b"grpo_doctor_trainer"]:
                variables = (entry / "environ").read_bytes().split(b"\0")
                rank = next(v for v in variables if v.startswith(b"RANK=")).removeprefix(b"RANK=")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                processes[int(entry.name)] = int(rank), parent
    # Loader workers are forks with the same command line, and children of one of these.
    return {rank: pid for pid, (rank, parent) in processes.items() if parent not in processes}


def start(job: Job, command: list[str], **more: str) -> None:
    """Starts the job's first process in a session of its own."""
    with (job.folder / "job.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=job.folder, env=environment() | more, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    job.launcher = process.pid
    _OURS[process.pid] = process


_OURS: dict[int, subprocess.Popen[bytes]] = {}


def _state(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "X"
    return stat[stat.rindex(")") + 2]


def _kill(job: Job, at_most_s: float = 20.0) -> None:
    """Kills the job's processes again until there are none; some are born late, some die late."""
    deadline = time.monotonic() + at_most_s
    while pids := _processes(job):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if job.launcher in _OURS:
            _OURS[job.launcher].poll()
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(pids)} of a job cannot be killed")
        time.sleep(POLL_S)
    _OURS.pop(job.launcher, None)


def _processes(job: Job) -> set[int]:
    """Of the launcher's session, or with the job's folder as argument or working directory."""
    mark = str(job.folder).encode()
    pids = set()
    for entry in _proc():
        try:
            stat = (entry / "stat").read_text()
            session = int(stat[stat.rindex(")") + 2 :].split()[3])
            state = stat[stat.rindex(")") + 2]
            words = (entry / "cmdline").read_bytes()
            inside = (entry / "cwd").readlink() == job.folder
        except OSError:
            continue
        if state != "Z" and (session == job.launcher or mark in words or inside):
            pids.add(int(entry.name))
    return pids - {os.getpid()}


def _proc() -> Iterator[Path]:
    return (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())


def outline(job: Job) -> str:
    """The job's log, its end, for a failing case."""
    log = job.folder / "job.log"
    text = log.read_text(errors="replace")[-2000:] if log.exists() else ""
    return json.dumps({"exits": job.exits(), "errors": job.errors(), "log": text})
