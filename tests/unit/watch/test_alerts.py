"""What is said elsewhere, to whom, and that it is said once."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from grpo_doctor.watch.alerts import Alerts
from grpo_doctor_reports.schema.watch import FindingNow, Snapshot, VerdictNow

WAIT_S = 30.0
Posted = SimpleQueue[dict[str, Any]]


def snapshot(state: str = "running", *verdicts: int, exit_code: int | None = None) -> Snapshot:
    """A run with verdicts of these moments."""
    found = [VerdictNow("stuck", f"Rank {number} waits", "", number) for number in verdicts]
    return Snapshot("r1", state, 0.0, exit_code=exit_code, verdicts=found)


@pytest.fixture
def hook() -> Iterator[tuple[str, Posted]]:
    """The address of a webhook, and what was posted to it."""
    posted: Posted = SimpleQueue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200 if self.path == "/hook" else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", posted
        server.shutdown()


def test_news_are_said_once(hook: tuple[str, Posted]) -> None:
    address, posted = hook
    alerts = Alerts([f"{address}/hook"], pytest.fail)
    for now in (
        snapshot("running", 1),  # what is known at first is no news
        snapshot("running", 1),
        snapshot("running", 1, 2),
        snapshot("running", 1, 2),
        snapshot("failed", 1, 2, exit_code=1),
        snapshot("failed", 1, 2, exit_code=1),
        snapshot("failed", 1, 2, 3, exit_code=1),  # the watchdog's last look
    ):
        alerts.hear(now)
    texts = sorted(posted.get(timeout=WAIT_S)["text"] for _ in range(3))
    assert texts == ["r1: Rank 2 waits", "r1: Rank 3 waits", "r1: the run failed (exit code 1)"]


def test_a_severe_finding_is_said_once_unless_the_first_report_has_it(
    hook: tuple[str, Posted],
) -> None:
    address, posted = hook
    alerts = Alerts([f"{address}/hook"], pytest.fail)
    known = FindingNow("GD004", "high", "One rank is slow")
    new = FindingNow("GD064", "high", "A metric is NaN")
    mild = FindingNow("GD033", "medium", "Rewards are slow")
    for findings in (None, None, [known], [], [known, mild], [new, known], [new], [], [new]):
        now = snapshot()
        now.findings = findings
        alerts.hear(now)
    alerts.hear(snapshot("finished"))
    texts = sorted(posted.get(timeout=WAIT_S)["text"] for _ in range(2))
    assert texts == ["r1: A metric is NaN (GD064)", "r1: the run finished"]
    assert posted.empty()


def test_a_command_gets_the_message_on_its_input(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    alerts = Alerts([f"cat > {fifo}"], pytest.fail)
    alerts.hear(snapshot())
    alerts.hear(snapshot("finished"))
    message = json.loads(fifo.read_text())
    assert message == {"text": "r1: the run finished", "state": "finished", "run": "r1"}


@pytest.mark.parametrize("target", ["exit 3", "http://127.0.0.1:1/x", "http://[", "{hook}/wrong"])
def test_a_target_that_fails_is_named(target: str, hook: tuple[str, Posted]) -> None:
    said: SimpleQueue[str] = SimpleQueue()
    alerts = Alerts([target.format(hook=hook[0])], said.put)
    alerts.hear(snapshot())
    alerts.hear(snapshot("killed"))
    assert said.get(timeout=WAIT_S).startswith("--alert: ")
