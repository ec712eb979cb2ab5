"""Wheels of the frameworks, from the package index into a folder that later runs find again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Each border of a range in the tables, on both sides, and the newest version that was read.
VERSIONS: dict[str, tuple[str, ...]] = {
    "trl": (
        *("0.14.0", "0.15.0", "0.16.0", "0.17.0", "0.18.0", "0.19.0", "0.20.0", "0.21.0"),
        *("0.22.0", "0.23.0", "0.24.0", "0.25.0", "0.26.0", "0.27.0", "0.28.0", "1.0.0"),
        *("1.5.1", "1.6.0", "1.8.0", "1.10.0", "1.15.0", "1.16.0"),
    ),
    "ms-swift": (
        *("3.2.0", "3.2.1", "3.2.2", "3.3.0", "3.4.1", "3.5.0", "3.5.3", "3.6.0", "3.7.0"),
        *("3.9.3", "3.10.0", "3.11.0", "3.12.0", "4.0.0", "4.0.2", "4.0.3", "4.1.0", "4.5.2"),
        *("4.5.3", "4.6.0"),
    ),
    "verl": (
        *("0.1", "0.2.0.post2", "0.3.0.post1", "0.4.0", "0.4.1", "0.5.0", "0.6.0", "0.6.1"),
        *("0.7.0", "0.7.1", "0.8.0", "0.9.0", "0.9.1"),
    ),
    "openrlhf": (
        *("0.6.0", "0.6.1", "0.6.3", "0.6.4", "0.7.0", "0.7.2", "0.8.0", "0.8.1", "0.8.2"),
        *("0.8.4", "0.8.5", "0.8.6", "0.8.7", "0.8.8", "0.8.9", "0.9.0", "0.9.1", "0.9.6"),
        *("0.9.7", "0.9.8", "0.9.9", "0.9.10", "0.10.0", "0.10.1", "0.10.2", "0.11.1", "0.11.2"),
    ),
}


class NoWheelError(Exception):
    """The index is out of reach, or has no such version."""


def folder() -> Path:
    """Where wheels are kept: `GRPO_DOCTOR_WHEELS`, else a folder of the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("GRPO_DOCTOR_WHEELS") or cache / "grpo-doctor" / "wheels")


def wheel(framework: str, version: str) -> Path:
    """The wheel of one version, without its dependencies; downloaded once (up to 2 MB).

    Raises:
        NoWheelError: with pip's last words.
    """
    cache = folder()
    if (path := _cached(cache, framework, version)) is not None:
        return path
    cache.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
    few = ["--timeout", "10", "--retries", "0", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [*pip, *few, "-d", str(cache), f"{framework}=={version}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    path = _cached(cache, framework, version)
    if path is None:
        lines = done.stderr.strip().splitlines() or ["pip said nothing"]
        raise NoWheelError(f"no wheel of {framework} {version}: {lines[-1]}")
    return path


def _cached(cache: Path, framework: str, version: str) -> Path | None:
    return next(iter(sorted(cache.glob(f"{framework.replace('-', '_')}-{version}-*.whl"))), None)
