"""GPUs that have failed."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.evidence import LogTail
from tests.evidence import EvidenceBuilder
from tests.verdicts import REWARD, expect, verdict

XID = "NVRM: Xid (PCI:0000:3b:00): "
ERROR = "RuntimeError: CUDA error: an illegal memory access was encountered"


def on_gpus(waited_s: float = 10.0) -> EvidenceBuilder:
    build = EvidenceBuilder()
    build.gpus = [(), ()]
    build.waited_s = waited_s
    return build


def test_a_gpu_that_failed() -> None:
    build = EvidenceBuilder()
    build.kernel = [(20.0, "NVRM: Xid (PCI:0000:3b:00): 79, pid=102, GPU has fallen off the bus.")]
    build.gpus = [(), ()]
    expect(build, "gpu-fault", 2)


def test_a_cuda_error_in_a_log() -> None:
    build = EvidenceBuilder()
    build.gpus = [(), ()]
    build.logs = [LogTail(101, "out", 5.0, ("CUDA error: an illegal memory access",))]
    expect(build, "gpu-fault", 1)


def test_a_gpu_that_failed_unnamed_while_the_others_came_to_wait() -> None:
    build = on_gpus()
    build.kernel = [(30.0, XID + "79, pid='<unknown>', GPU has fallen off the bus.")]
    expect(build, "gpu-fault")


def test_a_notice_is_no_failure() -> None:
    build = on_gpus(4.0)
    build.kernel = [(5.0, XID + "63, pid='<unknown>', Row Remapper: New row marked.")]
    assert verdict(build).cause != "gpu-fault"


def test_a_failure_of_long_ago_that_names_nobody_is_not_of_this_job() -> None:
    build = on_gpus(4.0)
    build.kernel = [(1500.0, XID + "79, pid='<unknown>', GPU has fallen off the bus.")]
    assert verdict(build).cause != "gpu-fault"


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


def test_a_rank_that_burns_a_core_at_one_line_may_wait_for_its_gpu() -> None:
    build = on_gpus()
    build.elsewhere(1, REWARD).works(REWARD, moves=False)
    build.kernel = [(5.0, XID + "79, pid=101, GPU has fallen off the bus.")]
    expect(build, "gpu-fault", 1)


def test_the_report_of_an_error_may_be_long() -> None:
    report = ("", "For debugging consider passing CUDA_LAUNCH_BLOCKING=1", "Traceback (most")
    calls = tuple(f"frame #{number}: c10::Error::Error + 0x9e" for number in range(9))
    build = on_gpus()
    build.logs = [LogTail(101, "out", 5.0, (ERROR, *report, *calls, "step 31: rank 0 done"))]
    expect(build, "gpu-fault", 1)


def test_an_error_that_the_job_went_on_after_was_got_over() -> None:
    steps = tuple(f"step {number}: loss 0.1" for number in range(9))
    build = on_gpus()
    build.logs = [LogTail(101, "out", 5.0, (f"attempt 1 of 3: {ERROR}", *steps))]
    assert verdict(build).cause != "gpu-fault"


@pytest.mark.parametrize(("age_s", "fault"), [(1800.0, True), (1800.5, False)])
def test_a_fault_of_half_an_hour_ago_is_the_oldest_that_counts(age_s: float, fault: bool) -> None:
    build = on_gpus()
    build.kernel = [(age_s, XID + "79, pid=102, GPU has fallen off the bus.")]
    assert (verdict(build).cause == "gpu-fault") is fault
    build = on_gpus()
    build.logs = [LogTail(101, "out", age_s, (ERROR,))]
    assert (verdict(build).cause == "gpu-fault") is fault


@pytest.mark.parametrize(("age_s", "fault"), [(69.5, True), (70.5, False)])
def test_a_fault_that_names_nobody_counts_since_a_minute_before_the_wait(
    age_s: float, fault: bool
) -> None:
    build = on_gpus(10.0)
    build.kernel = [(age_s, XID + "79, pid='<unknown>', GPU has fallen off the bus.")]
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
