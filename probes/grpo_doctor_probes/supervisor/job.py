"""The running job: its standard streams are the supervisor's own, its signals are passed on."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from grpo_doctor_probes.supervisor.launch import CannotStartError, Launch

_ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
FORWARDED = _ENDING | {signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT}
# A second Ctrl-C within this time is meant for the same end; after it, it is a first one again.
ASKED_FOR_S = 30.0
# A signal is the reason for an end that follows within this time. torchrun gives its ranks 30 s
# before it kills them, and a launcher around torchrun, such as ms-swift's, waits for that.
REASON_S = 90.0
# After `stop`: what the launcher and the ranks have to end in order, and then the launcher to
# notice that its ranks were killed.
GRACE_S, AFTER_KILL_S = 10.0, 5.0
_LISTENS_EVERY_S = 0.05
HUNG_CODE = 3  # as `grpo-doctor attach` ends for a stuck job
# si_code of a signal that the terminal sent to the whole foreground group: the job has it already.
_SI_KERNEL = 0x80
# A script without `#!` runs so, as a shell runs it.
_BY_SHELL = ("/bin/sh", "-c", 'exec "$0" "$@"')


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended. `code` is what a shell would say: 128 + number for a signal.

    `state`: `finished` (0), `failed` (its own exit code), `interrupted` (asked to stop by a
    signal through the supervisor or the terminal), `killed` (by a signal from elsewhere), `hung`
    (it was stuck and we ended it; `code` is then HUNG_CODE).
    """

    state: str
    code: int
    signal: str | None
    ended_ns: int


class Job:
    """Starts `launch` at once; `wait` blocks until it has ended. Main thread only.

    Raises:
        CannotStartError: the operating system can't start the command.
    """

    def __init__(self, launch: Launch) -> None:
        self.started_ns = time.monotonic_ns()
        self.started_unix_ns = time.time_ns()
        self._requests: list[tuple[float, signal.Signals]] = []
        self._stopping: Iterator[None] | None = None
        self._for_a_hang = False
        # Under nohup SIGHUP is ignored: the job inherits that, and nothing is passed on.
        ignored = {n for n in FORWARDED if signal.getsignal(n) == signal.SIG_IGN}
        self._forwarded = FORWARDED - ignored
        self._watched = self._forwarded | {signal.SIGCHLD}
        # Blocked before the job exists, so that no signal falls between; unblocked in the job.
        inherited = self._inherited = signal.pthread_sigmask(signal.SIG_BLOCK, self._watched)
        # Ignored, as some parents leave it, the kernel would keep no account of the job's end.
        at_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)

        def as_found() -> None:
            if at_child == signal.SIG_IGN:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, inherited)

        def started(command: Sequence[str]) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                command,
                env=dict(launch.environment),
                # `--config <(...)`, `7< file`, a job server: the job gets what we were given. What
                # we opened ourselves closes by itself (PEP 446).
                close_fds=False,
                preexec_fn=as_found,  # noqa: PLW1509 - no other thread exists yet
            )

        try:
            self._process = started(launch.command)
        except OSError as problem:
            if problem.errno == errno.ENOEXEC:
                self._process = started([*_BY_SHELL, *launch.command])
                return
            signal.pthread_sigmask(signal.SIG_SETMASK, inherited)
            raise CannotStartError(
                f"can't start {launch.command[0]!r}: {problem.strerror or problem}."
            ) from problem

    @property
    def pid(self) -> int:
        """Process id of the launcher: torchrun, or the user's command."""
        return self._process.pid

    @property
    def is_ending(self) -> bool:
        """Whether it was asked to end shortly ago, or is being ended by `stop`."""
        return bool(self._requests_within(ASKED_FOR_S)) or self._stopping is not None

    def wait(self, on_tick: Callable[[], None], every_s: float) -> Ended:
        """Wait for the end, passing on signals; calls `on_tick` about every `every_s` seconds."""
        next_tick = time.monotonic() + every_s
        while self._process.poll() is None:
            info = self._next_signal(next_tick)
            if info is not None:
                self._pass_on(info)
            if time.monotonic() >= next_tick:
                on_tick()
                if self._stopping is not None:
                    next(self._stopping, None)
                next_tick = time.monotonic() + every_s
        ended = self._end_of(self._process.returncode)
        # Signals that came with the job's end were meant for it; later ones end the reporting.
        while signal.sigtimedwait(self._watched, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._inherited)
        return ended

    def _next_signal(self, until: float) -> signal.struct_siginfo | None:
        """Return the next signal for us; None at `until`.

        A `sigtimedwait` that sleeps, and is stopped and continued (Ctrl-Z and `fg`) past its time,
        makes a signal of what happens to be on its stack: CPython's loop after EINTR ends there.
        """
        while (info := signal.sigtimedwait(self._watched, 0)) is None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return None
            time.sleep(min(left_s, _LISTENS_EVERY_S))
        return info

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was asked to end it."""
        return self._stopping is not None

    def stop(self, kill_ranks: Callable[[], None], *, hangs: bool = True) -> None:
        """End a job that hangs: SIGTERM, after GRACE_S `kill_ranks`, at last the launcher.

        Returns at once; `wait` carries it out and then says `hung`; of a job that does not hang,
        and has done what it was started for, `interrupted` with code 0.
        """
        if self._stopping is None:
            self._stopping, self._for_a_hang = self._stop_in_order(kill_ranks), hangs

    def _stop_in_order(self, kill_ranks: Callable[[], None]) -> Iterator[None]:
        """Yield one pass of `wait` for each `next`."""
        self._send(signal.SIGTERM)
        yield from _until(time.monotonic() + GRACE_S)
        kill_ranks()
        yield from _until(time.monotonic() + AFTER_KILL_S)
        self._send(signal.SIGKILL)

    def _pass_on(self, info: signal.struct_siginfo) -> None:
        number = signal.Signals(info.si_signo)
        if number not in self._forwarded:
            return
        if number in _ENDING:
            self._requests = [*self._requests_within(ASKED_FOR_S), (time.monotonic(), number)]
        if info.si_code != _SI_KERNEL:
            self._send(number)
        elif len(self._requests) == 2:
            self._send(signal.SIGTERM)
        elif len(self._requests) > 2:
            self._send(signal.SIGKILL)

    def _requests_within(self, seconds: float) -> list[tuple[float, signal.Signals]]:
        now = time.monotonic()
        return [request for request in self._requests if now - request[0] <= seconds]

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # ended just now: poll() will say so
            os.kill(self._process.pid, number)

    def _end_of(self, code: int) -> Ended:
        now_ns = time.monotonic_ns()
        name = signal.Signals(-code).name if code < 0 else None
        shell_code = 128 - code if code < 0 else code
        if self._stopping is not None:
            if self._for_a_hang:
                return Ended("hung", HUNG_CODE, None, now_ns)
            return Ended("interrupted", 0, signal.SIGTERM.name, now_ns)
        if code == 0:
            return Ended("finished", 0, None, now_ns)
        if requests := self._requests_within(REASON_S):
            return Ended("interrupted", shell_code, name or requests[0][1].name, now_ns)
        if name:
            return Ended("killed", shell_code, name, now_ns)
        return Ended("failed", code, None, now_ns)


def _until(deadline: float) -> Iterator[None]:
    while time.monotonic() < deadline:
        yield
