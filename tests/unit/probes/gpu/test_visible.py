"""Which GPUs a job may see, by CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.gpu.nvml import Device, order_is_uncertain, visible_uuids

GPUS = [
    Device(None, "GPU-aaaa1111-0", 0, "H100"),
    Device(None, "GPU-aaaa2222-1", 1, "H100", mig_on=True),
    Device(None, "GPU-cccc3333-4", 2, "H100"),
]
ALL = {"0", "1", "4"}


def visible(value: str | None) -> set[str]:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    return {uuid.rpartition("-")[2] for uuid in visible_uuids(environ, GPUS)}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ALL),
        ("", set()),
        ("-1", set()),
        ("NoDevFiles", set()),
        ("0", {"0"}),
        (" 2 , 0 ", {"0", "4"}),
        ("0,2,-1,1", {"0", "4"}),
        ("0,9,2", {"0"}),
        ("1", {"1"}),
        ("GPU-aaaa1111-0", {"0"}),
        ("GPU-c", {"4"}),
        ("GPU-aaaa,2", set()),
        ("GPU-dddd,2", set()),
        ("MIG-bbbb1111-2", ALL),  # of which GPU is not known
        ("0,MIG-GPU-aaaa2222-1/8/0", ALL),
    ],
)
def test_what_a_job_may_use(value: str | None, expected: set[str]) -> None:
    assert visible(value) == expected


def test_indices_are_uncertain_only_where_gpus_differ_and_no_order_is_given() -> None:
    mixed = [*GPUS, Device(None, "GPU-5", 3, "A100")]
    assert order_is_uncertain({"CUDA_VISIBLE_DEVICES": "0,1"}, mixed)
    assert not order_is_uncertain({"CUDA_VISIBLE_DEVICES": "0,1"}, GPUS)
    assert not order_is_uncertain({"CUDA_VISIBLE_DEVICES": "GPU-5"}, mixed)
    assert not order_is_uncertain({}, mixed)
    fixed = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert not order_is_uncertain(fixed, mixed)
