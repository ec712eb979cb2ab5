"""`make gpu` as far as it goes without a GPU: gloo in NCCL's place."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.__main__ import PARTS, ROOT, main, section
from tests.gpu.parts import Check, Outcome, State, Wish, cuda_problem


def dry_run(*arguments: str) -> tuple[int, list[str]]:
    """The exit code and the lines of a dry run."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu", "--dry-run", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.heavy
def test_a_fault_in_real_ranks_is_judged_and_written_down(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Measurements\n", encoding="utf-8")
    code, lines = dry_run(
        "--only", "faults", "--cases", "stopped", "--ranks", "3", "--write", str(page)
    )
    assert lines[0].startswith("passed   faults: stopped: stuck, rank-stopped, ranks 2")
    assert lines[1] == "1 passed, 0 failed, 0 skipped"
    assert code == 0
    text = page.read_text(encoding="utf-8")
    assert "- **stopped**, passed: stuck, rank-stopped, ranks 2" in text
    assert "A dry run" in text


@pytest.mark.skipif(not cuda_problem(), reason="there is a GPU: these parts would run")
@pytest.mark.parametrize("part", ["readings", "events", "phases"])
def test_what_needs_a_gpu_says_so(tmp_path: Path, part: str) -> None:
    outcome = Outcome()
    importlib.import_module(f"tests.gpu.{part}").run(Wish(tmp_path, dry=True), outcome)
    (check,) = outcome.checks
    assert (check.state, check.text) == ("skipped", cuda_problem())


@pytest.mark.parametrize(
    ("states", "code", "last"),
    [
        (["skipped", "passed"], 0, "1 passed, 0 failed, 1 skipped"),
        (["failed", "skipped"], 1, "0 passed, 1 failed, 1 skipped"),
    ],
)
def test_only_a_failure_fails(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    states: list[State],
    code: int,
    last: str,
) -> None:
    parts = dict(zip(("readings", "events"), states, strict=True))
    monkeypatch.setattr(sys, "argv", ["tests.gpu", "--dry-run", "--only", *parts])
    monkeypatch.setattr(
        "tests.gpu.__main__._run", lambda part, _asked: [Check(part, parts[part], "")]
    )
    assert main() == code
    assert capsys.readouterr().out.splitlines()[-1] == last


@pytest.mark.heavy
@pytest.mark.slow
def test_a_part_that_breaks_is_a_failure_and_not_an_end() -> None:
    code, lines = dry_run("--only", "faults", "readings", "--cases", "stopped", "--ranks", "0")
    assert code == 1
    assert lines[0].startswith("failed   faults: ")
    assert lines[1].startswith(("skipped", "passed", "failed"))


def test_the_section_has_a_line_for_each_check() -> None:
    checks = {part: [Check("a | b", "passed", "1%\n2%")] for part in PARTS}
    text = section(checks, dry=False)
    assert text.count("- **a | b**, passed: 1% 2%\n") == len(PARTS)
    assert "A dry run" not in text
