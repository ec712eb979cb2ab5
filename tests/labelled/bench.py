"""Runs labelled cases and asks the rules about each."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.trace.merge import merge
from tests.labelled import rewards
from tests.labelled.case import SCHOOLING, Case, flags_of
from tests.labelled.judge import Outcome
from tests.labelled.pictures import dataset
from tests.recorded import TrainingFailedError, Workshop, workshop

_BURN = "while True: pass"
_MACHINE = "machine.json"
# Above it a run has what `other programs on the cores` has, whoever they are.
BUSY_PCT = 50.0
# The longest takes 43 s on two quiet cores, and ten times as long beside twenty other programs.
PATIENCE_S = 900.0


def run_cases(
    cases: Sequence[Case], folder: Path, say: Callable[[str], None], seed: int | None = None
) -> list[Outcome]:
    """Runs each in a folder of its own below `folder`; `seed` stands in for the trainer's own."""
    with workshop() as shop:
        model = schooled(shop, folder / "base")
        rows = []
        for case in cases:
            rows.append(_trained(shop, case, _folder_of(case, folder), model, seed))
            say(line(rows[-1]))
    return rows


def judge_kept(cases: Sequence[Case], folder: Path, say: Callable[[str], None]) -> list[Outcome]:
    """Asks the rules of today about runs that `run_cases` left in `folder`."""
    rows = []
    for case in cases:
        run_dir = _folder_of(case, folder) / "run"
        rows.append(
            _judged(case, run_dir, 0.0)
            if run_dir.is_dir()
            else Outcome(case, {}, 0.0, failed="not kept")
        )
        say(line(rows[-1]))
    return rows


def _folder_of(case: Case, folder: Path) -> Path:
    return folder / re.sub(r"\W+", "-", case.title).strip("-")


def schooled(shop: Workshop, folder: Path) -> str:
    """A model that all runs start from; the one that was kept there, if any was."""
    if not (folder / "out").exists():
        folder.mkdir(parents=True)
        (folder / "rewards.py").write_text(rewards.brief())
        shop.train(SCHOOLING, folder, patience_s=PATIENCE_S)
    (checkpoint,) = (folder / "out").glob("checkpoint-*")
    return str(checkpoint)


def _trained(shop: Workshop, case: Case, folder: Path, model: str, seed: int | None) -> Outcome:
    folder.mkdir(parents=True)
    write_files(case, folder)
    others_pct = busy_pct()
    (folder / _MACHINE).write_text(json.dumps({"busy_with_others_pct": others_pct}))
    began = time.monotonic()
    flags = flags_of(case, model, seed)
    try:
        with burners(case.load):
            run_dir = shop.train(
                flags,
                folder,
                ranks=case.ranks,
                environment=case.environment,
                patience_s=PATIENCE_S,
            )
    except TrainingFailedError as problem:
        return Outcome(case, {}, time.monotonic() - began, failed=str(problem)[-600:])
    return _judged(case, run_dir, time.monotonic() - began)


def write_files(case: Case, folder: Path) -> None:
    """Writes the case's reward functions and pictures."""
    files: dict[str, str | bytes] = dict(case.files)
    if case.picture_edge:
        files |= dataset(case.picture_edge)
    for name, contents in files.items():
        data = contents.encode() if isinstance(contents, str) else contents
        (folder / name).write_bytes(data)


def _judged(case: Case, run_dir: Path, seconds: float) -> Outcome:
    view = RunView.of(merge(run_dir))
    findings = run_rules(view).findings
    severities: dict[str, str] = {rule.id: finding.severity for rule, finding in findings}
    machine = json.loads((run_dir.parent / _MACHINE).read_text())
    busy = machine["busy_with_others_pct"] > BUSY_PCT
    return Outcome(case, severities, seconds, view.analysis.step_s, busy=busy)


def busy_pct() -> float:
    """How busy all processors are for half a second, in percent; before a run, with others."""

    def times() -> tuple[int, int]:
        first = Path("/proc/stat").read_text().partition("\n")[0]
        ticks = [int(word) for word in first.split()[1:]]
        return sum(ticks), ticks[3] + ticks[4]  # of those idle, and waiting for disks

    total, idle = times()
    time.sleep(0.5)
    total_now, idle_now = times()
    return 100 * (1 - (idle_now - idle) / max(1, total_now - total))


@contextlib.contextmanager
def burners(count: int) -> Iterator[None]:
    """So many processes that each want a core."""
    started = [subprocess.Popen([sys.executable, "-c", _BURN]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def line(run: Outcome) -> str:
    """One run in one line."""
    if run.failed:
        return f"FAIL  {run.case.title}: {run.failed}"
    mark = "ok  " if run.hit and not run.wrong else "MISS" if not run.hit else "ODD "
    rules = " ".join(f"{i}:{severity[:1]}" for i, severity in sorted(run.found.items()))
    expected = "/".join(sorted(run.case.has)) or "nothing"
    step = f"{run.step_s:.2f} s/step" if run.step_s else "no steps"
    wrong = f"  wrong: {' '.join(sorted(run.wrong))}" if run.wrong else ""
    answer = f"want {expected}; found {rules or 'nothing'}{wrong}"
    return f"{mark}  {run.case.title}: {answer}  ({run.seconds:.0f} s, {step})"
