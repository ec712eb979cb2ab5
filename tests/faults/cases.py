"""One case from start to end: a job, its healthy steps, the fault, its age, the verdict."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from grpo_doctor.hang.collection.bundle import read
from tests.faults import attach, baselines
from tests.faults.events import Silence, count, wait_for
from tests.faults.host import Unavailable
from tests.faults.jobs import ForkServer, Job, started
from tests.faults.kept import Shelf, Truth
from tests.faults.rank import HEALTHY_STEPS, Spec, pace_of
from tests.faults.registry import PHASES, Fault, Outside
from tests.faults.score import Outcome, judge

AGE_S = (6.0, 10.0)
EFFECT_S = 120.0
NO_TIME_LEFT = "no time left (--minutes)"


@dataclass(frozen=True)
class Options:
    """`compare`: run the other tools too. `collect`: where bundles are kept. `by_pid`: tell every
    attach a PID, for a machine on which other jobs run. `until`: `time.monotonic()` after which no
    further case starts.
    """

    compare: bool = False
    collect: Path | None = None
    by_pid: bool = False
    until: float = math.inf


DEFAULTS = Options()
_ONE_ATTACH = threading.Lock()


@dataclass(frozen=True)
class Draw:
    """What of a case is drawn by its seed."""

    culprit: int
    phase: str
    step: int
    age_s: float


def draw(fault: Fault, seed: int) -> Draw:
    """The same for the same fault and seed."""
    dice = random.Random(f"{seed} {fault.name}")
    culprit = dice.randrange(fault.world_size)
    return Draw(
        culprit if fault.fixed_culprit is None else fault.fixed_culprit,
        fault.phase or dice.choice(PHASES),
        HEALTHY_STEPS + dice.randrange(8),
        fault.age_s or dice.uniform(*AGE_S),
    )


@contextlib.contextmanager
def struck(server: ForkServer, fault: Fault, seed: int = 0) -> Iterator[tuple[Job, Draw]]:
    """A job in which the fault has taken effect and has had its age.

    Raises:
        Unavailable: the fault cannot be injected here.
        Silence: it did not take effect; a defect of the bench.
    """
    _have(fault.modules)
    choice = draw(fault, seed)
    with contextlib.ExitStack() as undo:
        facts = undo.enter_context(fault.needs()) if fault.needs else {}
        spec = Spec(
            "", fault.world_size, 0, fault.name, choice.culprit, choice.phase, choice.step,
            pace_s=pace_of(fault.world_size), facts=facts | fault.extra,
        )  # fmt: skip
        job = undo.enter_context(started(server, spec, fault.launch))
        _await_start(job, fault)
        if fault.outside is not None:
            wait_for(job.folder, lambda events: count(events, "arrived") > 0, "arrival", EFFECT_S)
            repairs = undo.enter_context(contextlib.ExitStack())
            _from_outside(fault, Outside(job.pids, choice.culprit, job.folder, facts, repairs))
        elif fault.inside is not None:
            wait_for(job.folder, lambda events: count(events, "effect") > 0, "effect", EFFECT_S)
        _age(choice.age_s)
        yield job, choice


def _from_outside(fault: Fault, outside: Outside) -> None:
    """A thread that ends while it is moved, a command that the machine refuses: this case is then
    injected once more, and the others go on.

    Raises:
        Silence: the fault could not be injected.
    """
    assert fault.outside is not None
    try:
        fault.outside(outside)
    except (OSError, subprocess.SubprocessError) as error:
        raise Silence(f"{fault.name}: {fault.outside.__name__}: {error!r}") from error


def _have(modules: Iterable[str]) -> None:
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise Unavailable(f"needs the package {name}")


def _await_start(job: Job, fault: Fault) -> None:
    if fault.before_init or not fault.starts_culprit or fault.claimed_world_size:
        everyone = len(job.pids)
        wait_for(job.folder, lambda events: count(events, "started") >= everyone, "start", EFFECT_S)
    else:
        job.await_healthy()


def _age(seconds: float) -> None:
    """How long the fault lasts before someone looks is part of the case."""
    time.sleep(seconds)


def run_case(
    server: ForkServer,
    fault: Fault,
    seed: int = 0,
    options: Options = DEFAULTS,
    one_attach: threading.Lock = _ONE_ATTACH,
) -> Outcome:
    """Injects the fault, attaches, and judges the answer.

    What did not take effect is injected once more: that says nothing of `attach`.
    """
    outcome = Outcome(fault.name, fault.family, fault.truth.classes, fault.world_size, -1, "")
    if time.monotonic() > options.until:
        return replace(outcome, skipped=NO_TIME_LEFT)
    once = partial(_once, outcome, server, fault, seed, options, one_attach)
    first = once()
    if not first.failed or time.monotonic() > options.until:
        return first
    return replace(once(), retried=first.skipped)


def _once(
    outcome: Outcome,
    server: ForkServer,
    fault: Fault,
    seed: int,
    options: Options,
    one_attach: threading.Lock,
) -> Outcome:
    try:
        with struck(server, fault, seed) as (job, choice), one_attach:
            outcome = replace(outcome, culprit=choice.culprit, phase=choice.phase)
            outcome = _looked_at(outcome, job, fault, choice, options, seed)
    except Unavailable as reason:
        return replace(outcome, skipped=str(reason))
    except (Silence, TimeoutError) as defect:
        return replace(outcome, skipped=str(defect), failed=True)
    return outcome


def target(job: Job, fault: Fault, choice: Draw, options: Options) -> list[str]:
    """Arguments of the attach: none, or a rank that is not the culprit, as nobody knows it."""
    if fault.no_arguments and not options.by_pid:
        return []
    victims = [pid for rank, pid in sorted(job.living().items()) if rank != choice.culprit]
    return [str(victims[choice.step % len(victims)])] if victims else [str(job.launcher)]


def truth_of(fault: Fault, culprit: int) -> Truth:
    """What is true of the job when this rank was drawn to be at fault."""
    guilty = fault.truth.guilty(culprit, fault.world_size)
    return Truth(
        fault.truth.states, fault.truth.classes, tuple(sorted(guilty)), family=fault.family,
        fault=fault.name, culprit=culprit,
    )  # fmt: skip


def _looked_at(
    outcome: Outcome, job: Job, fault: Fault, choice: Draw, options: Options, seed: int
) -> Outcome:
    """Attaches, keeping the evidence for the other tools, and judges."""
    with tempfile.TemporaryDirectory(prefix="kept-") as temporary:
        bundle = Path(temporary, "bundle")
        if options.collect is not None:
            truth = truth_of(fault, choice.culprit)
            bundle = Shelf(options.collect).place(fault.name, seed, truth)
        answer = attach.attach(*target(job, fault, choice, options), "--out", str(bundle))
        detected, culprit_right, class_right = judge(fault, choice.culprit, answer)
        outcome = replace(
            outcome, answer=answer, detected=detected, culprit_right=culprit_right,
            class_right=class_right,
        )  # fmt: skip
        return _compared(outcome, job, fault, choice, bundle) if options.compare else outcome


def _compared(outcome: Outcome, job: Job, fault: Fault, choice: Draw, bundle: Path) -> Outcome:
    """The same case through the other tools."""
    guilty = fault.truth.guilty(choice.culprit, fault.world_size)
    top_frame = baselines.by_top_frame(job.pids)
    dumps = read(bundle).dumps if bundle.exists() else ()
    analysed = baselines.by_torchfrtrace(dumps)
    return replace(
        outcome, top_frame=top_frame, top_frame_right=top_frame.right(guilty),
        torchfrtrace=analysed, torchfrtrace_right=analysed.right(guilty),
    )  # fmt: skip
