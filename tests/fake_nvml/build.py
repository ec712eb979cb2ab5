"""Compiles the stand-in for NVML and runs a program that finds it in place of a driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY = "libnvidia-ml.so.1"


def compiler() -> str | None:
    """A C compiler of this host."""
    return next((path for name in ("gcc", "cc", "clang") if (path := shutil.which(name))), None)


@dataclass(frozen=True, slots=True)
class FakeNvml:
    """A folder that holds the compiled library."""

    folder: Path

    @classmethod
    def build(cls, folder: Path, *defines: str) -> FakeNvml:
        """Compile into `folder`. Raises RuntimeError without a compiler."""
        command = compiler()
        if command is None:
            raise RuntimeError("no C compiler: install gcc or clang")
        folder.mkdir(parents=True, exist_ok=True)
        flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
        names = [f"-D{define}" for define in defines]
        target = str(folder / LIBRARY)
        subprocess.run([command, *flags, *names, "-o", target, str(SOURCE)], check=True)
        return cls(folder)

    def run(
        self, program: str, *arguments: str, orders: str = "", environ: dict[str, str] | None = None
    ) -> str:
        """Run a Python program under these orders; its output. An error of it shows its stderr."""
        config = self.folder / "orders.txt"
        config.write_text(orders)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CUDA_")},
            "LD_LIBRARY_PATH": str(self.folder),
            "FAKE_NVML": str(config),
            **(environ or {}),
        }
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout
