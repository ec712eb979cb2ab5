"""Runs cases and holds the answers to the truth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.faults.events import Silence
from tests.faults.jobs import ROOT, environment
from tests.spinning.cases import Case
from tests.spinning.world import Bench, SpinningJob, bench, struck

PATIENCE_S = 90.0
_LEFT_OUT = 5  # no job, in words of exit codes


@dataclass(frozen=True)
class Result:
    """What was said of one job. `skipped`: why it could not be asked."""

    name: str
    seed: int
    truth: str
    world_size: int = 0
    culprit: int = -1
    state: str = ""
    cause: str = ""
    culprits: tuple[int, ...] = ()
    confidence: float = 0.0
    summary: str = ""
    seconds: float = 0.0
    pause_ms: float = 0.0
    error: str = ""
    skipped: str = ""
    state_right: bool = False
    ranks_right: bool = False
    class_right: bool = False

    @property
    def right(self) -> bool:
        return self.state_right and self.ranks_right and self.class_right


def run(
    cases: Iterable[Case],
    seeds: Iterable[int],
    say: Callable[[str], None],
    keep: Path | None = None,
    tree: Path = ROOT,
) -> list[Result]:
    """One after another: their hosts use all cores. `tree`: whose attach is asked."""
    results = []
    with bench() as server:
        for seed in seeds:
            for case in cases:
                results.append(run_case(server, case, seed, keep, tree))
                say(line(results[-1]))
    return results


def run_case(
    server: Bench, case: Case, seed: int, keep: Path | None = None, tree: Path = ROOT
) -> Result:
    """Strikes, attaches, judges."""
    try:
        with struck(server, case, seed) as job:
            folder = None
            if keep is not None:
                folder = keep / f"{_slug(case.name)}-{seed}"
            return _asked(job, seed, folder, tree)
    except (Silence, TimeoutError) as defect:
        return Result(case.name, seed, case.truth, skipped=str(defect))


def _asked(job: SpinningJob, seed: int, folder: Path | None, tree: Path) -> Result:
    case, spec = job.case, job.spec
    program = "tests.spinning.refused" if case.hidden else "grpo_doctor"
    words = [sys.executable, "-m", program, "attach", "--json", str(job.victim())]
    words += ["--out", str(folder)] if folder is not None else []
    paths = os.pathsep.join(map(str, (tree, tree / "probes", tree / "reports", ROOT)))
    before, began = job.progress(), time.monotonic()
    try:
        done = subprocess.run(
            words,
            cwd=tree,
            env=environment() | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        out, error = done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        out, error = "", f"no answer in {PATIENCE_S:.0f} s"
    seconds = time.monotonic() - began
    progress = job.progress() - before
    if case.truth == "dead" and progress:
        return Result(case.name, seed, case.truth, skipped=f"it moved: {progress} operations")
    try:
        document = json.loads(out)
    except ValueError:
        text = (error or out).strip()[-400:]
        return Result(
            case.name, seed, case.truth, spec.world_size, spec.culprit, seconds=seconds, error=text
        )
    result = judged(case, seed, spec.world_size, spec.culprit, document, seconds)
    if folder is not None and folder.is_dir():
        _write_truth(folder, job, result)
    return result


def judged(
    case: Case, seed: int, world_size: int, culprit: int, document: dict[str, Any], seconds: float
) -> Result:
    """One answer held to the truth."""
    verdict, cost = document["verdict"], document["cost"]
    blamed = tuple(verdict["culprits"])
    if case.truth == "dead":
        ranks_right = blamed == ((culprit,) if case.names else ())
    else:
        ranks_right = set(blamed) <= ({culprit} if case.names else set())
    class_right = case.truth != "dead" or not case.classes or verdict["class"] in case.classes
    return Result(
        case.name, seed, case.truth, world_size, culprit, verdict["state"], verdict["class"],
        blamed, verdict["confidence"], verdict["summary"], seconds, cost["max_pause_ms"],
        state_right=verdict["state"] in case.allowed, ranks_right=ranks_right,
        class_right=class_right,
    )  # fmt: skip


def _write_truth(folder: Path, job: SpinningJob, result: Result) -> None:
    case = job.case
    truth = {
        "name": case.name, "truth": case.truth, "classes": case.classes,
        "culprits": [job.spec.culprit] if case.names and case.truth == "dead" else [],
        "may_name": [job.spec.culprit] if case.names else [],
        "states": case.allowed, "world_size": job.spec.world_size, "said": asdict(result),
    }  # fmt: skip
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name)


def line(result: Result) -> str:
    """One case in a line."""
    if result.skipped:
        return f"skip  {result.name}: {result.skipped}"
    marks = "".join(
        letter if right else "-"
        for letter, right in (
            ("S", result.state_right), ("R", result.ranks_right), ("C", result.class_right),
        )
    )  # fmt: skip
    return (
        f"{marks}   {result.name} (rank {result.culprit} of {result.world_size}): "
        f"{result.state} {result.cause} {list(result.culprits)} {result.confidence:.2f} "
        f"{result.seconds:.1f} s | {result.summary}{result.error}"
    )


def totals(results: Iterable[Result]) -> dict[str, str]:
    """What counts, each as a share."""
    answered = [result for result in results if not result.skipped]
    dead = [result for result in answered if result.truth == "dead"]
    alive = [result for result in answered if result.truth != "dead"]

    def share(ones: list[Result], right: Callable[[Result], bool]) -> str:
        return f"{sum(map(right, ones))} of {len(ones)}"

    return {
        "dead jobs not called healthy": share(dead, lambda result: result.state != "healthy"),
        "dead jobs: right state": share(dead, lambda result: result.state_right),
        "dead jobs: right ranks": share(dead, lambda result: result.ranks_right),
        "dead jobs: right class": share(dead, lambda result: result.class_right),
        "living jobs not called stuck": share(
            alive, lambda result: result.state not in ("stuck", "dead")
        ),
        "living jobs: nobody else named": share(alive, lambda result: result.ranks_right),
        "all right": share(answered, lambda result: result.right),
    }
