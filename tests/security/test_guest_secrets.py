"""Every way in which a job may get a secret, and everything that is written of the job."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_doctor.cli import main
from tests.unit.probes.record.test_redact import CANARY, LETTERS, SHAPES, WAYS

ARGUMENTS = [*(word for way in WAYS for word in way), *(f"{shape}{LETTERS}" for shape in SHAPES)]
COMMAND = Path(sys.executable).with_name("grpo-doctor")
JOB = f"""
import time, grpo_doctor_probes as g
g.describe("trl", config={{
    "hf_token": "{CANARY}", "openaiKey": "{CANARY}", "deep": {{"a": "--hf_token {CANARY}"}},
    "argv": ["--api_key", "{CANARY}"],
}})
for number in range(3):
    with g.step(number), g.phase("rollout"): time.sleep(0.02)
print("password: {CANARY}")
raise RuntimeError("Authorization: Token {CANARY}")
"""


def told(content: bytes) -> list[bytes]:
    return [word for word in (CANARY.encode(), LETTERS.encode()) if word in content]


def files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            yield path, gzip.decompress(content) if path.suffix == ".gz" else content


def ours(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([COMMAND, *arguments], capture_output=True, check=False)


def test_nothing_that_a_run_leaves_or_reports_has_a_secret_in_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ours("run", "--no-live", "-o", str(run), "--", sys.executable, "-c", JOB, *ARGUMENTS)
    names = {path.name for path, content in files(run) if not told(content)}
    assert {"run.json", "job.json", "trace.json", "report.html"} <= names
    assert [path for path, content in files(run) if told(content)] == []
    for form in ("text", "markdown", "json", "html", "github"):
        report = ours("report", str(run), "--format", form)
        assert report.returncode == 0, form
        assert told(report.stdout + report.stderr) == [], form


@pytest.mark.skipif(sys.platform != "linux", reason="attach reads /proc")
def test_nothing_that_attach_keeps_or_prints_has_a_secret_in_it(tmp_path: Path) -> None:
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "HF_TOKEN": CANARY}
    source = "print(flush=True); import time; time.sleep(600)"
    job = subprocess.Popen(
        [sys.executable, "-c", source, *ARGUMENTS], env=environment, stdout=subprocess.PIPE
    )
    try:
        assert job.stdout is not None
        job.stdout.readline()
        look = ours("attach", str(job.pid), "-o", str(tmp_path / "bundle"))
    finally:
        job.kill()
        job.wait()
    assert told(look.stdout + look.stderr) == []
    written = list(files(tmp_path / "bundle"))
    assert "evidence.json.gz" in {path.name for path, _ in written}
    assert [path for path, content in written if told(content)] == []


@pytest.mark.parametrize("way", [*WAYS, [f"{SHAPES[0]}{LETTERS}"]], ids=lambda way: way[0][:30])
def test_check_prints_no_secret_of_a_launch(
    way: list[str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    launch = ["swift", "rlhf", "--rlhf_type", "grpo", "--model", "m", *way]
    for more in ([], ["--json"], ["--format", "github"]):
        main(["check", *more, "--", *launch])
    out, err = capfdbinary.readouterr()
    assert told(out + err) == []
