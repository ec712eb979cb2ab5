"""Small JSON files next to the span files. Imports `json` only when something is written."""

from __future__ import annotations

import os

from grpo_doctor_probes.record import clock

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


_NO_NUMBERS = ("nan", "inf", "-inf")
# What else a rank file says, by key: asked for at each writing.
EXTRAS: dict[str, Callable[[], Any]] = {}


class Role:
    """What this process is in a job whose steps another process carries.

    `driver` carries the steps; `actor`, `reward`, `rollout` and others work for it. Without a role
    a process is a rank that trains. A forked child has none of its parent's.
    """

    def __init__(self) -> None:
        self._name: str | None = None
        self._pid = 0

    def take(self, name: str) -> None:
        """Say so, before the process records anything. The first word counts."""
        if self.of_this_process() is None:
            self._name, self._pid = name, os.getpid()

    def of_this_process(self) -> str | None:
        """Return the role; None without one."""
        return self._name if self._pid == os.getpid() else None


ROLE = Role()


class RankFile:
    """Who a span file's process is: written at the start, and at the end with its clocks re-read.

    `clocks` holds one reading for each `write`: their difference is the drift.
    """

    def __init__(self, path: str, rank: int) -> None:
        self._path = path
        self._rank = rank
        self._clocks: list[dict[str, int]] = []

    def write(self) -> None:
        """Replace the file. A full disk is no reason to stop recording: the span file's header
        says what is needed most."""
        self._clocks.append(clock.read())
        facts = {
            "format": 1,
            "rank": self._rank,
            "role": ROLE.of_this_process(),
            "local_rank": number("LOCAL_RANK"),
            "world_size": number("WORLD_SIZE"),
            "pid": os.getpid(),
            "parent_pid": os.getppid(),
            "host": os.uname().nodename,
            "clock_id": clock.identity(),
            "clocks": self._clocks,
            "process_start_ns": clock.process_start_ns(),
            "attempt": number("TORCHELASTIC_RESTART_COUNT"),
        }
        try:
            facts.update({key: fact() for key, fact in EXTRAS.items()})
            write_json(self._path, facts)
        except OSError:
            return


def write_json(path: str, value: Any) -> None:
    """Replace `path` in one step, readable by the user alone. Raises OSError."""
    # A name that nobody can guess, never through a link: the folder may be open to others.
    temporary = f"{path}.{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(temporary, flags, 0o600)
    try:
        try:
            _write_all(file, to_json(value).encode("utf-8", "replace"))
        finally:
            os.close(file)
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        os.unlink(temporary)  # noqa: PTH108 - no pathlib in the job
        raise


_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def append_line(path: str, value: Any) -> None:
    """Append one JSON line in a single write, so that lines never interleave. Raises OSError."""
    line = to_json(value).encode("utf-8", "replace") + b"\n"
    file = os.open(path, _APPEND, 0o600)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            line = b"\n" + line  # after a line that a full disk or a kill cut off
        _write_all(file, line)
    finally:
        os.close(file)


def to_json(value: Any) -> str:
    """JSON with text for what it has no form for: NaN, infinities, objects, keys of other types."""
    import json  # noqa: PLC0415 - 9 ms that most programs never need

    try:
        return json.dumps(value, default=str, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        return json.dumps(_plain(value), default=str, ensure_ascii=False, allow_nan=False)


def number(variable: str) -> int | None:
    """Return a whole number from the environment, None if it is unset or something else."""
    try:
        return int(os.environ.get(variable, ""))
    except ValueError:
        return None


def _write_all(file: int, data: bytes) -> None:
    unwritten = memoryview(data)
    while unwritten:
        unwritten = unwritten[os.write(file, unwritten) :]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and str(value) in _NO_NUMBERS:
        return str(value)
    return value
