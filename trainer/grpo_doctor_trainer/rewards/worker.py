"""A process that runs reward functions: started clean, imports no torch unless they do.

It is asked over a pipe with lists of calls and answers each of them; see `pool` for the other end.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import pickle
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from grpo_doctor_probes import phase
from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.logs.console import set_up_console
from grpo_doctor_trainer.rewards.calls import Answer, answer, answer_async
from grpo_doctor_trainer.rewards.registry import load, prepare
from grpo_doctor_trainer.rewards.worker_status import WorkerStatus

if TYPE_CHECKING:
    from grpo_doctor_trainer.rewards.calls import Call
    from grpo_doctor_trainer.rewards.registry import LoadedReward

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_LOOK_S = 1.0


def main(pipe: int, status: int, parent: int, *, parent_thread_lasts: bool) -> None:
    """Loads functions, says which columns they take, and answers calls until told to end.

    Args:
        pipe: descriptor of the pipe to the parent.
        status: descriptor of the file for progress and stacks.
        parent: process that must outlive this one.
        parent_thread_lasts: whether the thread that started this process is the parent's main one.
    """
    _end_with(parent, parent_thread_lasts)
    _leave_signals_to_parent()
    set_up_console(int(os.environ.get("RANK", "0")))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    worker = _Worker(Connection(pipe), WorkerStatus(status))
    with contextlib.suppress(EOFError, ConnectionError):  # the parent is gone
        worker.serve()


class _Worker:
    def __init__(self, connection: Connection, status: WorkerStatus) -> None:
        self._connection = connection
        self._status = status
        self._rewards: dict[str, LoadedReward] = {}
        self._loop = asyncio.new_event_loop()

    def serve(self) -> None:
        config, functions = self._connection.recv()
        self._status.listen()
        try:
            self._rewards = {function.name: load(function, config) for function in functions}
        except RewardError as error:
            self._connection.send(error)
            return
        self._connection.send({name: reward.style for name, reward in self._rewards.items()})
        try:  # meanwhile the rank loads the model
            prepare(functions)
        except RewardError as error:
            self._connection.send(error)
            return
        self._connection.send(None)
        while True:
            received = self._connection.recv_bytes()
            try:
                calls: list[Call] | None = pickle.loads(received)  # noqa: S301 - from our parent
            except Exception as error:  # noqa: BLE001 - told to the user
                self._connection.send(RewardError(f"{type(error).__name__}: {error}"))
                return
            if calls is None:
                return
            self._run(calls)

    def _run(self, calls: list[Call]) -> None:
        async_calls = [call for call in calls if self._rewards[call.name].style.is_async]
        if async_calls:
            self._loop.run_until_complete(self._gather(async_calls))
        for call in calls:
            if call not in async_calls:
                with phase(f"reward/{call.name}"):
                    outcome = answer(self._rewards[call.name], call, self._status.at_completion)
                self._send(outcome)

    async def _gather(self, calls: list[Call]) -> None:
        tasks = [asyncio.create_task(self._await(call), name=call.name) for call in calls]
        await asyncio.gather(*tasks)

    async def _await(self, call: Call) -> None:
        with phase(f"reward/{call.name}"):
            outcome = await answer_async(self._rewards[call.name], call)
        self._send(outcome)

    def _send(self, outcome: Answer) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # what it printed comes before the step
                stream.flush()
        self._connection.send(outcome)


def _end_with(parent: int, parent_thread_lasts: bool) -> None:
    # The kernel's signal comes when the *thread* that started this process ends.
    if parent_thread_lasts and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it ended before that
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)


def _leave_signals_to_parent() -> None:
    # Handlers that do nothing, rather than SIG_IGN, which programs that a function starts would
    # inherit: subprocess.Popen.terminate would then do nothing.
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    os.register_at_fork(
        after_in_child=lambda: [signal.signal(number, signal.SIG_DFL) for number in numbers]
    )
