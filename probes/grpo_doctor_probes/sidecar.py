"""Small JSON files beside the span files. Imports `json` only when something is written."""

from __future__ import annotations

import os
import time
from typing import Any

from grpo_doctor_probes import clock


def write_rank(path: str, rank: int) -> None:
    """Writes who a span file's process is; again at the end, when clocks have been re-read.

    `clocks` holds one reading at the start and one at the end: their difference is the drift.
    """
    facts = _read(path)
    facts.setdefault("clocks", []).append(clock.read())
    facts.update(
        format=1,
        rank=rank,
        local_rank=_number("LOCAL_RANK"),
        world_size=_number("WORLD_SIZE"),
        pid=os.getpid(),
        parent_pid=os.getppid(),
        host=os.uname().nodename,
        clock_id=clock.identity(),
        process_start_ns=clock.process_start_ns(),
        cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        attempt=_number("TORCHELASTIC_RESTART_COUNT"),
    )
    write_json(path, facts)


def write_json(path: str, value: Any) -> None:
    """Replaces `path` in one step, readable by the user alone. Raises OSError."""
    import json  # noqa: PLC0415 - 9 ms that most programs never need

    temporary = f"{path}.{os.getpid()}.tmp"
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, json.dumps(value, default=str).encode())
    except OSError:
        os.unlink(temporary)  # noqa: PTH108 - no pathlib in the job
        raise
    finally:
        os.close(file)
    os.replace(temporary, path)  # noqa: PTH105


def append_line(path: str, value: Any) -> None:
    """Appends one JSON line in a single write, so that lines never interleave. Raises OSError."""
    import json  # noqa: PLC0415

    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, (json.dumps(value, default=str) + "\n").encode())
    finally:
        os.close(file)


def _read(path: str) -> dict[str, Any]:
    import json  # noqa: PLC0415

    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            facts = json.load(file)
    except (OSError, ValueError):
        return {"written_ns": time.monotonic_ns()}
    return facts if isinstance(facts, dict) else {}


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.lstrip("-").isdigit() else None
