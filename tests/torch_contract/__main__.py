"""Reads torch's wheels: `python -m tests.torch_contract 2.13.0 2.14.1`.

Downloads one wheel after the other (500 to 900 MB each, deleted when it is read; half a minute),
without its dependencies, and needs no GPU: headers and symbol tables are read, nothing is run.
Prints what each promises; with `--write` it becomes a row of `torches.json`, which a quick test
holds against the code.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grpo_doctor_probes.flight.ring import MUTEX_BYTES
from tests.torch_contract.promises import TABLE, read_wheel


def main() -> int:
    """0, or 1 where a wheel could not be had."""
    parser = argparse.ArgumentParser(prog="python -m tests.torch_contract", description=__doc__)
    parser.add_argument("versions", nargs="+", metavar="VERSION", help="as in `torch==VERSION`")
    parser.add_argument("--python", default="3.11", help="whose wheel, default 3.11")
    parser.add_argument("--machine", choices=MUTEX_BYTES, default="x86_64")
    parser.add_argument("--write", action="store_true", help="into torches.json")
    arguments = parser.parse_args()
    failed = 0
    for version in arguments.versions:
        with tempfile.TemporaryDirectory() as folder:
            wheel = _download(version, arguments, Path(folder))
            if wheel is None:
                failed = 1
                continue
            row = asdict(read_wheel(wheel))
        sys.stdout.write(f"{version}: {json.dumps(row, indent=1)}\n")
        if arguments.write:
            _write(f"{version} {arguments.machine}", row)
    return failed


def _write(torch: str, row: dict[str, Any]) -> None:
    """Puts a row into the table, in the order of machines and versions."""
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    rows = sorted({**table, torch: row}.items(), key=lambda item: _numbers(item[0]))
    TABLE.write_text(json.dumps(dict(rows), indent=1) + "\n")


def _numbers(torch: str) -> tuple[str, tuple[int, ...]]:
    version, _, machine = torch.partition(" ")
    return machine, tuple(int(part) for part in version.split("."))


def _download(version: str, wanted: argparse.Namespace, folder: Path) -> Path | None:
    """The wheel; of the index alone, as other places have builds without CUDA."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
    which = ["--python-version", wanted.python, "--platform", f"manylinux_2_28_{wanted.machine}"]
    few = ["--no-deps", "--only-binary=:all:", *which, "-d", str(folder)]
    environment = {**os.environ, "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(
        [*pip, *few, f"torch=={version}"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    wheel = next(iter(sorted(folder.glob("torch-*.whl"))), None)
    if wheel is None:
        lines = done.stderr.strip().splitlines() or ["pip said nothing"]
        sys.stderr.write(f"no wheel of torch {version}: {lines[-1]}\n")
    return wheel


if __name__ == "__main__":
    sys.exit(main())
