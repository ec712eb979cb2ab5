"""What GPUs do, from two looks at their numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.model.gpus import Conclusion, Doing, doing_of, judge_gpus, ranks_of_gpus
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


@pytest.mark.parametrize(
    ("numbers", "conclusion", "ranks"),
    [
        ([WAITS] * 4, "collective-wait", ()),
        ([WAITS, WAITS, COMPUTES, WAITS], "one-computes", (2,)),
        ([WAITS, IDLE, WAITS, WAITS], "unknown", ()),
        ([IDLE] * 3, "unknown", ()),
        ([COMPUTES] * 3, "unknown", ()),
        ([WAITS, IDLE, COMPUTES], "unknown", ()),
        ([], "unknown", ()),
    ],
)
def test_what_follows_for_the_job(
    numbers: list[tuple[float, float]], conclusion: Conclusion, ranks: tuple[int, ...]
) -> None:
    judgement = judge_gpus(twice(*(gpu(i, *row) for i, row in enumerate(numbers))))
    assert (judgement.conclusion, judgement.ranks) == (conclusion, ranks)
    assert bool(judgement.items) == bool(numbers)


def test_the_numbers_are_the_evidence() -> None:
    judgement = judge_gpus(twice(gpu(0, *WAITS), gpu(1, *COMPUTES, sm_active_pct=88.0)))
    assert [item.text for item in judgement.items] == [
        "GPU 1 is 100% busy at 640 of 700 W, on 88% of its SMs in both samples",
        "GPU 0 is 100% busy at 100 of 700 W in both samples",
    ]
    assert [item.rank for item in judgement.items] == [1, 0]


@pytest.mark.parametrize(
    ("first", "second", "doing"),
    [
        (gpu(0, *WAITS), gpu(0, 100.0, 104.0), "waits-in-kernel"),
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
        (gpu(0, 60, 400), gpu(0, 70, 380), "computes"),
        # Decoding is bound by memory and draws little: its kernels are on all SMs.
        (gpu(0, *WAITS, sm_active_pct=92.0), gpu(0, *WAITS, sm_active_pct=90.0), "computes"),
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
        (gpu(0, *COMPUTES, ecc_uncorrected=1), gpu(0, *COMPUTES, ecc_uncorrected=1), "computes"),
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


def test_one_look_tells_nothing() -> None:
    judgement = judge_gpus(evidence((gpu(0, *WAITS), gpu(1, *WAITS))))
    assert judgement.conclusion == "unknown"


def test_a_gpu_that_is_gone_at_the_second_look_has_failed() -> None:
    judgement = judge_gpus(evidence((gpu(0, *WAITS), gpu(1, *WAITS)), (gpu(0, *WAITS),)))
    assert [gpu.ranks for gpu in judgement.gpus if gpu.doing == "failed"] == [(1,)]
    assert judgement.conclusion == "unknown"


def test_a_shared_gpu_cannot_tell_which_of_its_ranks_computes() -> None:
    holders = (GpuHolder(FIRST_PID), GpuHolder(FIRST_PID + 1))
    shared = gpu(0, *COMPUTES, holders=holders)
    judgement = judge_gpus(twice(shared, gpu(1, *WAITS, holders=())))
    assert judgement.gpus[0].doing == "unknown"
    assert judgement.of(0) == judgement.of(1) == "unknown"


def test_gpus_of_other_jobs_do_not_count() -> None:
    other = gpu(2, *COMPUTES, holders=(GpuHolder(9999),))
    judgement = judge_gpus(twice(gpu(0, *WAITS), gpu(1, *WAITS), other))
    assert judgement.conclusion == "collective-wait"


def test_a_throttled_clock_is_said() -> None:
    slow = gpu(0, *WAITS, sm_mhz=345.0, throttled_by=("power brake",))
    texts = [item.text for item in judge_gpus(twice(slow, gpu(1, *WAITS))).items]
    assert "GPU 0 has its clock at 345 of 1980 MHz (power brake)" in texts


def test_a_silent_nvml_is_told_whatever_the_gpus_said_before() -> None:
    silent = GpuLook(-1, 1, silent_s=3.1, silent_call="nvmlInit", silent_state="D")
    judgement = judge_gpus(evidence((silent,), (silent,)))
    (item,) = judgement.silence
    assert item.text == (
        "NVML has not responded to nvmlInit for 3 s, its caller in state D inside the driver"
    )
    assert judgement.gpus == ()


def test_gpus_of_several_hosts_keep_apart() -> None:
    looks = tuple(
        gpu(0, *WAITS, host=host, holders=(GpuHolder(FIRST_PID + rank),), bus_id="0:3b:0")
        for rank, host in enumerate(("a", "b"))
    )
    joint = evidence(looks, looks)
    members = (*joint.job.members, Member(FIRST_PID + 1, 1, 1, "rank", "p", "p", rank=1))
    joint = replace(joint, job=replace(joint.job, members=members))
    assert {judged.host: judged.ranks for judged in judge_gpus(joint).gpus} == {
        "a": (0,),
        "b": (1,),
    }
    assert ranks_of_gpus(joint) == {("a", "0:3b:0"): (0,), ("b", "0:3b:0"): (1,)}


# What users pasted of `nvidia-smi` while their jobs hung, by card: utilization, W, W at most.
REPORTED: dict[str, tuple[list[tuple[float, float, float]], Conclusion, tuple[int, ...]]] = {
    "NVIDIA-NeMo/Speech#9291": ([(100, 100, 700)] * 8, "collective-wait", ()),
    "NVIDIA/nccl#2428": ([(100, 118, 400)] * 8, "collective-wait", ()),
    "NVIDIA/nccl#199": ([(100, 44, 250), (100, 44, 250)], "collective-wait", ()),
    "NVIDIA/nccl#1550": (
        [(100, 152, 700), (0, 129, 700), (0, 137, 700), (0, 135, 700)], "unknown", ()
    ),
    "deepspeedai/DeepSpeed#6524": ([(100, 116, 700), (100, 121, 700)], "collective-wait", ()),
    "wtdcode/vllm-backport#14": ([(100, 97, 350), (100, 94, 350)], "collective-wait", ()),
    # Rank 0 waits for a prompt, the others for what it will broadcast.
    "zai-org/GLM-130B#32": ([(0, 53, 300), (100, 66, 300)], "unknown", ()),
    "huggingface/accelerate#233": ([(100, 41, 70), (100, 40, 70), (100, 41, 70)], "unknown", ()),
}  # fmt: skip


@pytest.mark.parametrize("source", REPORTED)
def test_what_users_have_reported(source: str) -> None:
    rows, conclusion, ranks = REPORTED[source]
    judgement = judge_gpus(
        twice(
            *(gpu(i, busy, watt, power_limit_w=limit) for i, (busy, watt, limit) in enumerate(rows))
        )
    )
    assert (judgement.conclusion, judgement.ranks) == (conclusion, ranks)


@pytest.mark.parametrize(("limit_w", "doing"), [(150.0, "computes"), (149.0, "unknown")])
def test_small_cards_draw_half_their_power_whatever_they_do(limit_w: float, doing: Doing) -> None:
    looks = [replace(gpu(0, 100, 120), power_limit_w=limit_w, at_ns=at) for at in (1, 2)]
    assert doing_of(looks) == doing
