"""Steps up to a checkpoint and on from it are those of one run, bit by bit, on every engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("deepspeed", reason="needs the trainer extra")

from tests.trainer_jobs import Outcome, run_configs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
# Three steps end inside the second rollout, which feeds two: what is left of it is saved too.
STEPS, HALF = 4, 3
SMALL = (
    "--per_device_train_batch_size", "8", "--num_generations", "8", "--num_iterations", "2",
    "--gradient_accumulation_steps", "2",
)  # fmt: skip
OWN = "own.json"
CASES = (
    *((engine, "full", "float32") for engine in ("none", "zero0", "zero1", "zero2", OWN)),
    *((engine, "full", "float32") for engine in ("zero2_offload", "zero3_offload")),
    *((engine, "lora", "float32") for engine in ("none", "zero3")),
    *((engine, "full", "bfloat16") for engine in ("zero0", "zero2")),
    ("zero3", "lora", "bfloat16"),
)
Triple = tuple[Outcome, Outcome, Outcome]


def configs() -> Iterator[list[str]]:
    """Each case whole, up to the half, and on from there."""
    for engine, kind, dtype in CASES:
        flags = ["--deepspeed", engine, "--train_type", kind, "--torch_dtype", dtype, *SMALL]
        out = f"{engine}-{kind}-{dtype}"
        half = ["--output_dir", out, "--max_steps", str(HALF), "--save_steps", str(HALF)]
        on = ["--output_dir", out, "--max_steps", str(STEPS), "--save_steps", "0"]
        yield [*flags, "--max_steps", str(STEPS), "--save_steps", "0"]
        yield [*flags, *half]
        yield [*flags, *on, "--resume_from_checkpoint", "latest"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resume")


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> dict[tuple[str, str, str], Triple]:
    own = {"zero_optimization": {"stage": 3}, "train_batch_size": "auto"}
    (folder / OWN).write_text(json.dumps(own), encoding="utf-8")
    found = run_configs(folder, list(configs()))
    return {
        case: (found[3 * i], found[3 * i + 1], found[3 * i + 2]) for i, case in enumerate(CASES)
    }


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_a_resumed_run_is_the_same_run(
    outcomes: dict[tuple[str, str, str], Triple], case: tuple[str, str, str]
) -> None:
    whole, half, rest = outcomes[case]
    assert (whole.error, half.error, rest.error) == (None, None, None)
    assert len(whole.metrics) == STEPS
    assert len(rest.metrics) == STEPS - HALF
    assert half.without_clock() + rest.without_clock() == whole.without_clock()
    assert f"checkpoint-{HALF}: {HALF} of {STEPS} steps done" in rest.printed


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_every_engine_takes_the_steps_of_plain_ddp(
    outcomes: dict[tuple[str, str, str], Triple], kind: str
) -> None:
    wanted = outcomes["none", kind, "float32"][0].metrics
    for (engine, other, dtype), (whole, _, _) in outcomes.items():
        if (other, dtype) != (kind, "float32"):
            continue
        # The first rollout is the same; later ones part where a rounding error flips a sample.
        for ours, theirs in zip(whole.metrics[:2], wanted[:2], strict=True):
            for name in ("loss", "grad_norm", "reward", "kl"):
                assert ours[name] == pytest.approx(theirs[name], rel=1e-3, abs=1e-6), (engine, name)


def test_checkpoints_keep_the_training_dtype(
    outcomes: dict[tuple[str, str, str], Triple],
) -> None:
    for (engine, kind, dtype), (_, half, _) in outcomes.items():
        if kind == "full":
            line = next(row for row in half.printed.splitlines() if row.startswith("saved "))
            assert f"({dtype}) + optimizer" in line, (engine, line)
