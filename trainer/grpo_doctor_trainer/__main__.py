"""`python -m grpo_doctor_trainer`: parses the flags, trains, and ends with a meaningful exit code.

0: done. 2: a mistake of the user, shown in one message. 130 and 143: stopped by Ctrl-C and SIGTERM.
Anything else is a defect and keeps its traceback.
"""

from __future__ import annotations

import os
import re
import sys
import time
import warnings
from typing import TYPE_CHECKING

from grpo_doctor_probes import phase, watch_collectives
from grpo_doctor_trainer import interrupts
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.console import LOG, set_up_console
from grpo_doctor_trainer.errors import TrainerError
from grpo_doctor_trainer.flags import parse

if TYPE_CHECKING:
    from grpo_doctor_trainer.loop import Run
    from grpo_doctor_trainer.ranks import Ranks

_USER_ERROR = 2
_SIGNAL_CODE = 128
# What gloo and NCCL say in the ranks that go on when one is gone.
_LOST_CONNECTION = re.compile("(?i)connection (?:closed|reset) by peer|remote process exited")
_LEFT_ALONE = (
    "lost its connection to a rank that ended first: what that one says is the cause. If it says "
    "nothing, the system killed it (dmesg names what ran out of memory)"
)


def main() -> int:
    """Run the trainer with the command line of this process; returns the exit code."""
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    set_up_console(rank)
    try:
        config = parse(sys.argv[1:], world_size)
    except TrainerError as error:
        return _user_error(error, rank, everywhere=True)
    interrupts.catch_signals()
    try:
        _run(config)
    except TrainerError as error:
        return _user_error(error, rank, everywhere=False)
    except interrupts.Interrupted as stop:
        return _stopped(stop.signal_number, rank)
    except Exception as error:
        # A rank that was stopped closes its connections, and the others fail on that first.
        if (signal_number := interrupts.interrupted_by()) is not None:
            return _stopped(signal_number, rank)
        if not _LOST_CONNECTION.search(str(error)):
            raise
        print(f"error: rank {rank} {_LEFT_ALONE}", file=sys.stderr, flush=True)  # noqa: T201
        return 1
    return 0


def _run(config: TrainerConfig) -> None:
    with phase("init"):
        _quiet_libraries()
        import torch  # noqa: F401, PLC0415 - init covers the imports

        watch_collectives()
        from grpo_doctor_trainer.ranks import join_ranks, leave_ranks  # noqa: PLC0415

        ranks = join_ranks(config.ddp_timeout)
    try:
        _set_up_and_train(config, ranks)
    finally:
        leave_ranks()


def _set_up_and_train(config: TrainerConfig, ranks: Ranks) -> None:
    with phase("init"):
        # After join_ranks, which tells DeepSpeed about the device.
        from grpo_doctor_trainer import memory  # noqa: PLC0415
        from grpo_doctor_trainer.loop import train  # noqa: PLC0415
        from grpo_doctor_trainer.setup import set_up  # noqa: PLC0415

    run: Run | None = None
    try:
        with phase("init"):
            run = set_up(config, ranks)
        train(run)
    except Exception as error:
        interrupts.only_note_signals()
        if not memory.is_out_of_memory(error):
            raise
        raise memory.explain_out_of_memory(error, config, ranks) from error
    finally:
        interrupts.only_note_signals()
        if run is not None:
            run.close()


def _quiet_libraries() -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # it warns in every forked worker
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # DeepSpeed 0.19 calls names that torch 2.13 is about to rename.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")


def _user_error(error: TrainerError, rank: int, *, everywhere: bool) -> int:
    if everywhere and rank != 0:
        # torchrun stops the others at the first exit: rank 0 has to get its message out.
        time.sleep(2)
    else:
        print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201 - a command
    return _USER_ERROR


def _stopped(signal_number: int, rank: int) -> int:
    if rank == 0:
        LOG.info("stopped by signal %d; checkpoints that were finished are intact", signal_number)
    return _SIGNAL_CODE + signal_number


if __name__ == "__main__":
    sys.exit(main())
