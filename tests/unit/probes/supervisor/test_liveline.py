"""The live line sees what ranks in other processes do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from grpo_doctor_probes.supervisor.liveline import Now, Watch, compose
from grpo_doctor_probes.supervisor.standing import Headers

RANK = """
import sys
from grpo_doctor_probes import phase, step
for number in (4, 5):
    with step(number):
        with phase("train"), phase("rollout"), phase("rollout/generate"):
            print("in", flush=True); sys.stdin.readline()
"""


def test_steps_phases_and_the_oldest_span_are_seen(tmp_path: Path) -> None:
    environment = {**os.environ, "GRPO_DOCTOR_RUN_DIR": str(tmp_path), "RANK": "3"}
    rank = subprocess.Popen(
        [sys.executable, "-c", RANK], env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert rank.stdin
    assert rank.stdout
    watch, headers = Watch(), Headers(tmp_path)
    rank.stdout.readline()
    first = watch.look(headers.read())
    assert first.step == 4
    assert first.ranks == 1
    assert first.slowest is not None
    assert first.slowest[:2] == (3, "rollout/generate")
    assert first.step_time_s is None
    rank.stdin.write("\n")
    rank.stdin.flush()
    rank.stdout.readline()
    second = watch.look(headers.read())
    assert second.step == 5
    assert second.step_time_s is not None
    assert dict(second.shares) == {"rollout": 1.0}
    rank.communicate("\n")
    assert watch.look(headers.read()).slowest is None


def test_the_line_names_what_is_known() -> None:
    now = Now(12, 3.456, (("rollout", 0.61), ("train", 0.3)), (3, "rollout/generate", 12.4), 8)
    line = compose(now, {"gpu.util": 43.2}, 125.0)
    assert line == (
        "grpo-doctor 2:05 · step 12 · 3.46 s/step · rollout 61% train 30% · GPU 43% · "
        "rank 3 in rollout/generate 12 s"
    )
    waiting = compose(Now(None, None, (), None, 0), {"host.cpu": 7.0}, 3.0)
    assert waiting == "grpo-doctor 0:03 · CPU 7% · waiting for the first rank to report"
