"""vLLM's own server as the trainer says to start it, for tests: in a session of its own."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.procs.procstat import read_stat
from tests.ports import free_port

START_S = 240
SHARED_MEMORY = Path("/dev/shm")


@dataclass
class Server:
    """A server process and what it was started with."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path
    command: str

    @property
    def flags(self) -> tuple[str, ...]:
        """What a trainer needs to use it."""
        where = ("--vllm_server_port", str(self.port), "--vllm_server_timeout", str(START_S))
        return ("--use_vllm", "true", "--vllm_mode", "server", *where)

    @property
    def printed(self) -> str:
        return (self.folder / "server.txt").read_text()


def environment(folder: Path) -> dict[str, str]:
    recorded = {"GRPO_DOCTOR_RUN_DIR": str(folder / "run"), "OMP_NUM_THREADS": "1"}
    return os.environ | recorded | {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def started(folder: Path, *options: str) -> Server:
    """Starts a server for the embedded model by the trainer's own command, and more options."""
    import torch

    from grpo_doctor_trainer.flags import parse
    from grpo_doctor_trainer.model.load import load_model
    from grpo_doctor_trainer.rollout.vllm.server import start_command, write_embedded

    port = free_port()
    where = ("--output_dir", str(folder), "--vllm_server_port", str(port))
    config = parse(["--use_vllm", "true", "--vllm_mode", "server", *where], 1)
    loaded = load_model(config, torch.float32)
    write_embedded(config, loaded)
    command = start_command(config, torch.device("cpu"), 2048)
    return run_command(f"{command} {shlex.join(options)}", folder, port)


def run_command(command: str, folder: Path, port: int) -> Server:
    """Starts a server as a shell would."""
    variable, *words = shlex.split(command)
    name, _, value = variable.partition("=")
    assert words[0] == "python"
    with (folder / "server.txt").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *words[1:]], cwd=folder, env=environment(folder) | {name: value},
            start_new_session=True, stdout=output, stderr=output,
        )  # fmt: skip
    return Server(process, port, folder, command)


def kill_session(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def members(session: int) -> list[str]:
    """The command lines of the processes that are left of a session."""
    commands = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            stat = read_stat(entry)
            if stat.session == session and not stat.dead:
                commands.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return commands
