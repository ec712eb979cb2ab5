"""What accompanies a running job: the live line, the watchdog, and reports of dead ranks."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from grpo_doctor.cli.console import Quiet, inform, put, say
from grpo_doctor.errors import OutputError
from grpo_doctor_probes.procs.live import Header
from grpo_doctor_probes.record.rundir import FLIGHT, HOOKS_VARIABLE
from grpo_doctor_probes.supervisor import flightenv
from grpo_doctor_probes.supervisor.deaths import DeathWatch, as_facts, obituary
from grpo_doctor_probes.supervisor.flightenv import timeout_s
from grpo_doctor_probes.supervisor.job import GRACE_S
from grpo_doctor_probes.supervisor.launch import visible_gpus
from grpo_doctor_probes.supervisor.liveline import LiveLine
from grpo_doctor_probes.supervisor.members import Members
from grpo_doctor_probes.supervisor.outlet import has_room
from grpo_doctor_probes.supervisor.standing import Headers, Lengths, carrying_stack, place_of
from grpo_doctor_probes.supervisor.unhooked import HookWatch
from grpo_doctor_probes.supervisor.watchdog import Hang, Watchdog


class Beside:
    """Runs one task at a time; a task that comes while it is busy is dropped, not queued.

    Reading a run directory on a network file system that hangs, or the /proc of a process that
    hangs in the kernel, may take forever; signals to the job must be passed on meanwhile.
    """

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._since_s = 0.0
        # A daemon: where it hangs the program ends all the same.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], None]) -> bool:
        """Begin `work`, which must not raise; False where it is still at the work before."""
        if not self._idle.is_set():
            return False
        self._idle.clear()
        self._since_s = time.monotonic()
        self._work.put(work)
        return True

    @property
    def busy_s(self) -> float:
        """For how long it has been at its present work; 0 without any."""
        return 0.0 if self._idle.is_set() else time.monotonic() - self._since_s

    def settle(self, at_most_s: float) -> bool:
        """Wait until it is done with its present work; False where it is not in time."""
        return self._idle.wait(at_most_s)

    def close(self) -> None:
        """It ends after its present work."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            finally:
                self._idle.set()


if TYPE_CHECKING:
    from grpo_doctor_probes.supervisor.job import Ended, Job
    from grpo_doctor_probes.supervisor.launch import Launch

# A look that is under way when the job ends may still tell why it did.
_LAST_LOOK_S = 5.0
# A tick takes milliseconds. After the first time it is said that something hangs, after the second
# the job's end is not held up any longer.
_HANGS_S, _LET_GO_S = 20.0, 10.0
_KILLS_WITHIN_S = 2.0


def with_flight_recorder(
    launch: Launch, arguments: Sequence[str], folder: Path
) -> tuple[Launch, dict[str, str]]:
    """Return the launch with the flight-recorder variables that the user has not set, and those."""
    program = sys.executable if launch.bundled else arguments[0]
    dumps = folder / FLIGHT
    added = flightenv.flight_variables(
        launch.environment,
        dumps,
        flightenv.torch_version(program),
        gpus=visible_gpus(),
    )
    if added:
        try:
            dumps.mkdir(mode=0o700)
        except OSError as problem:
            say(f"the flight recorder's variables are not set: {problem}")
            return launch, {}
        inform(f"set for the job: {' '.join(f'{name}={value}' for name, value in added.items())}")
    environment = {**launch.environment, **added}
    return replace(launch, environment=environment), added


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What is known at the end, in addition to the recording.

    Attributes:
        facts: for `run.json` and `--json`.
        remarks: for the user, a line each.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


