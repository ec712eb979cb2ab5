"""Many looks in a row at one working gloo job: `python -m tests.many_looks`.

Each look is a whole `attach`, and then the flight recorder of each rank is read, as of a job that
stands. Says by rank how its memory grew, how long steps were without looks and with them, and
whether the job computed to the last bit what an undisturbed one computes. 0 if nothing grew and
nothing else came out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_doctor_probes.evidence import Member
from grpo_doctor_probes.flight import read_recorders

RANKS = 2
RING = 200  # entries: full before the first look
WARM_UP = 300  # steps
MOST_STEPS = 1 << 18
ASKED_EVERY = 10  # steps: whether to end
MOST_GROWTH_KB = 512  # of which a call into a rank took 960 each time, for the text of a full ring
SECONDS_BETWEEN = "0.2"


@dataclass
class Looks:
    """What came of them. `growth_kb`: by rank, of memory of its own, from before the first look to
    after the last. What a look reads of a library becomes resident too: once, shared by all.
    """

    looks: int
    seconds: float = 0.0
    growth_kb: list[int] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    max_pause_ms: float = 0.0
    steps: int = 0
    median_ms: tuple[float, float] = (0.0, 0.0)  # before the looks, and during
    longest_ms: tuple[float, float] = (0.0, 0.0)
    same_results: bool = False

    @property
    def harmless(self) -> bool:
        """Whether the job is as if nobody had looked."""
        flat = max(self.growth_kb, default=0) <= MOST_GROWTH_KB
        return flat and self.same_results and not self.problems


def look_often(looks: int) -> Looks:
    """Starts the job, looks so often, ends it, and computes the same again undisturbed."""
    result = Looks(looks)
    with tempfile.TemporaryDirectory() as name, _job(Path(name)) as (pids, process):
        folder = Path(name)
        while _steps_done(folder) < WARM_UP:
            assert process.poll() is None, "the job ended before the first look"
            time.sleep(0.1)
        first_step, before = _steps_done(folder), [_resident_kb(pid) for pid in pids]
        began = time.monotonic()
        for _ in range(looks):
            _attach(pids[0], result)
            for rank, pid in enumerate(pids):
                _read(rank, pid, result)
        result.seconds = round(time.monotonic() - began, 1)
        result.growth_kb = [_resident_kb(pid) - kb for pid, kb in zip(pids, before)]
        (folder / "end").touch()
        assert process.wait(timeout=120) == 0, "the job failed"
        times = json.loads((folder / "0.json").read_text())
        parts = times["ms"][100:first_step], times["ms"][first_step:]
        result.steps = len(times["ms"])
        result.median_ms, result.longest_ms = (
            (round(of(parts[0]), 2), round(of(parts[1]), 2)) for of in (statistics.median, max)
        )
        digests = [json.loads((folder / f"{n}.json").read_text())["digest"] for n in range(RANKS)]
    with tempfile.TemporaryDirectory() as name, _job(Path(name), result.steps) as (_, process):
        assert process.wait(timeout=600) == 0
        undisturbed = [
            json.loads((Path(name) / f"{n}.json").read_text())["digest"] for n in range(RANKS)
        ]
    result.same_results = digests == undisturbed
    return result


def _attach(pid: int, result: Looks) -> None:
    command = [sys.executable, "-m", "grpo_doctor", "attach", "--json"]
    done = subprocess.run(
        [*command, "--seconds", SECONDS_BETWEEN, str(pid)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if not done.stdout:
        result.problems.append(done.stderr.strip())
        return
    document = json.loads(done.stdout)
    state = document["verdict"]["state"]
    result.states[state] = result.states.get(state, 0) + 1
    result.max_pause_ms = max(result.max_pause_ms, document["cost"]["max_pause_ms"])


def _read(rank: int, pid: int, result: Looks) -> None:
    """A ring that records at each try is no problem: it says so, and the job goes on."""
    for dump in read_recorders(Member(pid, 0, 0, "rank", "python", "", rank=rank)):
        if not dump.data and "at work each time" not in dump.problem:
            result.problems.append(dump.problem)


def _resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def _steps_done(folder: Path) -> int:
    try:
        return int((folder / "steps").read_text() or 0)
    except FileNotFoundError:
        return 0


@contextmanager
def _job(folder: Path, steps: int = 0) -> Iterator[tuple[list[int], subprocess.Popen[str]]]:
    """Ranks at work, until `folder`/end is there or after so many steps."""
    command = [
        sys.executable,
        "-m",
        "tests.many_looks",
        "--job",
        str(folder),
        "--steps",
        str(steps),
    ]
    environment = {**os.environ, "TORCH_FR_BUFFER_SIZE": str(RING), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout
    pids = [int(number) for number in process.stdout.readline().split()]
    try:
        yield pids, process
    finally:
        for pid in pids if process.poll() is None else ():
            os.kill(pid, 9)
        process.communicate()


def _run_job(folder: Path, steps: int) -> None:
    import torch.distributed  # noqa: F401 - once, before the ranks are forked

    pids = []
    for rank in range(RANKS):
        pids.append(os.fork())
        if not pids[-1]:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS))
            _train(folder, rank, steps)
            os._exit(0)
    sys.stdout.write(" ".join(map(str, pids)) + "\n")
    sys.stdout.flush()
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in pids))


def _train(folder: Path, rank: int, steps: int) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
    value, ends = torch.linspace(0, 1, 4096, dtype=torch.float64), torch.zeros(1)
    took_ms, count = array("f", bytes(4 * MOST_STEPS)), 0  # of one size from the start
    while count < (steps or MOST_STEPS) and not ends.item():
        began = time.monotonic()
        part = torch.sin(value * (rank + 1) + count)
        dist.all_reduce(part)
        value = value + part / RANKS
        time.sleep(0.005)
        took_ms[count] = (time.monotonic() - began) * 1e3
        count += 1
        if count % ASKED_EVERY == 0 and not steps:
            ends = torch.tensor([float((folder / "end").exists())])
            dist.all_reduce(ends, dist.ReduceOp.MAX)
            if not rank:
                (folder / "steps").write_text(str(count))
    digest = hashlib.sha256(value.numpy().tobytes()).hexdigest()
    said: dict[str, Any] = {"digest": digest, "ms": took_ms[:count].tolist()}
    (folder / f"{rank}.json").write_text(json.dumps(said))
    dist.barrier()
    dist.destroy_process_group()


def main() -> int:
    """0 if the job was as if nobody had looked."""
    parser = argparse.ArgumentParser(prog="python -m tests.many_looks", description=__doc__)
    parser.add_argument("--looks", type=int, default=100)
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        _run_job(arguments.job, arguments.steps)
    result = look_often(arguments.looks)
    sys.stdout.write(f"{json.dumps(vars(result), indent=1)}\n")
    sys.stdout.write("harmless\n" if result.harmless else "NOT harmless\n")
    return not result.harmless


if __name__ == "__main__":
    sys.exit(main())
