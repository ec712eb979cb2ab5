"""The bundled trainer with `torch.cuda.synchronize()` at both ends of every phase: the truth.

`python -m torch.distributed.run ... -m tests.gpu.synchronized_trainer FLAGS`
"""

from __future__ import annotations

import sys
from typing import Any

import grpo_doctor_probes


class SynchronizedPhase(grpo_doctor_probes.phase):
    """A phase that begins and ends with nothing left on the device."""

    def __enter__(self) -> None:
        _wait()
        super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        _wait()
        super().__exit__(*raised)


def _wait() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


if __name__ == "__main__":
    grpo_doctor_probes.phase = SynchronizedPhase  # type: ignore[misc] # before the trainer's imports
    from grpo_doctor_trainer.__main__ import main

    sys.exit(main())
