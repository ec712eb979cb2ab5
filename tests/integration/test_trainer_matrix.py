"""Every flag in every cell of docs/trainer_matrix.md, as real runs on two gloo ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest

from tests.matrix import table
from tests.matrix.cells import CELLS, ENGINES, ROLLOUTS, Cell
from tests.matrix.flags import FLAGS, SMALL, Flag, runs
from tests.matrix.gaps import gap_of
from tests.rollout_server import kill_session, started
from tests.trainer_jobs import run_configs

pytest.importorskip("deepspeed", reason="needs the trainer extra")
PATIENCE_S = 900
# Where the same numbers are added in another order: DeepSpeed's buckets against plain all-reduces.
CLOSE = 2e-3
# In float32, 1e-6 on x86. None is known where all completions of a step were left out of the loss.
LARGEST_GAP, GAP = 1e-4, "sampling/sampling_logp_difference/mean"
COMPARED = ("loss", "grad_norm", "reward", "kl", "entropy", "completions/mean_length")
_NEEDS_VLLM = {rollout: [pytest.mark.vllm] for rollout in ROLLOUTS if rollout != "transformers"}


def cells(rollout: str, inputs: str) -> list[Cell]:
    chosen = [cell for cell in CELLS if (cell.rollout, cell.inputs) == (rollout, inputs)]
    return [cell for cell in chosen if gap_of(cell) is None]


def train_all(chosen: list[Cell], folder: Path, *more: str) -> dict[str, list[dict[str, float]]]:
    """Trains every run of the cells in one job; gives rank 0's metrics by the run's name."""
    flags_by_run = {
        f"{cell.name}-{number}": [*cell.flags(), *arguments, *SMALL, *more]
        for cell in chosen
        for number, arguments in enumerate(runs(cell))
    }
    configs = [[*line, "--output_dir", str(folder / name)] for name, line in flags_by_run.items()]
    outcomes = run_configs(folder, configs, patience_s=PATIENCE_S)
    for (name, line), outcome in zip(flags_by_run.items(), outcomes, strict=True):
        assert outcome.error is None, f"{name}: {' '.join(line)}\n{outcome.error}"
    return {name: outcome.metrics for name, outcome in zip(flags_by_run, outcomes, strict=True)}


@contextmanager
def flags_for(rollout: str, folder: Path) -> Iterator[tuple[str, ...]]:
    """What a mode of rollout needs beside the cells' own flags; with `server`, a server."""
    if rollout != "transformers":
        pytest.importorskip("vllm", reason="needs vLLM, any build")
    if rollout != "server":
        yield ()
        return
    folder.mkdir()
    server = started(folder)
    try:
        yield ("--vllm_server_port", str(server.port))
    finally:
        kill_session(server.process)


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize(
    ("rollout", "inputs"),
    [
        pytest.param(rollout, inputs, marks=_NEEDS_VLLM.get(rollout, []))
        for rollout in ROLLOUTS
        for inputs in ("text", "vl")
        if cells(rollout, inputs)
    ],
)
def test_every_flag_in_every_cell(rollout: str, inputs: str, tmp_path: Path) -> None:
    chosen = cells(rollout, inputs)
    with flags_for(rollout, tmp_path / "server") as more:
        metrics_of = train_all(chosen, tmp_path, *more)
    for name, steps in metrics_of.items():
        assert len(steps) == 5, name
        for step in steps:
            assert all(math.isfinite(value) for value in step.values()), (name, step)
        assert max(step["grad_norm"] for step in steps) > 0, name
        assert list((tmp_path / name).glob("checkpoint-*/*.safetensors")), name
    if rollout == "transformers":
        _engines_take_the_same_steps(chosen, metrics_of)
    else:
        _vllm_samples_from_the_trained_weights(metrics_of)


def _vllm_samples_from_the_trained_weights(metrics_of: dict[str, list[dict[str, float]]]) -> None:
    whole = {name: steps for name, steps in metrics_of.items() if name.endswith("-1")}
    assert whole  # the other runs of the cells cut the distribution off, with --top_p and --top_k
    for name, steps in whole.items():
        gaps = [step[GAP] for step in steps if GAP in step]
        assert gaps, name
        assert max(gaps) < LARGEST_GAP, (name, gaps)


def _engines_take_the_same_steps(
    chosen: list[Cell], metrics_of: dict[str, list[dict[str, float]]]
) -> None:
    for cell in chosen:
        if cell.engine == ENGINES[0]:
            continue
        peer = Cell(cell.rollout, ENGINES[0], cell.train_type, cell.inputs)
        for number in range(len(runs(cell))):
            ours, theirs = metrics_of[f"{cell.name}-{number}"], metrics_of[f"{peer.name}-{number}"]
            # Two steps on the first rollout: the second has the first's new weights. In a later
            # rollout rounding may have changed a sampled token.
            for step, name in product(range(2), COMPARED):
                left, right = ours[step].get(name, 0.0), theirs[step].get(name, 0.0)
                place = (cell.name, number, step, name)
                assert left == pytest.approx(right, rel=CLOSE, abs=1e-5), place


@pytest.mark.parametrize("flag", [flag for flag in FLAGS if not flag.not_run], ids=lambda f: f.name)
def test_lora_and_full_together_have_every_value(flag: Flag) -> None:
    found: dict[tuple[str, ...], str] = {}
    for cell in filter(flag.where, CELLS):
        lines = "".join(f"{' '.join(line)} --" for line in runs(cell))
        found[cell.rollout, cell.engine, cell.inputs] = (
            found.get((cell.rollout, cell.engine, cell.inputs), "") + lines
        )
    assert found
    for place, lines in found.items():
        assert all(f"--{flag.name} {value} --" in lines for value in flag.values), place


def test_the_table_in_the_docs_is_what_is_run() -> None:
    written = table.PAGE.read_text(encoding="utf-8")
    assert written == table.page(), "run `make docs`"
