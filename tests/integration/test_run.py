"""`grpo-doctor run` around real jobs: streams, signals, exit codes, what a crash leaves."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.trace.read import load
from grpo_doctor_probes.procs.procstat import state_of

pytestmark = pytest.mark.slow
PATIENCE_S = 120

RECORDED_JOB = """
import os, sys, time
from grpo_doctor_probes import phase, step
ready = sys.argv[1]
with phase("init"):
    pass
for number in range(3):
    with step(number):
        with phase("rollout"):
            time.sleep(0.01)
        with phase("train"):
            time.sleep(0.01)
with step(3), phase("rollout"), phase("rollout/generate"):
    open(ready, "w").close()
    time.sleep(600)
"""


def run_command(*options: str, job: Sequence[str]) -> list[str]:
    """The command line of a recorded job."""
    return [sys.executable, "-m", "grpo_doctor", "run", *options, "--", *job]


def test_a_low_limit_of_open_files_is_the_jobs_alone(tmp_path: Path) -> None:
    command = run_command(
        "-o", str(tmp_path / "run"), "--no-report", job=["sh", "-c", "ulimit -Sn"]
    )
    limited = ["bash", "-c", 'ulimit -Sn 16; exec "$@"', "bash", *command]
    ran = subprocess.run(limited, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ran.returncode, ran.stdout) == (0, "16\n"), ran.stderr
    assert "internal error" not in ran.stderr


def wait_for(condition: Callable[[], Any]) -> Any:
    """Polls until `condition` is true; fails the test after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError("waited in vain")


def start_recorded(tmp_path: Path) -> tuple[subprocess.Popen[str], Path]:
    """A recorded job that hangs in its fourth step's rollout."""
    folder, ready = tmp_path / "run", tmp_path / "ready"
    command = run_command("-o", str(folder), job=[sys.executable, "-c", RECORDED_JOB, str(ready)])
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for(ready.exists)
    return process, folder


def job_pid(folder: Path) -> int:
    return int(json.loads((folder / "run.json").read_text())["job_pid"])


def alive(pid: int) -> bool:
    return state_of(f"/proc/{pid}") not in ("", "Z")