class Watching:
    """`tick` twice a second while the job runs, `close` when it has ended."""

    def __init__(
        self,
        options: argparse.Namespace,
        launch: Launch,
        arguments: Sequence[str],
        folder: Path,
        job: Job,
    ) -> None:
        self._job, self._on_hang = job, options.on_hang
        self._headers = Headers(folder)
        self._deaths = DeathWatch()
        self._members = Members(job.pid, folder, self._deaths)
        live = sys.stderr and not options.no_live and not Quiet.wanted
        self._live = LiveLine(sys.stderr) if live else None
        hooked = launch.environment.get(HOOKS_VARIABLE) == "1"
        self._hooks = HookWatch(folder, say) if hooked else None
        self._watchdog: Watchdog | None = None
        self._hangs: list[Hang] = []
        self._defect = False
        self._beside = Beside("grpo-doctor-watching")
        self._hang_announced = False
        self._limits = options.stop_after, options.at_most
        self._first_step: int | None = None
        if not options.no_watchdog:
            limit_s = timeout_s(arguments, bundled=launch.bundled, gpus=visible_gpus())
            lengths = Lengths(options.hang_after, limit_s)
            self._watchdog = Watchdog(folder, lengths, say=say, on_hang=self._hear)

    def tick(self, samples: Mapping[str, float]) -> None:
        """Has the job looked at, and shows or says what there is. Returns at once, never raises."""
        if self._defect:
            return
        if not self._beside.do(lambda: self._try_tick(samples)):
            self._tell_of_hanging()

    def _try_tick(self, samples: Mapping[str, float]) -> None:
        try:
            self._tick(samples, time.monotonic_ns())
        except Exception as error:  # noqa: BLE001 - a bug of ours must not cost the job its signals
            self._give_up(error)

    def _tell_of_hanging(self) -> None:
        hangs = self._beside.busy_s > _HANGS_S
        if hangs and not self._hang_announced and has_room(sys.stderr):  # it may hang in that
            self._hang_announced = True
            say("reading the run directory or /proc hangs; the job continues unwatched until then")

    def _tick(self, samples: Mapping[str, float], now_ns: int) -> None:
        self._members.refresh(now_ns)
        headers = self._headers.read(self._members.ranks)
        self._end_when_due(headers)
        if self._hooks is not None:
            self._hooks.look(self._members.everyone, self._members.ranks, now_ns)
        if self._live is not None:
            self._live.tick(headers, samples)
        if self._watchdog is not None and self._job.is_ending:
            self._watchdog.rest()
        elif self._watchdog is not None:
            deaths = self._deaths.deaths
            self._watchdog.tick(headers, self._members.groups, deaths, now_ns)

    def _end_when_due(self, headers: Sequence[Header]) -> None:
        """End the job after the steps or the time that the user wants recorded."""
        steps, seconds = self._limits
        number = min((header.step for header in headers if header.step is not None), default=None)
        if self._first_step is None:
            self._first_step = number
        done = number - (self._first_step or 0) if number is not None else 0
        late = seconds is not None and time.monotonic_ns() - self._job.started_ns > seconds * 1e9
        if (late or (steps is not None and done >= steps)) and not self._job.is_stopped:
            why = f"{seconds:g} s are over" if late else f"{steps} steps are recorded"
            inform(f"{why}; ending the job")
            self._job.stop(self._kill_ranks, hangs=False)

    def _give_up(self, error: Exception) -> None:
        self._defect = True
        say(f"internal error, the job continues unwatched: {error!r}. Please report it.")

    def close_line(self) -> None:
        """Give the terminal's last row back."""
        self._beside.settle(_LET_GO_S)
        if self._live is not None:
            self._live.close()

    def close(self, end: Ended) -> Aftermath:
        """End the watching; what it has seen. Never raises: the report is still to come."""
        if not self._beside.settle(0.0):  # `close_line` has waited
            return Aftermath({}, ("the watchdog hung: its last observations are lost",))
        self._beside.close()
        try:
            return self._close(end)
        except Exception as error:  # noqa: BLE001 - as in `tick`
            self._give_up(error)
            return Aftermath()

    def _close(self, end: Ended) -> Aftermath:
        if self._watchdog is not None:
            unexplained = end.state in ("failed", "killed")
            self._watchdog.close(wait_s=_LAST_LOOK_S if unexplained else 0.0)
        if end.state == "hung" or self._job.is_stopped:
            self._members.end(GRACE_S)
        deaths = self._deaths.close()
        phases = self._last_phases()
        facts: dict[str, Any] = {}
        if deaths:
            facts["deaths"] = as_facts(deaths, phases)
        if self._hangs:
            facts["hangs"] = [_facts(hang) for hang in self._hangs]
        remarks = [hang.answer.summary for hang in self._hangs[-1:]]
        if end.state in ("failed", "killed"):
            facts["ended"] = obituary(deaths, phases)
            remarks += facts["ended"]
        return Aftermath(facts, tuple(remarks))

    def _last_phases(self) -> dict[int, str]:
        """Return where each recorded process was when it ended, by pid."""
        places = {}
        for header in self._headers.read(self._members.ranks):
            if (stack := carrying_stack(header)) and not header.closed_ns:
                places[header.pid] = place_of(stack)
        return places

    def _hear(self, hang: Hang) -> None:
        """Say what `attach` found, and do what the user wants done then."""
        self._hangs.append(hang)
        put(f"\n{_in_words(hang)}\n")
        if hang.answer.not_kept:
            say(f"the evidence could not be saved: {hang.answer.not_kept}")
        else:
            again = f"grpo-doctor attach --replay {hang.answer.folder}"
            say(f"the evidence is saved; show it again: {again}")
        if self._on_hang == "stop":
            say("ending the job, as --on-hang stop asks")
            self._job.stop(self._kill_ranks)

    def _kill_ranks(self) -> None:
        """Called where ticks are begun, so none is under way but one that hangs."""
        self._beside.settle(_KILLS_WITHIN_S)
        self._members.kill()


def _in_words(hang: Hang) -> str:
    """Return the verdict, its first line the rank and the reason."""
    from grpo_doctor.cli.rendering import verdict_text  # noqa: PLC0415 - only when it is needed

    try:
        return verdict_text(hang.answer.document, sys.stderr).strip("\n")
    except (OutputError, KeyError, TypeError, ValueError) as problem:
        return f"{hang.answer.summary}\n(no more can be shown: {problem!r})"


def _facts(hang: Hang) -> dict[str, Any]:
    verdict = hang.answer.document["verdict"]
    return {
        "asked_ns": hang.asked_ns,
        "at_ns": hang.at_ns,
        "suspected": hang.suspicion.in_words(),
        "state": hang.answer.state,
        "class": verdict.get("class"),
        "culprits": verdict.get("culprits"),
        "summary": hang.answer.summary,
        "bundle": None if hang.answer.not_kept else str(hang.answer.folder),
    }
