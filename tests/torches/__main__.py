"""The check: `python -m tests.torches 2.8.0 2.15.0`.

Makes an environment per version from the package index (5 GB each while it is checked; the index
has CUDA builds, which run here without a GPU), lets a job of four gloo ranks get stuck in it, and
compares what `attach` says of the job, and of the dump files that this torch writes, with the
truth.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.torches.check import Answer, Result, check
from tests.torches.environments import with_torch


def main() -> int:
    """0, or 1 where something was wrong of any version."""
    parser = argparse.ArgumentParser(prog="python -m tests.torches", description=__doc__)
    parser.add_argument("versions", nargs="+", metavar="VERSION", help="as in `torch==VERSION`")
    parser.add_argument("--in", type=Path, dest="folder", metavar="DIR", help="of environments")
    parser.add_argument("--python", default=sys.executable, help="for the environments")
    parser.add_argument("--bare", action="store_true", help="without asking for the recorder")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="the dump files, by version")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every answer there")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        for version in arguments.versions:
            work = Path(tempfile.mkdtemp(dir=scratch))
            try:
                with with_torch(version, folder, arguments.python) as python:
                    results.append(check(version, python, work, recorder=not arguments.bare))
            except (AssertionError, subprocess.SubprocessError) as problem:
                nothing = Answer("", "", "", (), 0.0, 0.0, 0.0, "")
                results.append(Result(version, nothing, {}, str(problem)))
            _say(results[-1])
            if arguments.keep is not None:
                _keep(work, arguments.keep / f"torch-{version}")
    if arguments.json:
        arguments.json.write_text(
            json.dumps([asdict(result) for result in results], indent=1) + "\n"
        )
    return 0 if all(_is_right(result) for result in results) else 1


def _keep(work: Path, target: Path) -> None:
    for kind in ("pickle", "json"):
        if (work / kind).exists():
            shutil.copytree(work / kind, target, dirs_exist_ok=True)


def _is_right(result: Result) -> bool:
    return result.live.right and all(answer.right for answer in result.files.values())


def _say(result: Result) -> None:
    live, files = result.live, result.files
    read = ", ".join(f"{kind} {_word(answer)}" for kind, answer in files.items())
    cells = (
        result.version,
        live.torch,
        result.problem or _word(live),
        f"{live.confidence:.2f}",
        f"{live.seconds:.1f} s",
        f"{live.max_pause_ms:.1f} ms",
        read,
    )
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    for rank, text in sorted(live.dumps.items()):
        sys.stdout.write(f"    {rank}: {text}\n")
    sys.stdout.flush()


def _word(answer: Answer) -> str:
    if answer.right:
        return f"right ({answer.cause})"
    return f"WRONG: {answer.state} {answer.cause} {answer.culprits} {answer.summary}"


if __name__ == "__main__":
    sys.exit(main())
