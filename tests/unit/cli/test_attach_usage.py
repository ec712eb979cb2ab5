"""`attach`: several jobs, none, no permission, and arguments that make no sense."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from grpo_doctor.cli import main
from grpo_doctor_probes import discover
from tests.unit.cli.attached import Captured, job


def test_several_jobs_are_listed_with_the_command_for_each(
    plays: Callable[..., None], capsys: Captured
) -> None:
    plays(job(), job(9_000, "python \x1b[31mother.py\nrm -rf /"))
    assert main(["attach"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "2 jobs run here" in output.err
    assert "grpo-doctor attach 4700" in output.err
    assert "2 ranks (pid 9000, 9001)" in output.err
    assert "\x1b" not in output.err
    assert "\nrm" not in output.err


def test_processes_of_several_jobs_are_listed_as_well(
    plays: Callable[..., None], capsys: Captured
) -> None:
    plays(job(), job(9_000))
    assert main(["attach", "4700", "9001"]) == 2
    assert "2 jobs belong to the given processes; choose one:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [(discover.NoJobError("There is none."), 5), (discover.NoPermissionError("Use sudo."), 4)],
)
def test_no_job_and_no_permission(
    plays: Callable[..., None], capsys: Captured, error: Exception, code: int
) -> None:
    plays(error=error)
    assert main(["attach", "4711"]) == code
    assert capsys.readouterr().err == f"grpo-doctor: {error}\n"


def test_the_parser_needs_nothing_that_is_slow_to_import() -> None:
    code = (
        "import sys; from grpo_doctor.cli.parser import make_parser; make_parser();"
        "slow = {'numpy', 'rich', 'jinja2', 'psutil', 'plotly'} & set(sys.modules);"
        "sys.exit(repr(slow) if slow else 0)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
