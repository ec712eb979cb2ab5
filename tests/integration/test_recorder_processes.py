"""The recorder inside real programs: forked, killed, stopped, on a full disk, on every Python."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_doctor.trace.read import load
from grpo_doctor_probes.procs import live
from grpo_doctor_probes.record import layout
from tests.recording import (
    PATIENCE_S,
    PROBES,
    VERSIONS,
    environment,
    interpreter,
    read_rows,
    run_job,
    spans_file,
    start_job,
)

EVERYTHING = """
import asyncio, logging, sys, threading
# `-X dev` makes asyncio complain of a task that a busy machine holds up for 100 ms.
logging.getLogger("asyncio").setLevel(logging.ERROR)
from grpo_doctor_probes import *

@phase("reward", kind="accuracy")
def reward():
    pass

@phase("rollout/request")
async def request(n):
    for _ in range(n):
        await asyncio.sleep(0)

@phase("dataload")
def batches():
    yield 1

async def rollout():
    await asyncio.gather(*(request(n) for n in range(5)))

with phase("init"):
    describe("trl", "1.16.0", config={"lr": float("nan")}, versions={"torch": "2.13.0"})
for number in range(3):
    with step(number):
        list(batches())
        with phase("rollout"):
            asyncio.run(rollout())
        reward()
        thread = threading.Thread(target=reward)
        thread.start()
        thread.join()
        counter("rollout/tokens", 100.0 * number)
        instant("oom")
        metrics(number, {"loss": 1.0 / (number + 1), "kl": float("inf")})
print("done")
sys.exit(7)
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_every_python_records_everything(tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    done = run_job(EVERYTHING, tmp_path, python=python, options=("-X", "dev", "-W", "error"))
    assert (done.returncode, done.stdout, done.stderr) == (7, "done\n", "")
    trace = load(tmp_path)
    header = live.read_header(spans_file(tmp_path))
    assert (header.errors, header.dropped, header.open_spans) == (0, 0, ())
    assert header.closed_ns > 0
    assert trace.loss.notes == ()
    names = [trace.names[n] for n in trace.spans.name]
    counts = {"init": 1, "step": 3, "dataload": 3, "rollout": 3, "reward": 6, "rollout/request": 15}
    assert {name: names.count(name) for name in counts} == counts
    assert trace.metrics.values["kl"].tolist() == [float("inf")] * 3
    assert trace.run.framework == "trl"


IN_THE_SAME_STATE = """
import random, sys
random.seed(5)
before = random.getstate()
modules, path, hooks = set(sys.modules), list(sys.path), sys.excepthook
from grpo_doctor_probes import *
with step(0), phase("rollout"):
    metrics(0, {"loss": 1.0})
describe("trl", config={"a": 1})
watch_collectives()
assert random.getstate() == before
assert (sys.path, sys.excepthook) == (path, hooks)
print(*sorted({m.partition(".")[0] for m in set(sys.modules) - modules}))
"""


@pytest.mark.parametrize("recorded", [True, False])
def test_the_host_stays_as_it_was_and_gets_nothing_heavy(tmp_path: Path, recorded: bool) -> None:
    done = run_job(IN_THE_SAME_STATE, tmp_path if recorded else None)
    assert (done.returncode, done.stderr) == (0, "")
    added = set(done.stdout.split())
    assert added <= {"grpo_doctor_probes", *sys.stdlib_module_names}
    assert not added & {"asyncio", "dataclasses", "inspect", "logging", "multiprocessing", "typing"}
    assert not added & {"pathlib", "subprocess", "socket", "ctypes", "unittest", "urllib"}


def test_importing_alone_loads_next_to_nothing(tmp_path: Path) -> None:
    done = run_job("import sys, grpo_doctor_probes; print(*sys.modules)", tmp_path)
    assert not set(done.stdout.split()) & {"json", "re", "threading", "functools", "typing"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit(3)", 3),
        ("raise RuntimeError('the host')", 1),
        ("os._exit(9)", 9),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("pass", 0),
    ],
)
def test_exit_codes_are_the_hosts(tmp_path: Path, end: str, code: int) -> None:
    begin = "import os, signal, sys\nfrom grpo_doctor_probes import phase\nwith phase('a'):\n    "
    program = begin + end
    done = run_job(program, tmp_path)
    assert done.returncode == code
    assert ("the host" in done.stderr) == (code == 1)
    header = live.read_header(spans_file(tmp_path))
    assert bool(header.closed_ns) == (code in {0, 1, 3})
    if code < 0 or code == 9:
        assert [o.name for o in header.open_spans] == ["a"]
    else:
        names = [r.name for r in read_rows(spans_file(tmp_path))]
        failed = ["error/a/RuntimeError: the host"] if "raise" in end else []
        assert [name for name in names if "SystemExit" not in name] == [*failed, "a"]


