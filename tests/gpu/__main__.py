"""Everything that needs a GPU, on one or more: `make gpu`, or `python -m tests.gpu`.

Each part is a process of its own under a limit, so that one that hangs in the driver costs only
itself, and says one line for each thing that it checked.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

from tests.gpu.machine import machine
from tests.gpu.parts import Check, Outcome, Wish
from tests.pages import put_section

ROOT = Path(__file__).resolve().parents[2]
# Modules of this package, with the most seconds that each may take.
PARTS = {
    "readings": 180,
    "events": 180,
    "recorder_call": 600,
    "faults": 1800,
    "phases": 1800,
    "framework": 1500,
    "memory": 1500,
}
SECTION = "gpu"
WORDS = {
    "readings": "NVML under known loads",
    "events": "CUDA events and the recorder",
    "recorder_call": "What attach leaves behind",
    "faults": "Faults in NCCL jobs whose ranks share a card",
    "phases": "The trainer's phases against synchronized time",
    "framework": "TRL under `run`, phases on the device's clock",
    "memory": "Memory as `check` foretells it",
}


def main() -> int:
    """1 where anything failed, else 0: what could not be checked says so and is no failure."""
    arguments = _arguments()
    if arguments.part:
        return _in_child(arguments)
    results: dict[str, list[Check]] = {}
    try:
        for part in arguments.only or PARTS:
            results[part] = _run(part, arguments)
    finally:  # a limit of somebody else's leaves what was measured before it
        if arguments.write and results:
            put_section(arguments.write, SECTION, section(results, dry=arguments.dry_run))
    checks = [check for checks in results.values() for check in checks]
    counts = {
        state: sum(check.state == state for check in checks)
        for state in ("passed", "failed", "skipped")
    }
    _say(", ".join(f"{count} {state}" for state, count in counts.items()))
    return 1 if counts["failed"] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    add = parser.add_argument
    add("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    add("--cases", nargs="+", default=[], metavar="FAULT", help="of the part `faults`")
    add("--ranks", type=int, default=4, metavar="N", help="ranks on one card (default: 4)")
    add("--dry-run", action="store_true", help="without a GPU: gloo in NCCL's place")
    add("--keep", type=Path, metavar="DIR", help="keep the evidence of the faults there")
    add("--write", type=Path, metavar="PAGE", help="write the results there, as a section")
    add("--part", choices=PARTS, help=argparse.SUPPRESS)
    add("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _run(part: str, arguments: argparse.Namespace) -> list[Check]:
    """One part in a process of its own; whatever becomes of that is a line as well."""
    with tempfile.TemporaryDirectory(prefix="grpo-doctor-gpu-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        command = [
            sys.executable, "-m", "tests.gpu", "--part", part, "--folder", str(folder),
            "--ranks", str(arguments.ranks), *(["--dry-run"] if arguments.dry_run else []),
            *(["--cases", *arguments.cases] if arguments.cases else []),
            *(["--keep", str(arguments.keep.resolve())] if arguments.keep else []),
        ]  # fmt: skip
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
        problem = ""
        try:
            code = process.wait(PARTS[part])
            problem = f"its process ended with {code}" if code else ""
        except subprocess.TimeoutExpired:
            problem = f"no end in {PARTS[part]} s"
        finally:
            if process.poll() is None:
                process.terminate()  # so that it ends its ranks
                with suppress(subprocess.TimeoutExpired):
                    process.wait(40)
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        checks = _kept(folder)
        if problem or not checks:
            checks.append(Check("the part", "failed", problem or "it checked nothing"))
            _say(_line(part, checks[-1]))
    return checks


def _line(part: str, check: Check) -> str:
    return f"{check.state:7}  {part}: {check.name}: {check.text}"


def _in_child(arguments: argparse.Namespace) -> int:
    cases = tuple(arguments.cases)
    wish = Wish(arguments.folder, arguments.dry_run, arguments.ranks, cases, arguments.keep)
    outcome = _KeptOutcome(arguments.part, wish.folder)
    try:
        importlib.import_module(f"tests.gpu.{arguments.part}").run(wish, outcome)
    except Exception as error:  # noqa: BLE001 - the other parts go on
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"
        outcome.says("the part", False, text[-900:])
    return 0


class _KeptOutcome(Outcome):
    """Writes each line down and says it at once: a part may hang after it."""

    def __init__(self, part: str, folder: Path) -> None:
        super().__init__()
        self._part = part
        self._folder = folder

    def says(self, name: str, holds: bool, text: str) -> None:
        """Note and write down."""
        super().says(name, holds, text)
        self._keep()

    def skips(self, name: str, why: str) -> None:
        """Note and write down."""
        super().skips(name, why)
        self._keep()

    def _keep(self) -> None:
        rows = json.dumps([asdict(check) for check in self.checks])
        (self._folder / "checks.json").write_text(rows, encoding="utf-8")
        _say(_line(self._part, self.checks[-1]))


def _kept(folder: Path) -> list[Check]:
    try:
        rows = json.loads((folder / "checks.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [Check(**row) for row in rows]


def section(results: dict[str, Sequence[Check]] | dict[str, list[Check]], *, dry: bool) -> str:
    """The results as a section of benchmarks/results/measurements.md."""
    today = datetime.now(timezone.utc).date()
    lines = [f"# {today}, on a GPU: `make gpu`", "", f"{machine()}."]
    if dry:
        lines.append("A dry run: gloo in NCCL's place, nothing was measured on a GPU.")
    for part, checks in results.items():
        lines += ["", f"## {WORDS[part]}", ""]
        lines += [f"- **{check.name}**, {check.state}: {_plain(check.text)}" for check in checks]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return text.replace("\n", " ")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # a part ends its ranks, and all is kept
    sys.exit(main())
