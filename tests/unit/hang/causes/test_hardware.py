"""GPUs that have failed."""

from __future__ import annotations

from grpo_doctor_probes.evidence import LogTail
from tests.evidence import EvidenceBuilder
from tests.verdicts import expect


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
