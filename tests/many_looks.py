"""Many looks in a row at one working gloo job: `python -m tests.many_looks --looks 1000`.

Each look is a whole `attach` in a process of its own, and then the flight recorder of each rank is
read, as of a job that stands; every ten looks the job is left alone for a while. Says by rank how
its memory grew, how long steps were with looks and in the rests, and whether the job computed to
the last bit what an undisturbed one computes. 0 if nothing grew and nothing else came out.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import pkgutil
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

import grpo_doctor.hang
from grpo_doctor import cli
from grpo_doctor_probes.evidence import Member
from grpo_doctor_probes.flight import read_recorders

RANKS = 2
RING = 200  # entries: full before the first look
WARM_UP = 300  # steps
MOST_STEPS = 1 << 20
LOOKS_BETWEEN_RESTS = 10
REST_S = 3.0
PARTS = (0.5, 0.99, 0.999, 1.0)  # of the steps, that took at most so long
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
    growth_at_rests_kb: list[list[int]] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    max_pause_ms: float = 0.0
    steps: int = 0
    looked_at_ms: list[float] = field(default_factory=list)  # by `PARTS`
    left_alone_ms: list[float] = field(default_factory=list)
    same_results: bool = False

    @property
    def harmless(self) -> bool:
        """Whether the job is as if nobody had looked."""
        flat = max(self.growth_kb, default=0) <= MOST_GROWTH_KB
        return flat and self.same_results and not self.problems


def look_often(looks: int) -> Looks:
    """Starts the job, looks so often, ends it, and computes the same again undisturbed."""
    result = Looks(looks)
    for module in pkgutil.walk_packages(grpo_doctor.hang.__path__, "grpo_doctor.hang."):
        importlib.import_module(module.name)
    with tempfile.TemporaryDirectory() as name, _job(Path(name)) as (pids, process):
        folder = Path(name)
        while _steps_done(folder) < WARM_UP:
            assert process.poll() is None, "the job ended before the first look"
            time.sleep(0.1)
        before, rests = [_resident_kb(pid) for pid in pids], []
        began = time.monotonic()
        for look in range(looks):
            if look % LOOKS_BETWEEN_RESTS == 0:
                result.growth_at_rests_kb.append(_growth_kb(pids, before))
                rests.append(_rest(folder))
            _attach(pids[0], result)
            for rank, pid in enumerate(pids):
                _read(rank, pid, result)
        result.seconds = round(time.monotonic() - began, 1)
        result.growth_kb = _growth_kb(pids, before)
        last_step = _steps_done(folder)
        (folder / "end").touch()
        assert process.wait(timeout=120) == 0, "the job failed"
        took_ms = json.loads((folder / "0.json").read_text())["ms"]
        result.steps = len(took_ms)
        alone = [ms for begin, end in rests for ms in took_ms[begin:end]]
        looked_at = [
            ms
            for (_, begin), (end, _) in zip(rests, [*rests[1:], (last_step, 0)])
            for ms in took_ms[begin:end]
        ]
        result.left_alone_ms, result.looked_at_ms = _parts(alone), _parts(looked_at)
        digests = [json.loads((folder / f"{n}.json").read_text())["digest"] for n in range(RANKS)]
    with tempfile.TemporaryDirectory() as name, _job(Path(name), result.steps) as (_, process):
        assert process.wait(timeout=3600) == 0
        undisturbed = [
            json.loads((Path(name) / f"{n}.json").read_text())["digest"] for n in range(RANKS)
        ]
    result.same_results = digests == undisturbed
    return result


def _rest(folder: Path) -> tuple[int, int]:
    """The steps of a while without looks; what was counted last may be `ASKED_EVERY` old."""
    begin = _steps_done(folder) + ASKED_EVERY
    time.sleep(REST_S)
    return begin, _steps_done(folder)


def _parts(took_ms: list[float]) -> list[float]:
    ordered = sorted(took_ms)
    return [round(ordered[max(0, int(part * len(ordered)) - 1)], 2) for part in PARTS]


def _growth_kb(pids: list[int], before: list[int]) -> list[int]:
    return [_resident_kb(pid) - kb for pid, kb in zip(pids, before)]


def _attach(pid: int, result: Looks) -> None:
    """In a copy of this process, which has read our code already: a look is short then."""
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if not child:
            os.dup2(file.fileno(), 1)
            sys.stdout = os.fdopen(1, "w", closefd=False)  # a test runner has its own
            code = cli.main(["attach", "--json", "--seconds", SECONDS_BETWEEN, str(pid)])
            sys.stdout.flush()
            os._exit(code)
        os.waitpid(child, 0)
        file.seek(0)
        said = file.read()
    if not said:
        result.problems.append("a look said nothing")
        return
    document = json.loads(said)
    state = document["verdict"]["state"]
    result.states[state] = result.states.get(state, 0) + 1
    result.max_pause_ms = max(result.max_pause_ms, document["cost"]["max_pause_ms"])


def _read(rank: int, pid: int, result: Looks) -> None:
    """A ring that records at each try is no problem: it says so, and the job goes on."""
    for dump in read_recorders(Member(pid, 0, 0, "rank", "python", "", rank=rank)):
        if not dump.data and not dump.recorded_meanwhile:
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
        time.sleep(0 if steps else 0.005)
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
