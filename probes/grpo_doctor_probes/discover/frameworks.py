"""Which framework trains: by command lines and titles, else by what the script imports."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from grpo_doctor_probes.discover.commands import program
from grpo_doctor_probes.discover.scan import Process

_SCRIPT_LIMIT_BYTES = 256 << 10
# The order decides where several match: ms-swift and verl bring their own trl along.
_BY_COMMAND = (
    ("bundled", re.compile(r"(?:^|/)grpo_doctor_trainer(?:[./]|$)")),
    ("ms-swift", re.compile(r"(?:^|/)swift(?:[./]|$)|^(?:.*/)?megatron$")),
    ("verl", re.compile(r"(?:^|/)verl(?:[./]|$)|^ray::(?:\w*WorkerDict|\w*ActorRollout)")),
    (
        "openrlhf",
        re.compile(
            r"(?:^|/)openrlhf(?:[./]|$)|^ray::\w*(?:PolicyModelActor|RolloutRayActor|ModelRayActor)"
        ),
    ),
    ("trl", re.compile(r"(?:^|/)trl(?:[./]|$)")),
)
_IMPORT = re.compile(
    r"^\s*(?:from|import)\s+(grpo_doctor_trainer|swift|verl|openrlhf|trl)\b", re.MULTILINE
)
_OF_IMPORT = {"grpo_doctor_trainer": "bundled", "swift": "ms-swift"}


def framework_by_command(processes: Iterable[Process]) -> str:
    """One of FOUND_FRAMEWORKS; `unknown` where no command line says."""
    texts = [text for process in processes for text in _texts(process)]
    for name, pattern in _BY_COMMAND:
        if any(pattern.search(text) for text in texts):
            return name
    return "unknown"


def framework_by_script(proc: Path, process: Process) -> str:
    """One of FOUND_FRAMEWORKS, by the import lines of the script that a rank runs."""
    text = _script(proc, process)
    found = {match[1] for match in _IMPORT.finditer(text)}
    for module in ("grpo_doctor_trainer", "swift", "verl", "openrlhf", "trl"):
        if module in found:
            return _OF_IMPORT.get(module, module)
    return "unknown"


def _texts(process: Process) -> tuple[str, ...]:
    run = program(process.arguments)
    if run.code:
        return tuple(re.findall(r"[A-Za-z_][\w.]*", run.code[:2000]))
    return (run.title, run.module, run.script)


def _script(proc: Path, process: Process) -> str:
    script = program(process.arguments).script
    if not script.endswith(".py"):
        return ""
    folder = f"{proc}/{process.pid}"
    path = f"{folder}/root{script}" if script.startswith("/") else f"{folder}/cwd/{script}"
    # Not a pipe or a device: opening those could block.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return os.read(descriptor, _SCRIPT_LIMIT_BYTES).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    return ""
