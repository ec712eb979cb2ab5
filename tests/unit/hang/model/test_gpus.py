"""What GPUs do, from two looks at their numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.model.gpus import Doing, doing_of, judge_gpus
from grpo_doctor_probes.evidence import Evidence, GpuHolder, GpuLook, Job, Member

FIRST_PID = 100


def gpu(index: int, busy: float, watt: float, **more: Any) -> GpuLook:
    """A GPU of 700 W, as an H100, on which the rank of this number computes."""
    values = {
        "utilization_pct": busy,
        "power_w": watt,
        "power_limit_w": 700.0,
        "sm_mhz": 1980.0,
        "sm_max_mhz": 1980.0,
        "holders": (GpuHolder(FIRST_PID + index),),
        **more,
    }
    return GpuLook(index, 1, **values)


def evidence(*looks: tuple[GpuLook, ...]) -> Evidence:
    count = max((gpu.index for look in looks for gpu in look), default=0) + 1
    members = tuple(
        Member(FIRST_PID + rank, 1, 1, "rank", "python", "python", rank=rank)
        for rank in range(count)
    )
    return Evidence(Job("here", members, world_size=count), 1, gpus=looks)


def twice(*gpus: GpuLook) -> Evidence:
    return evidence(gpus, gpus)


WAITS = (100.0, 100.0)
COMPUTES = (100.0, 640.0)
IDLE = (0.0, 70.0)


def test_the_numbers_are_the_evidence() -> None:
    judgement = judge_gpus(
        twice(
            gpu(0, *WAITS, sm_mhz=345.0, throttled_by=("power brake",)),
            gpu(1, *COMPUTES, sm_active_pct=88.0),
        )
    )
    assert [(item.rank, item.text) for gpu in judgement.gpus for item in gpu.items] == [
        (0, "GPU 0 is 100% busy at 100 of 700 W"),
        (0, "GPU 0 has its clock at 345 of 1980 MHz (power brake)"),
        (1, "GPU 1 is 100% busy at 640 of 700 W, on 88% of its SMs"),
    ]


@pytest.mark.parametrize(
    ("first", "second", "doing"),
    [
        (gpu(0, 90.0, 100.0), gpu(0, 100.0, 104.0), "waits-in-kernel"),
        # NVIDIA/nccl#2428: an A100 of 400 W.
        (
            gpu(0, 100, 118, power_limit_w=400.0),
            gpu(0, 100, 118, power_limit_w=400.0),
            "waits-in-kernel",
        ),
        (gpu(0, *WAITS), gpu(0, *COMPUTES), "unknown"),  # it began to work: no wait
        (gpu(0, *WAITS), gpu(0, *IDLE), "unknown"),
        (gpu(0, 100, 180), gpu(0, 100, 230), "unknown"),  # a wait draws the same at any time
        (gpu(0, 100, 260), gpu(0, 100, 260), "unknown"),
        (gpu(0, 60, 400), gpu(0, 70, 380), "unknown"),
        # Decoding is bound by memory and draws little: its kernels are on all SMs.
        (gpu(0, *WAITS, sm_active_pct=92.0), gpu(0, *WAITS, sm_active_pct=90.0), "unknown"),
        (gpu(0, 100, 260, sm_active_pct=18.0), gpu(0, 100, 262, sm_active_pct=18.0),
         "waits-in-kernel"),
        (gpu(0, *WAITS, sm_active_pct=40.0), gpu(0, *WAITS, sm_active_pct=40.0), "unknown"),
        # A throttled GPU draws little whatever it does.
        (gpu(0, *WAITS, sm_mhz=345.0), gpu(0, *WAITS, sm_mhz=345.0), "unknown"),
        (gpu(0, 0, 70, sm_mhz=345.0), gpu(0, 0, 70, sm_mhz=345.0), "idle"),
        (replace(gpu(0, *WAITS), power_w=None), gpu(0, *WAITS), "unknown"),
        (replace(gpu(0, *WAITS), utilization_pct=None), gpu(0, *WAITS), "unknown"),
        (gpu(0, *WAITS), GpuLook(0, 1, problem="gpu is lost"), "failed"),
        (gpu(0, *COMPUTES, ecc_uncorrected=1), gpu(0, *COMPUTES, ecc_uncorrected=3), "failed"),
        (gpu(0, *COMPUTES, ecc_uncorrected=1), gpu(0, *COMPUTES, ecc_uncorrected=1), "unknown"),
        (gpu(0, *WAITS), gpu(0, *WAITS, silent_s=3.0, silent_state="D"), "silent"),
        (gpu(0, *WAITS), gpu(0, *WAITS, silent_s=3.0, silent_state="R"), "waits-in-kernel"),
    ],
)  # fmt: skip
def test_what_a_gpu_does(first: GpuLook, second: GpuLook, doing: Doing) -> None:
    assert judge_gpus(evidence((first,), (second,))).of(0) == doing


@pytest.mark.parametrize(
    ("sent_bytes", "doing"),
    [(0, "waits-in-kernel"), (10**6, "waits-in-kernel"), (10**9, "unknown")],
)
def test_a_collective_that_carries_data_waits_for_nobody(sent_bytes: int, doing: Doing) -> None:
    first = replace(gpu(0, *WAITS, nvlink_bytes=10**12), at_ns=10**9)
    second = replace(first, at_ns=2 * 10**9, nvlink_bytes=10**12 + sent_bytes)
    assert judge_gpus(evidence((first,), (second,))).of(0) == doing
    assert doing_of([first, replace(second, at_ns=first.at_ns)]) == "waits-in-kernel"


def test_one_look_tells_nothing_and_a_gpu_that_is_gone_at_the_second_has_failed() -> None:
    looks = (gpu(0, *WAITS), gpu(1, *WAITS))
    assert [judged.doing for judged in judge_gpus(evidence(looks)).gpus] == ["unknown"] * 2
    judgement = judge_gpus(evidence(looks, looks[:1]))
    assert [judged.ranks for judged in judgement.gpus if judged.doing == "failed"] == [(1,)]


def test_a_shared_gpu_tells_of_none_of_its_ranks_and_those_of_other_jobs_do_not_count() -> None:
    holders = (GpuHolder(FIRST_PID), GpuHolder(FIRST_PID + 1))
    other = gpu(1, *WAITS, holders=(GpuHolder(9999),))
    judgement = judge_gpus(twice(gpu(0, *WAITS, holders=holders), other))
    assert [(judged.ranks, judged.doing) for judged in judgement.gpus] == [((0, 1), "unknown")]
    assert judgement.of(0) == judgement.of(1) == "unknown"


def test_a_silent_nvml_is_told_whatever_the_gpus_said_before() -> None:
    silent = GpuLook(-1, 1, silent_s=3.1, silent_call="nvmlInit", silent_state="D")
    judgement = judge_gpus(evidence((silent,), (silent,)))
    (item,) = judgement.silence
    assert item.text == (
        "NVML has not responded to nvmlInit for 3 s, its caller in state D inside the driver"
    )
    assert judgement.gpus == ()
