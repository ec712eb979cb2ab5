"""A small sample of `python -m tests.treat`: a job with a handicap, one without; the table."""

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
    assert "| demo | `--x 1` | -40% | yes | 5 | 2.5 |" in text


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.timeout(1200)
def test_a_handicap_is_found_and_a_healthy_job_stays_as_it_is(tmp_path: Path) -> None:
    # A quiet machine of two cores needs a minute and a half for the first; a busy one ten.
    names = {"trainer: loader processes 0 to 2": "12m", "healthy: trainer": "3m"}
    chosen = [job for job in jobs(tmp_path) if job.name in names]
    rows = [row_of(job.name, job, treated(job, tmp_path / str(at), names[job.name]))
            for at, job in enumerate(chosen)]  # fmt: skip
    assert [row.job for row in rows] == list(names)
    assert all(row.right for row in rows), rows
