"""GPUs that have failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.causes.candidate import Case
from grpo_doctor.hang.causes.gpu import gpu_faults
from grpo_doctor.hang.model.gpus import Doing, GpuJudgement, GpuState
from grpo_doctor.hang.model.matching.model import Blame
from grpo_doctor.hang.model.view import WaitHistory
from grpo_doctor.hang.verdict import Item
from grpo_doctor_probes.evidence import GpuHolder, GpuLook, LogTail
from tests.evidence import EvidenceBuilder
from tests.unit.hang.causes.proposed import case_of, of_nccl, with_matching, with_view
from tests.verdicts import REWARD, expect, verdict

XID = "NVRM: Xid (PCI:0000:3b:00): "
ERROR = "RuntimeError: CUDA error: an illegal memory access was encountered"


def on_gpus(waited_s: float = 10.0) -> EvidenceBuilder:
    build = EvidenceBuilder()
    build.gpus = [(), ()]
    build.waited_s = waited_s
    return build


def test_ranks_wait_for_one_at_work_and_not_for_a_gpu() -> None:
    build = on_gpus(4.0)
    build.elsewhere(1, REWARD).works(REWARD)
    build.kernel = [
        (5.0, XID + "79, pid='<unknown>', GPU has fallen off the bus."),
        (5.0, XID + "43, pid=102, Ch 00000010"),
        (5.0, XID + "43, pid=101, Ch 00000010"),
    ]
    build.logs = [LogTail(100, "out", 5.0, (ERROR,))]
    assert verdict(build).state == "slow"


@pytest.mark.parametrize(("age_s", "fault"), [(1800.0, True), (1800.5, False)])
def test_a_fault_of_half_an_hour_ago_is_the_oldest_that_counts(age_s: float, fault: bool) -> None:
    build = on_gpus()
    build.kernel = [(age_s, XID + "79, pid=102, GPU has fallen off the bus.")]
    assert (verdict(build).cause == "gpu-fault") is fault
    build = on_gpus()
    build.logs = [LogTail(101, "out", age_s, (ERROR,))]
    assert (verdict(build).cause == "gpu-fault") is fault


@pytest.mark.parametrize(("lines", "fault"), [(4, True), (5, False)])
def test_a_job_that_writes_on_after_an_error_has_survived_it(lines: int, fault: bool) -> None:
    build = on_gpus()
    later = tuple(f"step {number}: done" for number in range(lines))
    build.logs = [LogTail(101, "out", 5.0, ("step 0", ERROR, *later))]
    assert (verdict(build).cause == "gpu-fault") is fault


def test_the_rank_that_a_line_names_counts_and_a_log_of_nobody_does_not() -> None:
    build = on_gpus()
    build.logs = [LogTail(101, "out", 5.0, (f"[rank3]: {ERROR}",))]
    expect(build, "gpu-fault", 3)
    build.logs = [LogTail(900, "out", 5.0, (ERROR,))]
    assert verdict(build).cause != "gpu-fault"


def labelled(case: Case) -> list[tuple[str, tuple[int, ...], str]]:
    return [(label.cause, label.culprits, label.liveness) for label in gpu_faults(case)]


@pytest.mark.parametrize(
    ("longest_gap_s", "age_s", "fault"),
    [(100.0, 110.0, True), (100.0, 110.1, False), (None, 70.0, True), (None, 70.1, False)],
)
def test_a_fault_that_names_nobody_may_have_come_in_the_longest_pause_before(
    longest_gap_s: float | None, age_s: float, fault: bool
) -> None:
    build = on_gpus()
    build.kernel = [(age_s, XID + "79, pid='<unknown>', GPU has fallen off the bus.")]
    case = with_view(case_of(build), wait_history=WaitHistory(10.0, longest_gap_s))
    assert labelled(case) == [("gpu-fault", (), "never-wakes")] * fault


@pytest.mark.parametrize("nccl", [True, False])
def test_a_job_that_never_used_a_gpu_has_none_that_failed(nccl: bool) -> None:
    build = EvidenceBuilder()
    build.logs = [LogTail(101, "out", 5.0, (ERROR,))]
    evidence = build.build()
    assert bool(labelled(case_of(of_nccl(evidence) if nccl else evidence))) == nccl


def gpu(rank: int, doing: Doing) -> GpuState:
    return GpuState((rank,), doing, (Item("gpu", rank, f"GPU {rank} is {doing}"),))


@pytest.mark.parametrize(
    ("rank", "works", "fault"), [(1, False, True), (1, True, False), (9, False, True)]
)
def test_a_gpu_that_is_lost_counts_unless_its_rank_is_at_work_again(
    rank: int, works: bool, fault: bool
) -> None:
    build = on_gpus()
    if works:
        build.elsewhere(1, REWARD).works(REWARD)
    lost = GpuJudgement(gpus=(gpu(0, "unknown"), gpu(rank, "failed")))
    case = with_view(case_of(build), gpus=lost)
    assert labelled(case) == [("gpu-fault", (rank,), "never-wakes")] * fault


# A GPU that the recordings show to hang.


@pytest.mark.parametrize(
    ("rank", "how", "expected"),
    [
        (1, "waits", True),
        (9, "on another host", True),
        (1, "stopped", False),
        (1, "computes", False),
    ],
)
def test_a_gpu_that_does_not_end_is_told_unless_its_host_has_a_reason_of_its_own(
    rank: int, how: str, expected: bool
) -> None:
    build = on_gpus()
    if how == "stopped":
        build.rank(1).state = "T"
    elif how == "computes":
        build.elsewhere(1, REWARD).works(REWARD, moves=False)
    blame = Blame(rank, "shown", "device-hung", f"rank {rank} has not ended it")
    other = Blame(2, "shown", "skipped", "left one out")
    case = with_view(
        with_matching(case_of(build), blame=(blame, other)),
        gpus=GpuJudgement(gpus=(gpu(1, "unknown"), gpu(2, "idle"))),
    )
    labels = list(gpu_faults(case))
    assert [label.culprits for label in labels] == [(rank,)] * expected
    for label in labels:
        shown = ["flight recorder", "gpu", "proc", "stack"] if rank == 1 else ["flight recorder"]
        assert [item.source for item in label.evidence] == shown
        assert {item.rank for item in label.evidence} == {rank}


# A host that waits for its own GPU.


def sleeps_in_driver() -> EvidenceBuilder:
    build = EvidenceBuilder(ranks=2)
    build.elsewhere(1, REWARD).blocks("file", "/dev/nvidia0")
    return build


@pytest.mark.parametrize(("doing", "liveness"), [("unknown", "computing"), ("idle", "never-wakes")])
def test_a_host_that_waits_for_its_own_gpu_waits_for_what_runs_there(
    doing: Doing, liveness: str
) -> None:
    case = with_view(
        case_of(sleeps_in_driver()), gpus=GpuJudgement(gpus=(gpu(0, "idle"), gpu(1, doing)))
    )
    (label,) = gpu_faults(case)
    assert (label.cause, label.culprits, label.liveness) == ("gpu-fault", (1,), liveness)
    assert label.phase == "reward"
    assert [item.text for item in label.evidence if item.source == "gpu"] == [f"GPU 1 is {doing}"]


def test_nobody_is_held_up_by_the_gpu_of_a_rank_alone() -> None:
    case = case_of(sleeps_in_driver())
    (waiting, waited_for) = case.view.by_rank.values()
    assert waiting.waits
    alone = with_view(case, by_rank={1: waited_for})
    assert labelled(alone) == []


@pytest.mark.parametrize(
    ("doing", "causes"), [("waits-in-kernel", ["network-silent"]), ("unknown", [])]
)
def test_where_every_host_waits_for_its_gpu_their_power_tells(
    doing: Doing, causes: list[str]
) -> None:
    build = EvidenceBuilder(ranks=2, recorded=False)
    for rank in (0, 1):
        build.elsewhere(rank, REWARD).blocks("file", "/dev/nvidia0")
    gpus = GpuJudgement((gpu(0, "waits-in-kernel"), gpu(1, doing)))
    case = replace(with_view(case_of(build), gpus=gpus), suspects=())
    assert [label.cause for label in gpu_faults(case)] == causes


@pytest.mark.parametrize(("pid", "age_s", "fault"), [(102, 90.0, True), (9999, 90.0, False),
                                                     (9999, 60.0, True)])  # fmt: skip
def test_an_old_fault_of_a_rank_s_gpu_counts_if_it_names_the_rank_s_process(
    pid: int, age_s: float, fault: bool
) -> None:
    build = on_gpus()
    look = GpuLook(0, 1, bus_id="00000000:3B:00.0", holders=(GpuHolder(102),))
    build.gpus = [(look,), (look,)]
    build.kernel = [(age_s, XID + f"79, pid={pid}, GPU has fallen off the bus.")]
    assert labelled(case_of(build)) == [("gpu-fault", (2,), "never-wakes")] * fault


@pytest.mark.parametrize("nccl", [True, False])
def test_that_a_gpu_has_finished_its_collectives_is_told_where_a_recorder_knows(nccl: bool) -> None:
    build = sleeps_in_driver()
    build.joins[1] = [{"op": "all_reduce", "size": 64, "group": "0", "number": 39, "done": True}]
    evidence = build.build()
    (label,) = gpu_faults(case_of(of_nccl(evidence) if nccl else evidence))
    assert ("flight recorder" in [item.source for item in label.evidence]) == nccl
