"""Where bundles are: folders of bundles, and names with a host's name in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from grpo_doctor.errors import OutputError, TraceError
from grpo_doctor.hang.collection.bundle.parts import ARCHIVES, EVIDENCE
from grpo_doctor.hang.collection.bundle.reading import read
from grpo_doctor.hang.multihost import same_job
from grpo_doctor.hang.multihost.visits import same_processes
from grpo_doctor_probes.evidence import Job

_HOST = "{host}"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._\-]+")
_LONGEST_NAME = 64
_ALL_HOSTS = "all-hosts"
_MOST_OF_A_NAME = 10_000


def with_host(path: Path, job: Job, number: int = 1) -> Path:
    """The path with `{host}` replaced: each host of a job writes a bundle of its own.

    A host may call itself anything: what could lead elsewhere in the file system is left out.
    `number` is told from 2 on, for hosts that call themselves alike.
    """
    if _HOST not in str(path):
        return path
    name = _ALL_HOSTS if len(job.placements) > 1 else job.host
    safe = _NOT_IN_NAMES.sub("_", name).lstrip(".-")[:_LONGEST_NAME] or "host"
    return Path(str(path).replace(_HOST, safe if number == 1 else f"{safe}-{number}"))


def own_place(path: Path, job: Job) -> Path:
    """Where this host keeps its bundle, taken before another one of the same name can: that would
    replace it. Its own of an earlier look, and what is of another job, is replaced.
    """
    if _HOST not in str(path):
        return path
    places = (with_host(path, job, number) for number in range(1, _MOST_OF_A_NAME))
    found = next((one for one in places if _taken(one) or _is_free(one, job)), None)
    if found is None:
        raise OutputError(f"{with_host(path, job)} and all names like it are taken. Give another.")
    return found


def _taken(place: Path) -> bool:
    """Whether nobody had it and we have it now; what can't be made, writing it will name."""
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.name.endswith(ARCHIVES):
            place.open("xb").close()
        else:
            place.mkdir(mode=0o700)
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def _is_free(place: Path, job: Job) -> bool:
    """Whether what is there may be replaced. What can't be read, another host may be writing."""
    try:
        there = read(place).job
    except TraceError:
        return False
    return same_processes(there, job) or not same_job.fits(there, job)


def bundles_in(paths: Sequence[Path]) -> tuple[Path, ...]:
    """These bundles, and those in a folder that is no bundle itself, each once."""
    found: dict[Path, None] = {}
    for path in paths:
        inner = [] if _may_be_bundle(path) else _inside(path)
        found.update(dict.fromkeys(inner or [path]))
    return tuple(found)


def _inside(folder: Path) -> list[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [entry for entry in entries if _may_be_bundle(entry)]


def _may_be_bundle(path: Path) -> bool:
    try:
        if path.is_dir():
            return (path / EVIDENCE).exists()
        return path.name.endswith(ARCHIVES) and path.is_file()
    except OSError:  # another user's, whom reading it names
        return True
