"""Plays a round: starts its job, brings the faults about, attaches, keeps what was seen."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from tests.frameworks.cases import Case, Round
from tests.frameworks.environments import ENVIRONMENTS
from tests.frameworks.jobs import Job, Setting, running
from tests.frameworks.judges import Judge, judge

ROOT = Path(__file__).parents[2]
STEPS_BEFORE = 6  # that a job has done before its first fault
ATTACH_S = 180.0
PATIENCE = 4.0  # times as long as a job ever stood is a wait not unusual
_CAN_END = ("stop", "fifo", "data-fifo", "child", "print", "refused")


@dataclass(frozen=True)
class Answer:
    """What one `attach` said. `age_s` since the fault began; of a healthy job since its start."""

    framework: str
    case: str
    age_s: float
    state: str = ""
    cause: str = ""
    culprits: tuple[int, ...] = ()
    summary: str = ""
    confidence: float = 0.0
    seconds: float = 0.0
    bundle: str = ""
    error: str = ""


@dataclass(frozen=True)
class Player:
    """`bundles` is where evidence goes, `tool` the folder of the grpo_doctor that is asked."""

    bundles: Path
    tool: Path
    say: Callable[[str], None]
    seed: int = 0

    def play(self, setting: Setting, plan: Round) -> Iterator[Answer]:
        """One job through all its cases; ends early where the job does."""
        with judge() as server, running(setting) as job:
            yield from self._start(job, plan)
            if not job.wait_for_steps(STEPS_BEFORE):
                self.say(f"{plan.framework}: no steps, see {job.log}")
                return
            paused_s = 0.0
            for case in plan.cases:
                began = time.monotonic()
                yield from self._case(job, case, server, paused_s)
                self._take_back(job, case)
                paused_s = max(paused_s, case.seconds or time.monotonic() - began)

    def _start(self, job: Job, plan: Round) -> Iterator[Answer]:
        """Healthy moments: a third of them while it starts, the others between its steps."""
        began = time.monotonic()
        early, done = plan.healthy // 3, 0
        while done < plan.healthy and not job.ended:
            time.sleep(8.0 if done < early else 1.0 + done % 3)
            if done >= early and job.steps() < 1:
                continue
            yield self._attach(job, f"healthy {done}", time.monotonic() - began, None)
            done += 1

    def _case(self, job: Job, case: Case, server: Judge, paused_s: float) -> Iterator[Answer]:
        if not self._bring_about(job, case, server):
            self.say(f"{case.name}: did not come about, see {job.log}")
            return
        began = time.monotonic()
        for age_s in case.ages_s:
            time.sleep(max(0.0, began + age_s - time.monotonic()))
            if job.ended:
                self.say(f"{case.name}: the job has ended")
                return
            since_s = time.monotonic() - began
            yield self._attach(job, case.name, since_s, case, _seen(case, paused_s))

    def _bring_about(self, job: Job, case: Case, server: Judge) -> bool:
        if case.act in ("stop", "kill"):
            return _signal(job, case, signal.SIGSTOP if case.act == "stop" else signal.SIGKILL)
        if case.act == "print":
            os.kill(job.reader, signal.SIGSTOP)
        fifo = job.setting.folder / "fifo"
        with contextlib.suppress(FileExistsError):
            os.mkfifo(fifo)
        order: dict[str, Any] = {
            "act": case.act, "seconds": case.seconds, "judge": server.port,
            "silent": server.silent, "fifo": str(fifo),
        }  # fmt: skip
        if case.rank is not None:
            order["rank"] = case.rank
        job.order(**order)
        return job.wait_for_obedience(case.act)

    def _take_back(self, job: Job, case: Case) -> None:
        """Ends what can be ended, and lets the job get on for some steps."""
        job.take_back()
        if case.act == "stop":
            _signal(job, case, signal.SIGCONT)
        if case.act == "print":
            os.kill(job.reader, signal.SIGCONT)
        if case.act.endswith("fifo"):
            with contextlib.suppress(OSError):
                for _ in range(64):
                    os.close(os.open(job.setting.folder / "fifo", os.O_WRONLY | os.O_NONBLOCK))
                    time.sleep(0.2)
        if case.act == "child":
            for process in job.matching(r"^tail -f"):
                process.kill()
        if case.act in _CAN_END or case.seconds:
            job.wait_for_steps(job.steps() + 2, 150.0)

    def _attach(
        self, job: Job, name: str, age_s: float, case: Case | None, paused_s: float = 0.0
    ) -> Answer:
        framework = job.setting.framework
        label = re.sub(r"\W+", "-", f"{framework} {name} {age_s:.0f}s {self.seed}")
        folder = self.bundles / label
        began = time.monotonic()
        _, out, err = attach(self.tool, job.pid, folder)
        seconds = time.monotonic() - began
        try:
            verdict = json.loads(out)["verdict"]
        except (ValueError, KeyError):
            answer = Answer(framework, name, age_s, seconds=seconds, error=(err or out)[-400:])
        else:
            answer = Answer(
                framework, name, age_s, verdict["state"], verdict["class"],
                tuple(verdict["culprits"]), verdict["summary"], verdict["confidence"],
                seconds, str(folder),
            )  # fmt: skip
            folder.with_name(f"{label}.truth.json").write_text(
                json.dumps(truth_of(framework, case, age_s, paused_s), indent=1)
            )
            folder.with_name(f"{label}.said.json").write_text(json.dumps(asdict(answer), indent=1))
        self.say(
            f"{framework:9}{name:28}{age_s:6.0f} s  {answer.state:8}{answer.cause:24}"
            f"{answer.culprits!s:8}{answer.confidence:.0%}  {answer.summary or answer.error}"
        )
        return answer


def _seen(case: Case, paused_s: float) -> float:
    """A reader that is stopped is seen to be: no history makes that usual."""
    return 0.0 if case.act == "print" else paused_s


def truth_of(
    framework: str, case: Case | None, age_s: float, paused_s: float = 0.0
) -> dict[str, Any]:
    """What is true of a moment, for whoever replays its evidence. `paused_s`: the longest that the
    same job has stood before and gone on; a wait that is not much longer may be called slow.
    """
    source = ENVIRONMENTS[framework].version
    if case is None:
        return {"classes": [], "states": ["healthy", "slow"], "culprits": [], "source": source}
    usual_s = max(60.0, PATIENCE * paused_s)
    young = "slow" if case.states[0] == "stuck" and age_s < usual_s else None
    return {
        "case": case.name,
        "classes": list(case.classes),
        "states": [*case.states, *([young] if young else [])],
        "culprits": list(case.culprits) if case.culprits is not None else None,
        "actor": case.actor,
        "line": case.location,
        "source": source,
        "age_s": round(age_s, 1),
    }


def attach(tool: Path, pid: int, folder: Path) -> tuple[int, str, str]:
    """Asks the `grpo_doctor` of that folder; its exit code, output and errors."""
    parts = [tool, tool / "probes", tool / "reports"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, parts))}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "grpo_doctor", "attach", "--json", "--out", str(folder),
             str(pid)],
            capture_output=True, text=True, timeout=ATTACH_S, check=False, env=environment,
            cwd=tool,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return -1, "", f"no answer in {ATTACH_S:.0f} s"
    return done.returncode, done.stdout, done.stderr


def _signal(job: Job, case: Case, number: signal.Signals) -> bool:
    processes = job.matching(case.target)
    for process in processes[-1:]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    return bool(processes)
