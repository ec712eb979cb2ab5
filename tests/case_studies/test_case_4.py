"""What the end-to-end treatment rests on; the treatment itself is `make case-studies`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.case_studies import case_4
from tests.case_studies.commandline import NotFlagsError, flags_in, followed, launch, spelled
from tests.case_studies.followed import Followed, all_followed, joint, worth_following
from tests.case_studies.promises import promises
from tests.case_studies.recorded import Recorded
from tests.case_studies.table import story
from tests.case_studies.treatment import Treated

OFF = "--offload_optimizer false --offload_model false"
WORKERS = "--dataloader_num_workers 4"


def small() -> dict[str, tuple[str, ...]]:
    command = launch(case_4.COMMAND)
    return case_4.small_flags(command.flags, Path("photographs.jsonl"), Path("out"))


def fix(spelling: str, mid: float | None, safety: str = "same-math") -> dict[str, Any]:
    predicted = None if mid is None else {"low": mid - 5, "mid": mid, "high": mid + 5}
    return {"spelling": spelling, "predicted": predicted, "safety": safety}


def finding(rule: str, *fixes: dict[str, Any]) -> dict[str, Any]:
    return {"id": rule, "title": rule, "fixes": list(fixes)}


def document(step_s: float, **more: Any) -> dict[str, Any]:
    phases = {"dataload": {"work_seconds": 1.0}}
    return {"summary": {"step_time_s": step_s, "phases": phases}, "findings": [], **more}


SICK = document(
    4.0,
    findings=[
        finding("GD001", fix(OFF, -20.0)),
        finding("GD002", fix(WORKERS, -38.0)),
        finding("GD011", fix("--gc_collect_after_offload false", -15.0)),
        finding("GD020", fix("--offload_model true", -30.0)),
        finding("GD032", fix("scale the images down once, on disk", -30.0)),
        finding("GD033", fix("--reward_num_workers 4", None)),
        finding("GD034", fix("--beta 0", -30.0, "changes-algorithm")),
        finding("GD035", fix("--reward_num_workers 2", -1.0)),
    ],
    whatif={
        "fixes": [
            {"index": 0, "finding": "GD001", "spelling": OFF},
            {"index": 1, "finding": "GD002", "spelling": WORKERS},
            {"index": 2, "finding": "GD011", "spelling": "--gc_collect_after_offload false"},
        ],
        "sets": [
            {"fixes": [0, 1], "low": -60.0, "mid": -55.0, "high": -50.0},
            {"fixes": [0, 1, 2], "low": -62.0, "mid": -56.0, "high": -51.0},
        ],
    },
)


def test_the_small_run_is_the_users_with_every_difference_told() -> None:
    from grpo_doctor_trainer.flags import parse

    config = parse(spelled(small()), 2)
    assert (config.model, config.deepspeed) == ("embedded-vl", "zero3_offload")
    assert config.offload_model
    assert config.offload_optimizer
    assert config.dataloader_num_workers == 0
    assert (config.top_k, config.num_generations) == (80, 4)  # carried over
    assert all(why for _, why in case_4.INSTEAD.values())


def test_a_fix_changes_the_command_line_as_printed_and_nothing_else() -> None:
    before = small()
    after = followed(before, OFF)
    assert after["offload_model"] == after["offload_optimizer"] == ("false",)
    assert {n for n in after if after[n] != before.get(n)} == {"offload_model", "offload_optimizer"}


@pytest.mark.parametrize("words", ["make it faster", "--offload_model", "set x to 4 --y 2", ""])
def test_words_are_no_flags(words: str) -> None:
    with pytest.raises(NotFlagsError):
        flags_in(words.split())


def test_the_reader_follows_what_is_a_flag_same_mathematics_and_worth_it() -> None:
    chosen = worth_following(SICK)
    assert [fix.finding for fix in chosen] == ["GD001", "GD002", "GD011"]
    flags = all_followed(small(), chosen)
    assert flags["offload_model"] == ("false",)  # the graver finding's
    assert flags["dataloader_num_workers"] == ("4",)


def test_what_they_bring_together_is_the_documents_own_number() -> None:
    change = joint(SICK, worth_following(SICK))
    assert change is not None
    assert (change.low, change.mid, change.high) == (-62.0, -56.0, -51.0)
    assert change.holds(-51.0)
    assert not change.holds(-50.9)
    strange = Followed("GD099", "", "--x 1", -1, -1, -1)
    assert joint(SICK, [*worth_following(SICK), strange]) is None


def treated(after_s: float) -> Treated:
    fixes = tuple(worth_following(SICK))
    before, after = Recorded(Path("before"), SICK), Recorded(Path("after"), document(after_s))
    return Treated(before, after, fixes, joint(SICK, fixes))


def test_promises_are_kept_or_missed_by_what_was_measured() -> None:
    assert [p.kept for p in promises(treated(1.8))] == [True, True, True]
    assert [p.kept for p in promises(treated(2.1))] == [True, False, False]
    assert [p.kept for p in promises(treated(1.0))] == [True, True, False]


def test_the_story_has_before_predicted_after_and_what_stands_in() -> None:
    text = story(treated(1.8), promises(treated(1.8)))
    row = next(line for line in text.splitlines() if line.startswith("the whole step"))
    assert row.split() == ["the", "whole", "step", "4.00", "1.76", "(1.5-2.0)", "1.80"]
    assert all(stand_in in text for stand_in in case_4.STAND_INS)
    assert "MISSED" not in text
    assert "MISSED" in story(treated(3.9), promises(treated(3.9)))
