"""What a process has mapped: its program and libraries, and which Python and torch they are."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.memory.maps import Mapping, mapped

_TORCH_LIBRARY = re.compile(r"/torch/lib/libtorch(?:_cpu|_python|_cuda)?\.so$")
_PYTHON = re.compile(r"(?:lib)?python(\d\.\d+)")
_VERSION = re.compile(
    r"""^__version__\s*(?::[^=]*)?=\s*['"]([0-9A-Za-z.+_\-]{1,40})['"]""", re.MULTILINE
)
_VERSION_FILE_LIMIT_BYTES = 65536


@dataclass(frozen=True, slots=True)
class File:
    """A mapped file and the lowest address where it begins."""

    path: str
    start: int


@dataclass(frozen=True, slots=True)
class Modules:
    """The files that a process has mapped from their beginning: its program and libraries."""

    files: tuple[File, ...]
    torch_folder: str = ""

    @property
    def has_torch(self) -> bool:
        """Whether libtorch is mapped."""
        return bool(self.torch_folder)


def read_modules(proc: Path, pid: int) -> Modules | None:
    """From /proc/PID/maps; None where that is refused, or the process has gone."""
    with contextlib.suppress(OSError):
        return modules_of(mapped(pid, proc))
    return None


def modules_of(mappings: Iterable[Mapping]) -> Modules:
    """The files among all that is mapped."""
    starts: dict[str, int] = {}
    for one in mappings:
        if one.offset == 0 and one.path.startswith("/"):
            starts.setdefault(one.path.removesuffix(" (deleted)"), one.start)
    torch = next((path for path in starts if _TORCH_LIBRARY.search(path)), "")
    return Modules(
        files=tuple(File(path, start) for path, start in starts.items()),
        torch_folder=torch.rpartition("/lib/")[0],
    )


def python_version(executable: str, modules: Modules | None) -> str:
    """`3.11`, or empty: from the program's name, libpython, or where its libraries are."""
    paths = [executable] + [file.path for file in (modules.files if modules else ())]
    for path in paths:
        if found := _PYTHON.search(path):
            return found[1]
    return ""


def torch_version(proc: Path, pid: int, modules: Modules | None) -> str:
    """From torch/version.py as the process itself would read it, or empty."""
    if modules is None or not modules.has_torch:
        return ""
    return _version_in(f"{proc}/{pid}/root{modules.torch_folder}/version.py")


@functools.lru_cache(maxsize=256)
def _version_in(path: str) -> str:
    with contextlib.suppress(OSError), Path(path).open("rb") as file:
        found = _VERSION.search(file.read(_VERSION_FILE_LIMIT_BYTES).decode("utf-8", "replace"))
        return found[1] if found else ""
    return ""
