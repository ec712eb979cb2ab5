"""The trainer's phases against a run that synchronizes at both ends of every phase."""

from __future__ import annotations

from tests.gpu.parts import Outcome, Wish, problem_without
from tests.gpu.training import CLOSE, TrainerError, make_model, phase_seconds, train
from tests.gpu.training import phases_worth_comparing as worth_comparing

NEEDED = ("transformers", "deepspeed", "peft", "datasets")
FLAGS = ("--deepspeed", "zero2", "--train_type", "full", "--gradient_checkpointing", "true")


def run(wish: Wish, outcome: Outcome) -> None:
    """Seconds of each longer phase, with and without synchronizing."""
    if problem := problem_without(*NEEDED):
        outcome.skips("phases", problem)
        return
    model = make_model(wish.folder / "model")
    try:
        train("tests.gpu.synchronized_trainer", model, 1, wish.folder / "truth", *FLAGS)
        train("grpo_doctor_trainer", model, 1, wish.folder / "job", *FLAGS)
    except TrainerError as error:
        outcome.says("phases", False, f"the trainer failed: {str(error)[-600:]}")
        return
    truth, recorded = (
        phase_seconds(wish.folder / "truth"),
        phase_seconds(wish.folder / "job", on_device=True),
    )
    for name in sorted(worth_comparing(truth)):
        apart = abs(recorded.get(name, 0.0) - truth[name]) / truth[name]
        outcome.says(
            f"phase {name}",
            apart < CLOSE,
            f"{recorded.get(name, 0.0):.2f} s recorded, {truth[name]:.2f} s synchronized, "
            f"{100 * apart:.1f}% apart",
        )
