"""`grpo-doctor run --join RUN`: a server, started before the run, is a role in its report."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_doctor.trace.read import load
from tests.integration.test_run import PATIENCE_S, run_command, wait_for
from tests.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

SERVER = """
import http.server, pathlib, signal, sys, threading, time
from grpo_doctor_probes import phase
folder = pathlib.Path(sys.argv[1])

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'vllm:num_requests_running{engine="0"} 3.0\\n')

    def log_message(self, *_): ...

front = http.server.HTTPServer(("127.0.0.1", int(sys.argv[3])), Page)
threading.Thread(target=front.serve_forever, daemon=True).start()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
(folder / "up").touch()
while not (folder / "ask").exists():
    time.sleep(0.01)
with phase("rollout/generate"):
    time.sleep(0.2)
(folder / "answer").touch()
time.sleep(600)
"""
TRAINER = """
import pathlib, sys, time
from grpo_doctor_probes import phase, step
folder = pathlib.Path(sys.argv[1])
with step(1), phase("rollout"):
    (folder / "ask").touch()
    while not (folder / "answer").exists():
        time.sleep(0.01)
"""


def samples_in(folder: Path) -> str:
    return "".join(path.read_text() for path in (folder / "hosts").iterdir())


def test_a_server_started_first_is_in_the_report_of_its_run(tmp_path: Path) -> None:
    run, mail = tmp_path / "run", tmp_path / "mail"
    mail.mkdir()
    words = [sys.executable, "-c", SERVER, str(mail), "--port", str(free_port())]
    joining = run_command("--join", str(run), job=words)
    server = subprocess.Popen(joining, stderr=subprocess.PIPE, text=True)
    try:
        wait_for((mail / "up").exists)
        command = run_command(
            "-o", str(run), "--no-report", job=[sys.executable, "-c", TRAINER, str(mail)]
        )
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        trace = load(run / "trace.json")
        assert sorted(p.role for p in trace.processes) == ["rollout", "trainer"]
        (engine,) = (p for p in trace.processes if p.role == "rollout")
        rows = trace.spans.select(trace.spans.process == engine.index)
        assert [trace.names[name] for name in rows.name] == ["rollout/generate"]
        assert 0.2e9 <= rows.end_ns[0] - rows.start_ns[0] <= trace.run.duration_ns
        assert "joined this run (" in trace.run.notes[-1]
        (own,) = (run / "joined").iterdir()
        wait_for(lambda: "server.requests_running" in samples_in(own))
    finally:
        server.send_signal(signal.SIGTERM)
        stderr = server.communicate(timeout=PATIENCE_S)[1]
    assert server.returncode == 7
    assert f"grpo-doctor report {run}" in stderr
    assert json.loads((own / "run.json").read_text())["end"]["code"] == 7
    assert "(exit code 7)" in load(run).run.notes[-1]
    second_run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second_run.returncode == 2
    assert "is not empty" in second_run.stderr
