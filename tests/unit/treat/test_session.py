"""A whole treatment of jobs made in code: what is tried, kept, rolled back, refused, continued."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from grpo_doctor.launches import read
from grpo_doctor.treat import session as sessions
from grpo_doctor.treat.candidates import changes_in
from grpo_doctor.treat.session import Doctor, NothingMeasuredError, Session
from grpo_doctor_reports.schema.treat import TreatDocument
from tests.unit.findings.example_runs import without_vllm
from tests.unit.treat.made_job import Job

WORDS = ("--dataset", "d.jsonl", "--dataloader_num_workers", "0", "--output_dir", "mine")
WORKERS = "--dataloader_num_workers 4"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    made = Job()
    monkeypatch.setattr(sessions, "run_trial", made)
    monkeypatch.setattr(time, "monotonic", lambda: made.now_s)
    return made


def session(
    folder: Path, document: TreatDocument | None = None, refusal: str | None = None,
    budget_s: float = 1800.0,
) -> Session:  # fmt: skip
    def reader(words: Sequence[str]) -> object:
        return read(words, environment={}, versions={})

    doctor = Doctor(
        read=reader,  # type: ignore[arg-type]
        refusal=lambda words: refusal if WORKERS in " ".join(words) else None,
        keep=lambda _: None,
        say=lambda _: None,
    )
    new = TreatDocument(framework="bundled", budget_s=budget_s)
    return Session(folder, WORDS, read(WORDS, environment={}), doctor, document or new)


def states(document: TreatDocument) -> dict[str, str]:
    return {change.text: change.state for change in document.changes}


def test_what_gains_is_kept_and_proved_by_pairs(job: Job, tmp_path: Path) -> None:
    document = session(tmp_path).run()
    assert states(document)[WORKERS] == "kept"
    assert [trial.side for trial in document.trials] == [
        "survey", "before", "after", "after", "before",
    ]  # fmt: skip
    (kept,) = [change for change in document.changes if change.state == "kept"]
    assert kept.measured
    assert kept.measured.mid == pytest.approx(100 * (3.05 / 6 - 1), abs=3)
    assert kept.as_predicted is not None
    assert " ".join(document.result) == "--dataset d.jsonl " + WORKERS + " --output_dir mine"
    assert document.state == "ended"
    assert document.verdict.startswith(f"Kept {WORKERS}: step time \N{MINUS SIGN}")


def test_each_trial_has_its_own_output_folder_and_number_of_steps(job: Job, tmp_path: Path) -> None:
    session(tmp_path).run()
    folders = [words[words.index("--output_dir") + 1] for words in job.trials]
    assert len(set(folders)) == len(folders)
    assert all(Path(folder).is_relative_to(tmp_path) for folder in folders)
    assert all("--max_steps" in words for words in job.trials)


def test_a_change_without_the_predicted_gain_is_rolled_back(job: Job, tmp_path: Path) -> None:
    job.after_s = job.wait_s
    document = session(tmp_path).run()
    assert states(document)[WORKERS] == "rolled back"
    assert list(document.result) == list(WORDS)


def test_a_gain_that_changes_the_rewards_is_rolled_back(job: Job, tmp_path: Path) -> None:
    job.reward = lambda step, changed: float(np.sin(step)) + 9 * changed
    document = session(tmp_path).run()
    (change,) = [c for c in document.changes if c.text == WORKERS]
    assert change.state == "rolled back"
    assert "reward diverges at step" in change.why


@pytest.mark.parametrize(("first", "state"), [(7, "rolled back"), (8, "kept")])
def test_only_the_first_steps_have_to_stay_bit_identical(
    job: Job, tmp_path: Path, first: int, state: str
) -> None:
    """Of ms-swift 4.6 with loader processes, step 97 of 96 rows a pass had other samples."""
    job.reward = lambda step, changed: float(np.sin(step)) + 1e-9 * (changed and step >= first)
    assert states(session(tmp_path).run())[WORKERS] == state


def test_what_check_refuses_is_never_run(job: Job, tmp_path: Path) -> None:
    document = session(tmp_path, refusal="It probably does not fit").run()
    assert states(document)[WORKERS] == "refused"
    assert not any(WORKERS in " ".join(words) for words in job.trials)


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        ({2: "failed"}, "kept"),  # once: run again
        ({2: "failed", 4: "failed"}, "rolled back"),
        ({2: "out of memory"}, "rolled back"),
        ({1: "failed"}, "kept"),
    ],
)
def test_trials_that_fail_are_a_result(
    ends: dict[int, str], state: str, job: Job, tmp_path: Path
) -> None:
    job.ends = ends
    document = session(tmp_path).run()
    assert states(document)[WORKERS] == state, document.changes
    assert document.state == "ended"


def test_a_command_that_fails_by_itself_ends_it(job: Job, tmp_path: Path) -> None:
    job.ends = dict.fromkeys((1, 2, 3), "failed")
    made = session(tmp_path)
    with pytest.raises(NothingMeasuredError, match="trials without a change failed"):
        made.run()
    assert made.document.state == "failed"


def test_a_first_run_without_steps_ends_it_with_the_log(job: Job, tmp_path: Path) -> None:
    job.ends = {0: "no steps"}
    with pytest.raises(NothingMeasuredError, match=r"it says so.*job\.log"):
        session(tmp_path).run()


def test_the_budget_ends_it_before_a_trial_that_would_be_late(job: Job, tmp_path: Path) -> None:
    document = session(tmp_path, budget_s=100.0).run()
    assert document.state == "out of budget"
    assert len(job.trials) == 1
    assert "continue" in document.next_step


def test_a_slow_first_start_leaves_trials_that_fit_the_budget(job: Job, tmp_path: Path) -> None:
    """A budget of 26 minutes ended after one trial: the survey's start took 190 s, others 30 s."""
    job.first_start_s = 200.0
    document = session(tmp_path, budget_s=1560.0).run()
    assert document.steps == 8
    assert states(document)[WORKERS] == "kept"


@pytest.mark.parametrize(
    ("packages", "state"),
    [((), "untried"), (("torch",), "refused"), (("torch", "vllm"), "untried")],
)
def test_vllm_is_not_tried_where_it_is_not_installed(packages: tuple[str, ...], state: str) -> None:
    build = without_vllm()
    build.run_facts = {"versions": dict.fromkeys(packages, "1.0")}
    by_finding = {change.finding: change for change in changes_in(build.build())}
    assert by_finding["GD003"].state == state
    assert ("not installed" in by_finding["GD003"].why) == (state == "refused")


def test_ctrl_c_loses_nothing_and_the_same_folder_continues(job: Job, tmp_path: Path) -> None:
    def interrupt(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    job.on_trial = interrupt
    made = session(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert made.document.state == "interrupted"
    assert len(made.document.trials) == 3
    job.on_trial = lambda _: None
    document = session(tmp_path, replace(made.document, state="running")).run()
    assert states(document)[WORKERS] == "kept"
    assert [trial.side for trial in document.trials].count("survey") == 1


def test_a_dry_run_starts_nothing(job: Job, tmp_path: Path) -> None:
    document = session(tmp_path).plan()
    assert not job.trials
    assert "--max_steps" in document.result
