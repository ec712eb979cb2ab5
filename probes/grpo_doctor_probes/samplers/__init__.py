"""Samplers: what the GPUs, the host and the ranks were doing, ten times a second.

They run in the supervisor process outside the job, never inside it: a job that holds the GIL, hangs
or dies must not silence them. `Sampling` is the whole interface for a caller; a new kind of sample
is a `Source`. The file they write is described in `grpo_doctor_probes.samplers.file`.
"""

from grpo_doctor_probes.gpu.device import GpuRow
from grpo_doctor_probes.samplers.gpu import GpuSampler
from grpo_doctor_probes.samplers.host import HostSampler
from grpo_doctor_probes.samplers.ranks import RankSampler
from grpo_doctor_probes.samplers.sampler import Sampling
from grpo_doctor_probes.samplers.server import named_servers, serving_at
from grpo_doctor_probes.samplers.tracks import Reading, Source, Track

__all__ = [
    "GpuRow",
    "GpuSampler",
    "HostSampler",
    "RankSampler",
    "Reading",
    "Sampling",
    "Source",
    "Track",
    "named_servers",
    "serving_at",
]
