"""For a training script that asks for its phases itself, without `grpo-doctor run` before it::

    from grpo_doctor_probes.callback import GrpoDoctorCallback

    GRPOTrainer(..., callbacks=[GrpoDoctorCallback("runs/one")]).train()

The only module of the package that imports transformers: a script that imports it has a Trainer.
"""

from __future__ import annotations

from transformers import TrainerCallback

from grpo_doctor_probes.hooks.boot import boot_late
from grpo_doctor_probes.record import recorder


class GrpoDoctorCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Records steps, phases, settings and metrics of a transformers, TRL or ms-swift Trainer.

    Make it before `train()` is called: the Trainer is wrapped then, and what one callback event
    can see is not enough. Under `grpo-doctor run` it changes nothing.

    Args:
        run_dir: the run directory, the same on all ranks; default: GRPO_DOCTOR_RUN_DIR. Without
            either nothing is recorded and nothing is wrapped.

    Never raises: a folder that can't be written to is reported once on stderr.
    """

    def __init__(self, run_dir: str | None = None) -> None:
        try:
            if recorder.start(run_dir):
                boot_late()
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            recorder.note_error()
