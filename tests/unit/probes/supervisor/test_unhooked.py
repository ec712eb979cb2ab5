"""Processes that the hooks did not get into, of real ones: who is named, why, and who is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_doctor_probes.supervisor.launch import STARTUP, plan
from grpo_doctor_probes.supervisor.unhooked import PERIOD_NS, SURE_NS, HookWatch, explain

# Loads what passes for torch; with `fork`, a child of its own that has it too.
TRAIN = """
import mmap, os, sys
file = open(sys.argv[1])
torch = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
if "fork" in sys.argv:
    child = os.fork()
    if child:
        print(child, end=" ")
        sys.stdout.flush()
print(os.getpid(), flush=True)
sys.stdin.read()
"""

OWN = """mkdir own; touch own/sitecustomize.py
export PYTHONPATH=$PWD/own:$PYTHONPATH
exec {python} train.py {torch}
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of an environment without grpo-doctor."""
    folder = tmp_path_factory.mktemp("other")
    venv.create(folder, with_pip=False, symlinks=True)
    return str(folder / "bin" / "python")


class Job:
    """A job of real processes, and what was said of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, list[str]()
        self.watch = HookWatch(folder, self.said.append)
        self.script = folder / "train.py"
        self.script.write_text(TRAIN)
        self.torch = folder / "torch" / "lib" / "libtorch.so"
        self.torch.parent.mkdir(parents=True)
        self.torch.write_text("machine code")
        self.environment = dict(plan(["true"], folder).environment)
        self.started: list[subprocess.Popen[str]] = []
        self.now_ns = 0

    def start(self, *words: str, lines: int = 1, name: str = "") -> list[int]:
        """Starts a command; the processes that say that they have loaded torch."""
        command = [name or words[0], *words[1:]]
        process = subprocess.Popen(
            command, executable=words[0], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=self.environment, cwd=self.folder,
        )  # fmt: skip
        self.started.append(process)
        assert process.stdout is not None
        return [int(pid) for _ in range(lines) for pid in process.stdout.readline().split()]

    def look(self, pids: list[int], ranks: dict[int, int] | None = None) -> None:
        """For as long as is sure."""
        for _ in range(2 + SURE_NS // PERIOD_NS):
            self.watch.look(pids, ranks or {}, self.now_ns)
            self.now_ns += PERIOD_NS

    def written(self) -> list[int]:
        file = self.folder / "unhooked.jsonl"
        rows = file.read_text().splitlines() if file.exists() else []
        return [json.loads(row)["pid"] for row in rows]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    running = Job(tmp_path)
    yield running
    for process in running.started:
        process.communicate("")


@pytest.mark.parametrize(
    ("script", "reason", "remedy"),
    [
        ("export PYTHONPATH=/src\nexec {python} train.py {torch}",
         "PYTHONPATH was replaced by /src", "Keep `:$PYTHONPATH` at the end"),
        ("unset PYTHONPATH\nexec {python} train.py {torch}",
         "PYTHONPATH was unset", "{python} -m pip install grpo-doctor"),
        ("{python} -I train.py {torch}", "started with -I", "Start it without -I, or install"),
        ("{python} -uE train.py {torch}", "started with -E", "{python} -m pip install"),
        ("{python} -S train.py {torch}", "started with -S", "Start it without -S"),
        ("env -i {python} train.py {torch}", "GRPO_DOCTOR is missing", "Pass GRPO_DOCTOR,"),
        (OWN, "own/sitecustomize.py comes first", "Put $PYTHONPATH"),
    ],
)  # fmt: skip
def test_a_rank_without_hooks_is_named_with_the_reason_and_the_remedy(
    script: str, reason: str, remedy: str, job: Job, python: str
) -> None:
    names = {"python": python, "torch": str(job.torch)}
    (job.folder / "run.sh").write_text(script.format(**names))
    (pid,) = job.start("/bin/bash", "run.sh")
    job.look([job.started[0].pid, pid], {pid: 1})
    (line,) = job.said
    assert line.startswith(f"no phases of rank 1 (pid {pid}) are recorded: ")
    assert reason in line
    assert remedy.format(**names) in line
    assert job.written() == [pid]


@pytest.mark.parametrize("kept", ["", "export PYTHONPATH=/src:$PYTHONPATH\n"])
@pytest.mark.parametrize("forks", ["", "fork"])
def test_who_has_the_hooks_is_not_named(kept: str, forks: str, job: Job, python: str) -> None:
    (job.folder / "run.sh").write_text(f"{kept}exec {python} train.py {job.torch} {forks}")
    pids = job.start("/bin/bash", "run.sh", lines=2 if forks else 1)
    job.look(pids, {pids[0]: 0})
    assert (job.said, job.written()) == ([], [])


@pytest.mark.parametrize(
    ("name", "loads_torch", "own"),
    [
        *((name, True, False) for name in ("VLLM::EngineCore", "VLLM::Worker_TP0",
                                            "sglang::scheduler", "ray::RewardLoopWorker")),
        ("git", False, False),
        ("", True, True),  # an environment that has the package needs no path
    ],
)  # fmt: skip
def test_helpers_and_what_has_the_package_are_not_accused(
    name: str, job: Job, python: str, *, loads_torch: bool, own: bool
) -> None:
    job.environment["PYTHONPATH"] = "/src"
    torch = str(job.torch if loads_torch else job.script)
    words = [sys.executable, "-I"] if own else [python]
    job.look(job.start(*words, "train.py", torch, name=name))
    assert job.said == []


def test_forks_and_others_with_the_same_reason_are_not_said_again(job: Job, python: str) -> None:
    job.environment["PYTHONPATH"] = "/src"
    forking = job.start(python, "train.py", str(job.torch), "fork", lines=2)
    (other,) = job.start(python, "train.py", str(job.torch))
    (short,) = job.start(python, "train.py", str(job.torch))
    job.watch.look([short], {}, 0)
    job.started[-1].communicate("")  # who ends soon is not named
    pids = sorted({*forking, other, short})
    job.look(pids, {job.started[0].pid: 0, other: 1})
    assert len(job.said) == 1
    assert sorted(job.written()) == sorted([job.started[0].pid, other])


@pytest.mark.parametrize("program", ["python", "ray::WorkerDict", ""])
@pytest.mark.parametrize("folder", ["/opt/env", ""])
def test_the_remedy_names_the_python_where_that_is_known(program: str, folder: str) -> None:
    path = os.pathsep.join(("/src", str(STARTUP)))
    variables = {"GRPO_DOCTOR": "1", "VIRTUAL_ENV": folder, "PYTHONPATH": path}
    command = (program, "-m", "x", "-I") if program else ()
    reason, remedy = explain(command, variables, lambda _: False)
    python = f"{folder}/bin/python -m " if folder else ": "
    assert f"{python}pip install grpo-doctor" in remedy
    assert reason == "the reason is unknown"
