from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.trace.merge import hook_notes


def rank_file(spans: list[str], absent: list[str], **more: Any) -> dict[str, Any]:
    trl = {"version": "9.9", "spans": spans, "absent": absent}
    return {"hooks": {"packages": {"trl": trl}, **more}}


def test_a_phase_that_a_version_does_not_show_is_said_once_for_all_ranks() -> None:
    files = [rank_file(["rollout/generate"], ["reward", "rollout"])] * 2
    (note,) = hook_notes(files, ("train",))
    assert note.startswith("phase `reward` is not seen in this version of trl 9.9")


def test_what_was_recorded_under_its_own_name_is_not_missing() -> None:
    assert not hook_notes([rank_file([], ["reward"])], ("reward/length",))


def test_a_part_of_a_phase_is_no_phase() -> None:
    assert not hook_notes([rank_file(["train"], ["train/loss", "optimizer/clip"])], ())


def test_another_framework_that_shows_the_phase_is_enough() -> None:
    file = rank_file([], ["optimizer"])
    file["hooks"]["packages"]["deepspeed"] = {"version": "1", "spans": ["optimizer"], "absent": []}
    assert not hook_notes([file], ())


@pytest.mark.parametrize(
    ("framework", "expected"),
    [("verl", False), ("trl", True), ("ms-swift", True), ("unknown", True)],
)
def test_of_frameworks_that_do_not_train_nothing_is_missed(framework: str, expected: bool) -> None:
    assert bool(hook_notes([rank_file([], ["reward"])], (), framework)) is expected


def test_a_hook_that_failed_is_said() -> None:
    assert hook_notes([rank_file([], [], problems=["trl: KeyError: 'x'"])], ()) == [
        "a hook failed, so a phase may be missing: trl: KeyError: 'x'"
    ]


def test_strange_rank_files_say_nothing() -> None:
    assert not hook_notes([{}, {"hooks": 3}, {"hooks": {"packages": {"trl": []}}}], ())


def test_of_two_phases_the_one_that_is_seen_is_not_missing() -> None:
    notes = hook_notes([rank_file(["rollout/generate"], ["reward", "rollout", "sync"])], ("sync",))
    assert [note.split("`")[1] for note in notes] == ["reward"]
