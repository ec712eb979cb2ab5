"""Which processes of the job the hooks did not get into, and why.

A Python that they are in has mapped our start-up file (`hooks/startup`): `/proc/PID/maps` shows it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from grpo_doctor_probes.discover.commands import command_text, kind_of
from grpo_doctor_probes.discover.scan import read_process
from grpo_doctor_probes.procs import procfs
from grpo_doctor_probes.procs.printable import printable
from grpo_doctor_probes.record import sidecar
from grpo_doctor_probes.record.rundir import HOOKS_VARIABLE, UNHOOKED_JSONL
from grpo_doctor_probes.supervisor.launch import STARTUP

PERIOD_NS = 1_000_000_000
SURE_NS = 2_000_000_000  # shorter lives, such as a script's question for its GPUs, train nothing
_MARK, _TORCH = b"/hooks/startup/sitecustomize.py", b"/libtorch"
_MAPS_BYTES = 4 << 20
# Those that train or call who trains; engines and servers share the environment of their ranks.
_JUDGED = ("unknown", "ray", "rank")
_OFTEN, _SELDOM = 60, 10  # looks at one that has not loaded torch; then each tenth
_MOST = 64
_REASONS = {"I": "Python was started with -I, which ignores PYTHONPATH",
            "E": "Python was started with -E, which ignores PYTHONPATH"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unhooked:
    """A process without hooks. `reason` and `remedy` are sentences without a full stop."""

    pid: int
    rank: int | None
    command: str
    reason: str
    remedy: str

    def in_words(self) -> str:
        """Return one line for the user."""
        who = f"process {self.pid}" if self.rank is None else f"rank {self.rank} (pid {self.pid})"
        return f"no phases of {who} are recorded: {self.reason}. {self.remedy}."


class HookWatch:
    """Finds them and says each reason once; all go into the run directory."""

    def __init__(self, run_dir: Path, say: Callable[[str], None], proc: Path = Path("/proc")):
        self._file, self._say, self._proc = run_dir / UNHOOKED_JSONL, say, proc
        self._looked_ns: int | None = None
        self._looks: dict[int, int] = {}  # by pid, of those that have not loaded torch
        self._since_ns: dict[int, int] = {}  # by pid, of those without hooks
        self._settled: set[int] = set()
        self.found: list[Unhooked] = []

    def look(self, pids: Collection[int], ranks: Mapping[int, int], now_ns: int) -> None:
        """Look when it is time. `ranks` by pid, of those that are one."""
        if self._looked_ns is not None and now_ns - self._looked_ns < PERIOD_NS:
            return
        self._looked_ns = now_ns
        self._settled &= set(pids)
        for pid in pids:
            if pid in self._settled:
                continue
            looks = self._looks[pid] = self._looks.get(pid, 0) + 1
            due = looks <= _OFTEN or looks % _SELDOM == 0
            if due and self._is_without(pid, now_ns):
                self._settled.add(pid)
                self._report(pid, ranks.get(pid))

    def _is_without(self, pid: int, now_ns: int) -> bool:
        """Return whether it has loaded torch and had no hooks for long enough."""
        try:
            maps = procfs.read(self._proc / str(pid) / "maps", _MAPS_BYTES)
        except OSError:
            return False
        if _TORCH not in maps:
            return False
        if _MARK in maps:
            self._settled.add(pid)
            return False
        return now_ns - self._since_ns.setdefault(pid, now_ns) >= SURE_NS

    def _report(self, pid: int, rank: int | None) -> None:
        process = read_process(self._proc, pid)
        if process is None or kind_of(process.name, process.arguments) not in _JUDGED:
            return
        if any(known.pid == process.parent for known in self.found) or len(self.found) >= _MOST:
            return  # forked by one that is known
        try:
            environ = procfs.read(self._proc / str(pid) / "environ")
        except OSError:
            return
        reason, remedy = explain(process.arguments, procfs.variables(environ))
        if self.found and "::" in process.arguments[0]:
            # A title is written over the variables; its environment is that of who started it.
            reason, remedy = self.found[0].reason, self.found[0].remedy
        command = command_text(process.arguments)[:200]
        own = Unhooked(pid, rank, command, reason, remedy)
        if reason not in {known.reason for known in self.found}:
            self._say(own.in_words())
        self.found.append(own)
        sidecar.append_line(str(self._file), asdict(own))


def explain(
    arguments: tuple[str, ...],
    variables: Mapping[str, str],
    has_file: Callable[[str], bool] = os.path.exists,
) -> tuple[str, str]:
    """Return why the hooks are not in a Python with this command and environment; what to do."""
    flags = _flags(arguments[1:])
    install = f"install grpo-doctor for that Python: {_pip(arguments, variables)}"
    if "S" in flags:
        return "Python was started with -S, which skips all start-up files", "Start it without -S"
    if variables.get(HOOKS_VARIABLE) != "1":
        pass_on = f"Pass {HOOKS_VARIABLE}, {HOOKS_VARIABLE}_RUN_DIR and PYTHONPATH on to it"
        return f"{HOOKS_VARIABLE} is missing from its environment, which was replaced", pass_on
    for flag, reason in _REASONS.items():
        if flag in flags:
            return reason, f"Start it without -{flag}, or {install}"
    path = [entry for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if str(STARTUP) not in path:
        how = f"replaced by {printable(os.pathsep.join(path))}" if path else "unset"
        keep = "Keep `:$PYTHONPATH` at the end of the script's assignment"
        return f"PYTHONPATH was {how}", f"{keep}, or {install}"
    before = path[: path.index(str(STARTUP))]
    other = next((e for e in before if has_file(f"{e}/sitecustomize.py")), None)
    if other is not None:
        return (
            f"{printable(other)}/sitecustomize.py comes first in PYTHONPATH",
            f"Put $PYTHONPATH before {printable(other)} in the script's assignment",
        )
    return "the reason is unknown", install[:1].upper() + install[1:]


def _flags(words: Iterable[str]) -> set[str]:
    """Return the letters of Python's own options, up to the script, `-m` or `-c`."""
    letters: set[str] = set()
    for word in words:
        if not word.startswith("-") or word.startswith("--"):
            break
        for letter in word[1:]:
            if letter in "mcXW":
                break
            letters.add(letter)
        if "m" in word or "c" in word:
            break
    return letters


def _pip(arguments: tuple[str, ...], variables: Mapping[str, str]) -> str:
    program = arguments[0] if arguments else ""
    if not (program.startswith("/") and "python" in os.path.basename(program)):  # noqa: PTH119
        folder = variables.get("VIRTUAL_ENV") or variables.get("CONDA_PREFIX")
        program = f"{folder}/bin/python" if folder else ""
    return (
        f"{printable(program)} -m pip install grpo-doctor" if program else "pip install grpo-doctor"
    )
