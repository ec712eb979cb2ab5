"""A process that runs reward functions; imports no torch unless they do. `pool` is its parent."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import os
import pickle
import signal
import sys
from multiprocessing.connection import Connection

from grpo_doctor_probes import phase
from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.logs.console import set_up_console
from grpo_doctor_trainer.rewards.accuracy import math_verify
from grpo_doctor_trainer.rewards.functions import answers, load

STACK_SIGNAL = signal.SIGUSR1
"""Has the worker write its stack to its second descriptor, as it does in a crash."""
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h


def main(pipe: int, stack: int, parent: int) -> None:
    """Load functions, send the columns they take, and answer calls until asked to end."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that
        os._exit(1)
    _leave_signals_to_parent()
    # faulthandler needs no interpreter, so it answers even from within C code.
    faulthandler.register(STACK_SIGNAL, file=stack, all_threads=False)
    faulthandler.enable(file=stack, all_threads=False)
    set_up_console(int(os.environ.get("RANK", "0")))
    with contextlib.suppress(EOFError, ConnectionError):  # the parent is gone
        _serve(Connection(pipe))


def _serve(connection: Connection) -> None:
    config, functions = connection.recv()
    try:
        rewards = [load(function, config) for function in functions]
    except RewardError as error:
        connection.send(error)
        return
    connection.send({reward.function.name: reward.columns for reward in rewards})
    if "accuracy" in {function.source for function in functions}:  # while the rank loads the model
        with contextlib.suppress(RewardError):  # its first call says so
            math_verify()
    loop = asyncio.new_event_loop()
    while received := connection.recv_bytes():
        try:
            inputs = pickle.loads(received)  # noqa: S301 - from our parent
        except Exception as error:  # noqa: BLE001 - told to the user
            connection.send(RewardError(f"{type(error).__name__}: {error}"))
            return
        for answer in answers(rewards, inputs, loop, lambda name: phase(f"reward/{name}")):
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):  # prints come before the step
                    stream.flush()
            connection.send(answer)


def _leave_signals_to_parent() -> None:
    # Handlers that do nothing, rather than SIG_IGN, which programs that a function starts would
    # inherit: subprocess.Popen.terminate would then do nothing.
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    os.register_at_fork(
        after_in_child=lambda: [signal.signal(number, signal.SIG_DFL) for number in numbers]
    )
