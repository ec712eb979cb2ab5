"""Whether the job can be saved is said of what stands, and of nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.decision.render.document import with_layout, with_spelled_fixes, with_timeout
from grpo_doctor.hang.dumps import GroupSeen, Recording, Recordings
from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.view import JobView
from grpo_doctor.hang.verdict import Fix, State, Verdict
from tests.evidence import EvidenceBuilder


def verdict(state: State, cause: str) -> Verdict:
    return Verdict(state=state, cause=cause, culprits=(1,), confidence=0.9, summary="Rank 1 waits.")


@pytest.mark.parametrize(
    ("framework", "fix", "spelling"),
    [
        (
            "trl",
            Fix("Load here.", "dataload.num_workers"),
            "dataloader_num_workers=0 in GRPOConfig(...)",
        ),
        ("ms-swift", Fix("Load here.", "dataload.num_workers"), "--dataloader_num_workers 0"),
        ("trl", Fix("As told.", "dataload.num_workers", "workers=3"), "workers=3"),
        ("trl", Fix("Another one.", "vllm.max_model_len"), None),  # no value is known
        ("trl", Fix("No option."), None),
        ("unknown", Fix("Load here.", "dataload.num_workers"), None),
    ],
)
def test_an_option_is_spelled_as_its_framework_takes_it(
    framework: str, fix: Fix, spelling: str | None
) -> None:
    outcome = Verdict(state="stuck", cause="x", confidence=0.9, summary="x", fixes=(fix,))
    job = EvidenceBuilder(framework=framework).build().job
    assert [fix.spelling for fix in with_spelled_fixes(outcome, job).fixes] == [spelling]


def in_tensor_parallel() -> JobView:
    """Of 4 ranks two each are parallel by tensors."""
    axes = {"tp": ((0, 1), (2, 3)), "dp": ((0, 2), (1, 3))}
    groups = tuple(
        GroupSeen(f"{axis}{number}", f"mesh_{axis}", ranks)
        for axis, members in axes.items()
        for number, ranks in enumerate(members)
    )
    built = view.build(EvidenceBuilder().build())
    return replace(built, recordings=Recordings((Recording(0, groups=groups),)))


@pytest.mark.parametrize(
    ("culprits", "summary", "layouts"),
    [
        ((), "Rank 1 waits.", 0),
        ((1,), "Rank 1 (TP 1, DP 0) waits.", 1),
        ((1, 2), "Rank 1 waits.", 2),
        ((9,), "Rank 1 waits.", 0),
    ],
)
def test_the_only_culprit_is_named_with_its_place_in_the_layout(
    culprits: tuple[int, ...], summary: str, layouts: int
) -> None:
    outcome = Verdict(
        state="stuck", cause="x", culprits=culprits, confidence=0.9, summary="Rank 1 waits."
    )
    placed = with_layout(in_tensor_parallel(), outcome)
    assert placed.summary == summary
    assert [item.source for item in placed.evidence] == ["layout"] * layouts


@pytest.mark.parametrize(
    ("framework", "options", "waited_s", "text"),
    [
        ("trl", " --x 1", 600.0, "of 30 min ends the job in 20 min; longer: --ddp_timeout 3600"),
        ("trl", "", 600.0, "20 min; longer: ddp_timeout=3600 in GRPOConfig(...)"),
        ("unknown", "", 600.0, "ends the job in 20 min; longer: init_process_group(timeout=...)"),
        ("bundled", "", 1900.0, "of 30 min has passed; longer: --ddp_timeout 3600"),
    ],
)
def test_the_time_out_of_an_open_operation_is_named(
    framework: str, options: str, waited_s: float, text: str
) -> None:
    build = EvidenceBuilder(framework=framework)
    for process in build.processes.values():
        process.member = replace(process.member, command=process.member.command + options)
    build.waited_s = waited_s
    built = view.build(build.build())
    (item,) = with_timeout(built, verdict("slow", "reward-blocked")).evidence
    assert (item.source, item.text.endswith(text)) == ("time-out", True), item.text
    assert with_timeout(built, verdict("healthy", "")).evidence == ()