def test_streams_pass_through_and_the_exit_code_is_the_jobs(tmp_path: Path) -> None:
    job = "import sys; print(sys.stdin.read().upper()); sys.stderr.write('to stderr'); sys.exit(7)"
    done = subprocess.run(
        run_command("-o", str(tmp_path / "run"), job=[sys.executable, "-c", job]),
        input="words", capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 7
    assert done.stdout == "WORDS\n"
    assert "to stderr" in done.stderr
    assert "exit code 7" in done.stderr
    assert (tmp_path / "run" / "trace.json").exists()
    assert (tmp_path / "run" / "report.html").exists()


def test_a_command_without_phases_is_all_init(tmp_path: Path) -> None:
    done = subprocess.run(
        run_command("-o", str(tmp_path / "run"), "--json", job=["sleep", "1.5"]),
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    result = json.loads(done.stdout)
    assert result["exit"] == {"state": "finished", "code": 0}
    trace = load(Path(result["trace"]))
    assert [p.role for p in trace.processes] == ["job"]
    assert trace.names == ("init",)
    assert 1.5e9 <= trace.spans.end_ns[0] - trace.spans.start_ns[0] <= 30e9
    assert any(series.name == "host.cpu" for series in trace.series)


# Passes for a script that loads torch; ends with an error once it was found without hooks, or soon.
PLAIN_SCRIPT = """
import mmap, os, sys, time
file = open("torch/lib/libtorch.so")
torch = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until and not os.path.exists("run/unhooked.jsonl"):
    time.sleep(0.05)
raise ValueError("boom")
"""


@pytest.mark.parametrize("keeps", [True, False])
def test_a_script_that_replaces_the_path_is_told_and_one_that_keeps_it_has_its_error(
    keeps: bool, tmp_path: Path
) -> None:
    venv.create(tmp_path / "other", with_pip=False, symlinks=True)
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "lib" / "libtorch.so").write_text("machine code")
    (tmp_path / "train.py").write_text(PLAIN_SCRIPT)
    (tmp_path / "train.sh").write_text(
        f"export PYTHONPATH=/src{':$PYTHONPATH' if keeps else ''}\n"
        f"exec other/bin/python train.py {5 if keeps else PATIENCE_S}\n"
    )
    done = subprocess.run(
        run_command("-o", "run", "--json", job=["bash", "train.sh"]),
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    lost = [line for line in done.stderr.splitlines() if "no phases of" in line]
    assert len(lost) == (not keeps)
    findings = {
        finding["id"]: finding["title"]
        for finding in json.loads((tmp_path / "run" / "findings.json").read_text())["findings"]
    }
    if keeps:
        assert findings["GD074"] == "The script ended the run: ValueError: boom"
    else:
        assert "PYTHONPATH was replaced by /src" in lost[0]
        assert findings["GD075"] == "PYTHONPATH was replaced by /src"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_the_job(tmp_path: Path, number: signal.Signals) -> None:
    caught, ready = tmp_path / "caught", tmp_path / "ready"
    job = (
        "import signal, sys, time\n"
        "def caught(number, frame):\n"
        f"    open({str(caught)!r}, 'w').write(str(int(number))); sys.exit(3)\n"
        f"signal.signal({int(number)}, caught); open({str(ready)!r}, 'w').close(); time.sleep(600)"
    )
    process = subprocess.Popen(
        run_command(
            "--no-report", "-o", str(tmp_path / "run"), job=[sys.executable, "-c", job]
        ),
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    wait_for(ready.exists)
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3
    assert caught.read_text() == str(int(number))
    expected = "failed" if number == signal.SIGUSR1 else "interrupted"
    assert load(tmp_path / "run").run.exit.state == expected
    assert "Traceback" not in errors


def test_a_killed_rank_leaves_its_open_spans(tmp_path: Path) -> None:
    process, folder = start_recorded(tmp_path)
    os.kill(job_pid(folder), signal.SIGKILL)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGKILL
    trace = load(folder / "trace.json")
    open_spans = trace.frame().query("open")
    assert list(open_spans["name"]) == ["step", "rollout", "rollout/generate"]
    assert trace.run.exit.state == "killed"
    assert trace.run.exit.signal == "SIGKILL"
    assert len(trace.frame().query("kind == 'step' and not open")) == 3
    assert "rollout/generate" in errors  # the digest says where it was
    assert (folder / "report.html").exists()


def test_the_job_goes_on_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    process, folder = start_recorded(tmp_path)
    pid = job_pid(folder)
    process.kill()
    process.wait(timeout=PATIENCE_S)
    try:
        assert alive(pid)
        trace = load(folder)
        assert trace.run.exit.state == "running"
        assert "rollout/generate" in set(trace.frame().query("open")["name"])
    finally:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid))
    assert load(folder).run.exit.state == "unknown"
    done = subprocess.run(
        [sys.executable, "-m", "grpo_doctor", "report", str(folder)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (folder / "trace.json").exists()
    assert (folder / "report.html").exists()


def test_the_job_has_the_terminal_and_the_live_line_stays_off_its_output(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    job = (
        "import os, sys, time\n"
        "print('tty', os.isatty(0), os.isatty(1), flush=True)\n"
        f"open({str(ready)!r}, 'w').close(); print('read', input(), flush=True); time.sleep(1.5)"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        command = run_command(
            "-o", str(tmp_path / "run"), "--no-report", job=[sys.executable, "-c", job]
        )
        os.execv(command[0], command)
    output = bytearray()
    typed = False
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                output += os.read(terminal, 65536)
            except OSError:
                break
        if ready.exists() and not typed:
            typed = True
            os.write(terminal, b"typed\n")
    _, status = os.waitpid(pid, 0)
    text = output.decode()
    assert os.waitstatus_to_exitcode(status) == 0, text
    assert "tty True True" in text
    assert "read typed" in text


def test_two_runs_never_share_a_folder(tmp_path: Path) -> None:
    command = run_command("-o", str(tmp_path), job=["true"])
    (tmp_path / "precious").write_text("x")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert (tmp_path / "precious").read_text() == "x"


def test_what_cannot_be_started_is_said(tmp_path: Path) -> None:
    command = run_command("-o", str(tmp_path / "run"), job=["no-such-program"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 127
    assert "no such command on the PATH" in done.stderr
    assert "Traceback" not in done.stderr


def test_secrets_are_not_written(tmp_path: Path) -> None:
    job = ["echo", "--api_key", "abc-very-secret", "https://me:pass-word@host/x", "hf_" + "a" * 30]
    done = subprocess.run(
        run_command("-o", str(tmp_path / "run"), job=job),
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file():
            text = path.read_bytes()
            for secret in (b"abc-very-secret", b"pass-word", b"hf_aaaaaaaa"):
                assert secret not in text, path
            assert path.stat().st_mode & 0o077 == 0, f"{path} can be read by others"


@pytest.mark.parametrize("stream", ["/dev/full", pytest.param("closed", marks=pytest.mark.heavy)])
def test_a_lost_terminal_costs_neither_the_report_nor_the_exit_code(
    tmp_path: Path, stream: str
) -> None:
    job = run_command("-o", str(tmp_path / "run"), job=["sh", "-c", "exit 7"])
    redirect = "2>&-" if stream == "closed" else f"2>{stream}"
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirect}', "sh", *job], timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 7
    assert (tmp_path / "run" / "trace.json").exists()
    assert (tmp_path / "run" / "report.html").exists()


def test_ctrl_c_ends_the_reporting_too(tmp_path: Path) -> None:
    process = subprocess.Popen(
        run_command("-o", str(tmp_path / "run"), job=["true"]),
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr
    for line in process.stderr:
        if "merging" in line:
            process.send_signal(signal.SIGINT)
            break
    errors = process.stderr.read()
    assert process.wait(timeout=PATIENCE_S) == 130
    assert "nothing that was recorded is lost" in errors
    assert "Traceback" not in errors
