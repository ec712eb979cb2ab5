"""Hosts that wait for their device: the CUDA driver burns a core at one line until a kernel ends,
one of NCCL that never will included. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor_probes.evidence import Frame, Locals, Position

# Where NVIDIA's and AMD's drivers and collective libraries wait. Others of theirs, such as cuBLAS
# and the compiler of PTX (libnvidia-ptxjitcompiler), do work of their own on the host.
_DEVICE_LIBRARY = re.compile(r"^lib(cuda|cudart|nccl|amdhip64|rccl|hsa-runtime64)([-.]|$)")
# Python functions of torch that end in a wait for the device, wherever their C code is.
_WAITS = (
    (
        re.compile(r"/torch/(cuda|xpu|npu|accelerator)/"),
        re.compile(r"^(synchronize|wait_stream|wait|query)$"),
    ),
    (
        # Not what packs objects for a collective: that computes.
        re.compile(r"/torch/distributed/(distributed_c10d|c10d_logger|nn/functional)\.py$"),
        re.compile(r"^(?!_object_to_tensor|_tensor_to_object)"),
    ),
    (re.compile(r"/torch/_functional_collectives\.py$"), re.compile(r".")),
    (re.compile(r"/torch/amp/grad_scaler\.py$"), re.compile(r".")),
    (re.compile(r"/torch/_tensor_str\.py$"), re.compile(r".")),
    (
        re.compile(r"/torch/_tensor\.py$"),
        re.compile(r"^(tolist|item|__format__|__repr__|__array__|__contains__)$"),
    ),
    (re.compile(r"/torch/nn/utils/clip_grad\.py$"), re.compile(r".")),
    (re.compile(r"accelerator"), re.compile(r"^synchronize$")),
)


@dataclass(frozen=True, slots=True)
class SpinSample:
    """A closer sample of threads that use a core. `needs_stacks`: without stacks its state is open,
    as a rank's is; a compiler that works for one has none.
    """

    positions: tuple[Position, ...] = ()
    locals_seen: tuple[Locals, ...] = ()
    needs_stacks: bool = False

    def of(self, tid: int) -> tuple[Position, ...]:
        """Where one thread was."""
        return tuple(position for position in self.positions if position.tid == tid)

    @property
    def ran_python(self) -> bool:
        """Whether the main thread left its line between two moments, and came back to it."""
        digests = {moment.digest for moment in self.locals_seen if moment.digest}
        return len(digests) > 1


def is_device_library(name: str) -> bool:
    """Whether code of this file is a driver's or a collective library's."""
    return _DEVICE_LIBRARY.search(name) is not None


def spins_in(positions: Sequence[Position]) -> bool | None:
    """Whether a thread was mostly in such code when it was looked at; None where it was not seen.

    A thread that launches kernels all the time is there as well, so one time of three is too few.
    """
    files = [p.caller or p.library for p in positions if not p.problem]
    readings = [file for file in files if file]
    return 2 * sum(map(is_device_library, readings)) > len(readings) if readings else None


def waits_by_frames(frames: Sequence[Frame]) -> bool:
    """Whether the innermost Python line is one of torch's that wait for the device."""
    if not frames:
        return False
    inner = frames[0]
    function = inner.function.rpartition(".")[2]
    return any(file.search(inner.file) and name.search(function) for file, name in _WAITS)
