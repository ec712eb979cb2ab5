"""Virtual environments with one torch each, made from the package index and thrown away after."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def with_torch(version: str, folder: Path, python: str = sys.executable) -> Iterator[Path]:
    """Its Python. One that `folder` has already is used, and kept."""
    root = folder / f"torch-{version}"
    own = not root.exists()
    try:
        if own:
            _make(root, version, python)
        yield root / "bin" / "python"
    finally:
        if own:
            shutil.rmtree(root, ignore_errors=True)


def _make(root: Path, version: str, python: str) -> None:
    subprocess.run([python, "-m", "venv", str(root)], check=True)
    # CUDA builds bring 5 GB of libraries, without which they can't be imported.
    install = ["install", "--quiet", "--no-compile", "--no-cache-dir", f"torch=={version}"]
    subprocess.run([str(root / "bin" / "python"), "-m", "pip", *install], check=True)
