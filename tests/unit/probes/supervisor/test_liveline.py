"""The live line sees what ranks in other processes do."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from grpo_doctor_probes import layout
from grpo_doctor_probes.live import Header
from grpo_doctor_probes.supervisor.liveline import Now, Watch, compose
from grpo_doctor_probes.supervisor.standing import Headers
from tests.unit.probes.supervisor.headers_in_code import header, span

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


def test_shares_and_step_time_are_of_the_same_steps_however_many_ranks() -> None:
    watch = Watch()
    for number in range(12):
        for phase in ("rollout", "rollout", "train", ""):
            ranks = [at(number, phase, rank) for rank in range(256)]
            now = watch.look(ranks)
    assert dict(now.shares) == {"rollout": 0.5, "train": 0.25, "unattributed": 0.25}


def test_old_steps_are_forgotten() -> None:
    watch = Watch()
    for number in range(400):
        for _ in range(4):
            now = watch.look([at(number, "rollout" if number < 200 else "train", 0)])
    assert dict(now.shares) == {"train": 1.0}


def at(number: int, phase: str, rank: int) -> Header:
    spans = [span("step", 0, layout.STEP), *([span(phase, 0)] if phase else [])]
    return replace(header(*spans, rank=rank), step=number)


def test_the_line_names_what_is_known() -> None:
    now = Now(12, 3.456, (("rollout", 0.61), ("train", 0.3)), (3, "rollout/generate", 12.4), 8)
    line = compose(now, {"gpu.util": 43.2}, 125.0)
    assert line == (
        "grpo-doctor 2:05 · step 12 · 3.46 s/step · rollout 61% train 30% · GPU 43% · "
        "rank 3 in rollout/generate 12 s"
    )
    waiting = compose(Now(None, None, (), None, 0), {"host.cpu": 7.0}, 3.0)
    assert waiting == "grpo-doctor 0:03 · CPU 7% · waiting for the first rank to report"
    just_now = compose(Now(1, None, (), (0, "all_reduce", 0.4), 2), {}, 3.0)
    assert just_now == "grpo-doctor 0:03 · step 1"
