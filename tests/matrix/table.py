"""Writes docs/trainer_matrix.md, what runs where: `python -m tests.matrix.table`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.matrix.cells import CELLS, ENGINES, INPUTS, ROLLOUTS, TRAIN_TYPES, Cell
from tests.matrix.flags import FLAGS, REWARDS, Flag
from tests.matrix.gaps import ELSEWHERE, GAPS, gap_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "trainer_matrix.md"
_HEAD = """\
# What the trainer's tests run

Written by `make docs` from `tests/matrix`, which is also what the tests run: each cell is a real
training run on 2 ranks without a GPU, several rollouts long. A cell has two runs; those of LoRA and
of full training with one engine have together every flag in every value listed, on text and again
on images. `make test` runs the columns of transformers, `make test-vllm` those of vLLM, and CI runs
both.

Each field has four letters: LoRA on text, full on text, LoRA on images, full on images.
**C** runs in CI; **G** needs a GPU and has a test in tests/gpu; **n** is not run, for the reason
below the table; **·** means that the flag does nothing there.
"""
_NAMES = {"transformers": "transformers", "colocate": "vLLM colocate", "server": "vLLM server"}
_ENGINES = {"zero0": "0", "zero2": "2", "zero3": "3", "zero3_offload": "3+off"}


def page() -> str:
    columns = [(rollout, engine) for rollout in ROLLOUTS for engine in ENGINES]
    titles = [f"{_NAMES[rollout]}, ZeRO-{_ENGINES[engine]}" for rollout, engine in columns]
    lines = [_HEAD, "| flag | values | " + " | ".join(titles) + " |"]
    lines.append("|---" * (len(columns) + 2) + "|")
    lines.append(_row("every cell, by its own flags", "", None))
    lines += [_row(f"`--{flag.name}`", ", ".join(flag.values), flag) for flag in FLAGS]
    lines += ["", "Not run in a cell:", ""]
    lines += [f"- {gap.what}: {gap.why}." for gap in GAPS]
    lines += [f"- `--{flag.name}`: {flag.not_run}." for flag in FLAGS if flag.not_run]
    lines += ["", "Run outside the cells:", ""]
    lines += [f"- {what}: `{where}`" for what, where in ELSEWHERE]
    return "\n".join(lines) + "\n"


def _row(name: str, values: str, flag: Flag | None) -> str:
    fields = []
    for rollout in ROLLOUTS:
        for engine in ENGINES:
            order = [(kind, inputs) for inputs in INPUTS for kind in TRAIN_TYPES]
            letters = [letter(Cell(rollout, engine, kind, inputs), flag) for kind, inputs in order]
            fields.append("".join(letters))
    return (
        f"| {name} | {values.replace(str(Path(REWARDS).parent) + '/', '')} | "
        + " | ".join(fields)
        + " |"
    )


def letter(cell: Cell, flag: Flag | None) -> str:
    """What becomes of a flag in a cell; of the cell itself without a flag."""
    if flag is not None and not flag.where(cell):
        return "·"
    if flag is not None and flag.not_run:
        return "G" if flag.gpu_test(cell) else "n"
    return "C" if gap_of(cell) is None else "n"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name}: {len(CELLS)} cells, {len(FLAGS)} flags\n")


if __name__ == "__main__":
    main()
