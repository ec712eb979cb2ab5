"""A small sample of `python -m tests.treat`: a job with a handicap; the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.treat.__main__ import Row, row_of, table, treated
from tests.treat.jobs import jobs

ROW = Row("demo", True, "--x 1", "-40%", "yes", 5, 2.5, "Kept --x 1.")


def test_the_table_counts_jobs_and_healthy_runs() -> None:
    healthy = Row("healthy: trl, run 1", False, "--y 2", "-9%", "no", 5, 2.0, "")
    text = table([ROW, healthy])
    assert "found in 1 of 1 jobs; nothing was kept in 0 of 1 runs of healthy jobs" in text
    assert "| demo | `--x 1` | -40% | yes |  | 5 | 2.5 |" in text


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_of_a_job_with_a_handicap_nothing_else_is_kept(tmp_path: Path) -> None:
    """On two quiet cores it is found within the budget; a busy machine may not get that far."""
    (job,) = (job for job in jobs(tmp_path) if job.name == "trainer: loader processes 0 to 2")
    card = treated(job, tmp_path / "treated", "3m")
    row = row_of(job.name, job, card)
    assert row.right or row.kept == "nothing", row
    measured = [trial for trial in card["trials"] if trial["state"] == "measured"]
    assert {"survey", "before", "after"} <= {trial["side"] for trial in measured}, card["trials"]
