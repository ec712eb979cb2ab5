"""Forks ranks from a process that has imported torch: `python -m tests.recorded.server`.

Reads one job a line from standard input and forks a launcher for it, which forks the ranks; says
the launcher's pid, and its exit code when it has ended, on standard output. Imports are most of a
short run: 9 s of 12 without this.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

_MODULES = (
    "torch", "torch.distributed", "transformers", "accelerate", "deepspeed", "peft", "datasets",
    "grpo_doctor_trainer.loop", "grpo_doctor_trainer.setup", "grpo_doctor_trainer.model.tiny",
    "grpo_doctor_trainer.model.tiny", "transformers.models.qwen2.modeling_qwen2",
    "transformers.models.qwen2_5_vl.modeling_qwen2_5_vl",
)  # fmt: skip


def serve() -> None:
    """Until standard input ends."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    answers, quiet = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # what libraries print is no answer
    for module in _MODULES:
        __import__(module)
    import torch

    torch.set_num_threads(1)
    gc.freeze()  # a collection in a fork would touch, and so copy, all that was imported
    _say(answers, {"ready": True})
    for line in sys.stdin:
        job = json.loads(line)
        launcher = os.fork()
        if launcher == 0:
            os.setsid()
            os._exit(_launch(job))
        _say(answers, {"pid": launcher})
        _, status = os.waitpid(launcher, 0)
        _say(answers, {"code": os.waitstatus_to_exitcode(status)})


def _say(descriptor: int, answer: dict[str, Any]) -> None:
    os.write(descriptor, (json.dumps(answer) + "\n").encode())


def _launch(job: dict[str, Any]) -> int:
    """Forks the ranks and waits for them; the first exit code that is not 0 ends the others too."""
    log = os.open(Path(job["folder"]) / "job.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    ranks = {_fork_rank(job, rank) for rank in range(job["ranks"])}
    first = 0
    while ranks:
        pid, status = os.wait()
        ranks.discard(pid)
        if status and not first:
            first = abs(os.waitstatus_to_exitcode(status))
            for sibling in ranks:
                os.kill(sibling, signal.SIGTERM)
    return first


def _fork_rank(job: dict[str, Any], rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        world = str(job["ranks"])
        os.environ |= {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": world,
            "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(job["port"]),
            **job["environment"],
        }  # fmt: skip
        os.chdir(job["folder"])
        sys.argv = [job["module"], *job["flags"]]
        runpy.run_module(job["module"], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - a rank's end is what the caller wants to know
        traceback.print_exc()
    finally:
        _end(code)
    return 0


def _end(code: int) -> None:
    from grpo_doctor_probes import stop

    stop()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve()
