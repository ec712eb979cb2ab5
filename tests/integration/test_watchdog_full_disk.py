"""What the watchdog says and keeps where the disk of its run directory is full."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from grpo_doctor.hang.collection import bundle
from tests.integration.test_watchdog import read_until
from tests.integration.test_watchdog_foreign import PATIENCE_S, foreign, go

pytest.importorskip("torch", reason="needs the trainer extra")
pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_hang_is_told_and_kept_elsewhere_where_the_disk_is_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "run").symlink_to(disk)
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "grpo-doctor-test", str(disk)]
    subprocess.run(mount, check=True)
    try:
        with foreign(tmp_path, "stop", "--hang-after", "4") as process:
            fill(disk)
            go(tmp_path)
            report = read_until(process, "attach --replay")
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=PATIENCE_S)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
    assert "Rank 1 is stopped" in report, report
    bundle_path = Path(report.rsplit("attach --replay ", 1)[1].strip())
    try:
        assert bundle.read(bundle_path).job.ranks()
        assert not bundle_path.is_relative_to(tmp_path)
        assert bundle_path.stat().st_mode & 0o077 == 0
    finally:
        shutil.rmtree(bundle_path)
    assert "can't write run.json" in stderr
    assert "internal error" not in stderr


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