NESTED = """
import sys, time
from grpo_doctor_probes import phase, step
for number in range(20_000):
    with step(number), phase("rollout"):
        pass
with step(20_000), phase("rollout"), phase("rollout/generate", engine="vllm"):
    print("inside", flush=True)
    {wait}
"""


@pytest.fixture
def inside(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A program that is in the middle of nested spans, and stays there."""
    job = start_job(NESTED.format(wait=request.param), tmp_path)
    assert job.stdout is not None
    assert job.stdout.readline() == "inside\n"
    yield job
    job.kill()
    job.communicate(timeout=PATIENCE_S)


def stack(run_dir: Path) -> list[str]:
    return [o.name for o in live.read_header(spans_file(run_dir)).open_spans]


WAITS = {
    "sleeping": "time.sleep(600)",
    "in a C call that holds the GIL": "__import__('ctypes').PyDLL(None).pause()",
}


@pytest.mark.parametrize("inside", WAITS.values(), ids=WAITS, indirect=True)
def test_a_hung_program_is_readable_live(tmp_path: Path, inside: subprocess.Popen[str]) -> None:
    assert stack(tmp_path) == ["step", "rollout", "rollout/generate"]
    trace = load(tmp_path)
    assert [p.state for p in trace.processes] == ["open"]
    open_spans = trace.spans.select(trace.spans.open)
    assert [trace.names[n] for n in open_spans.name] == ["step", "rollout", "rollout/generate"]
    assert open_spans.depth.tolist() == [0, 1, 2]
    assert open_spans.value[0] == 20_000
    assert trace.args[open_spans.args[2]] == {"engine": "vllm"}
    assert inside.poll() is None


@pytest.mark.parametrize("inside", ["time.sleep(600)"], indirect=True)
def test_a_stopped_and_then_killed_program(tmp_path: Path, inside: subprocess.Popen[str]) -> None:
    inside.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, inside.pid, os.WSTOPPED)
    assert stack(tmp_path) == ["step", "rollout", "rollout/generate"]
    inside.send_signal(signal.SIGKILL)
    inside.wait(PATIENCE_S)
    assert stack(tmp_path) == ["step", "rollout", "rollout/generate"]
    rows = read_rows(spans_file(tmp_path))
    steps = [int(r.value) for r in rows if r.kind == "step"]
    assert steps == list(range(20_000)), "every span that ended is there"


FORKED = """
import multiprocessing, os, sys
from grpo_doctor_probes import phase, step

def child(number):
    with phase(f"child {number}"):
        pass

with phase("init"):
    pass
with step(1), phase("dataload"):
    pid = os.fork()
    if pid == 0:
        child(0)
        sys.exit(0)
    os.waitpid(pid, 0)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=child, args=(n,)) for n in (1, 2)]
    silent = context.Process(target=print)
    for worker in (*workers, silent):
        worker.start()
    for worker in (*workers, silent):
        worker.join()
        assert worker.exitcode == 0
with phase("after"):
    pass
"""


def test_forked_children_have_files_of_their_own(tmp_path: Path) -> None:
    done = run_job(FORKED, tmp_path, env={"RANK": "2"})
    assert (done.returncode, done.stderr.strip()) == (0, "")
    files = sorted((tmp_path / "ranks").glob("*.spans"))
    assert len(files) == 4, "one that records nothing makes no file"
    parent = spans_file(tmp_path, rank=2)
    names = [r.name for r in read_rows(parent) if not r.name.startswith("gc/")]
    assert names == ["init", "dataload", "step", "after"]
    children = [f for f in files if f != parent]
    assert sorted(r.name for f in children for r in read_rows(f)) == [
        f"child {n}" for n in range(3)
    ]
    headers = [live.read_header(f) for f in files]
    assert {h.rank for h in headers} == {2}
    assert all(h.closed_ns for h in headers), "also those that multiprocessing ends"
    trace = load(tmp_path)
    assert [p.role for p in trace.processes] == ["trainer", "worker", "worker", "worker"]
    assert trace.loss.missing_ranks == ()


def test_a_child_of_a_recording_that_was_started_by_hand(tmp_path: Path) -> None:
    code = """
    import os, sys
    from grpo_doctor_probes import phase, start
    start(sys.argv[1], rank=5)
    if os.fork() == 0:
        with phase("child"):
            pass
        sys.exit()
    os.wait()
    assert "GRPO_DOCTOR_RUN_DIR" not in os.environ
    """
    done = run_job(code, None, arguments=[str(tmp_path)])
    assert (done.returncode, done.stderr) == (0, "")
    assert [live.read_header(f).rank for f in (tmp_path / "ranks").glob("*.spans")] == [5, 5]


FILL = """
import gc, os, sys
gc.disable()  # a long collection has rows of its own
from grpo_doctor_probes import metrics, phase, step
from grpo_doctor_probes.record import recorder
folder = sys.argv[1]
def record(count, first):
    for number in range(first, first + count):
        with step(number), phase("rollout"):
            pass
record(40_000, 0)
metrics(1, {"loss": 1.0})
print("full", flush=True)
sys.stdin.readline()
recorder.ACTIVE.file._retry_at_ns = 0
record(100, 100_000)
metrics(2, {"loss": 1.0})
"""


def check_recovery(job: subprocess.Popen[str], run_dir: Path) -> None:
    """After "full": what was lost is counted, and what came after there was room is there."""
    _, err = job.communicate("go on\n", timeout=PATIENCE_S)
    assert (job.returncode, err) == (0, "")
    path = spans_file(run_dir)
    rows = read_rows(path)
    header = live.read_header(path)
    assert len(rows) + header.dropped == 80_200
    steps = [int(r.value) for r in rows if r.kind == "step"]
    assert steps[-100:] == list(range(100_000, 100_100))
    assert header.open_spans == ()


def test_a_limit_on_file_sizes_is_a_full_disk(tmp_path: Path) -> None:
    limit = layout.HEADER_BYTES + 3 * layout.SEGMENT_BYTES
    job = start_job(
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, -1))" + FILL,
        tmp_path,
        arguments=[str(tmp_path)],
    )
    assert job.stdout is not None
    assert job.stdout.readline() == "full\n"
    assert live.read_header(spans_file(tmp_path)).dropped > 0
    resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, -1))
    check_recovery(job, tmp_path)


def test_two_runs_into_one_folder_keep_both(tmp_path: Path) -> None:
    for name in ("first", "second"):
        code = f"from grpo_doctor_probes import phase\nwith phase({name!r}): pass"
        assert run_job(code, tmp_path).returncode == 0
    files = sorted((tmp_path / "ranks").glob("*.spans"))
    assert sorted(read_rows(f)[0].name for f in files) == ["first", "second"]


def test_without_a_run_directory_nothing_is_written_and_nothing_said(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING],
        env=environment(None),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "done\n", "")
    assert list(tmp_path.iterdir()) == []
    assert PROBES.is_dir()
