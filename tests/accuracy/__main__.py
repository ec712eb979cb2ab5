"""`python -m tests.accuracy`: how right predictions are, by running what they predict."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.accuracy import bench, table
from tests.accuracy.fixes import FIXES
from tests.pages import put_section
from tests.recorded import workshop
from tests.recorded.forks import ROOT


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.accuracy",
        description="Applies fixes to real runs of the bundled trainer and compares the change "
        "with what was predicted from the run before.",
    )
    add = parser.add_argument
    add("--only", nargs="+", default=[], metavar="PART", help="of the fixes' names")
    add("--pairs", type=int, default=5, metavar="N", help="paired runs of each fix")
    add("--seed", type=int, default=100, metavar="N", help="of the first pair")
    add("--write", type=Path, metavar="PAGE", help="write the table into this page's section")
    add("--json", type=Path, metavar="FILE", help="write every pair there")
    add("--check", action="store_true", help="exit code 1 where a goal is missed")
    return parser.parse_args()


def main() -> int:
    """0, or 1 with --check and a goal missed."""
    arguments = _arguments()
    words = arguments.only
    fixes = [
        fix
        for fix in FIXES
        if fix.possible and (not words or any(word in fix.name for word in words))
    ]
    seeds = range(arguments.seed, arguments.seed + arguments.pairs)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="accuracy-") as name:
        folder = Path(name)
        make = [sys.executable, "-m", "tests.accuracy.inputs", str(folder / "inputs")]
        subprocess.run(make, cwd=ROOT, check=True, capture_output=True)
        pairs = []
        with workshop() as shop:
            for pair in bench.run_all(shop, fixes, folder / "inputs", folder, seeds):
                pairs.append(pair)
                _say(bench.line(pair))
                _keep(arguments.json, pairs)
    command = "python -m tests.accuracy " + " ".join(sys.argv[1:])
    minutes = (time.monotonic() - began) / 60
    section = table.section(pairs, command.strip(), minutes)
    _say(section)
    if arguments.write:
        put_section(ROOT / arguments.write, table.SECTION, section)
    missed = table.missed(pairs)
    for text in missed:
        _say(f"goal missed: {text}")
    return int(arguments.check and bool(missed))


def _keep(file: Path | None, pairs: Sequence[bench.Pair]) -> None:
    if file:
        file.write_text(json.dumps([asdict(pair) for pair in pairs], indent=1))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
