"""Writes docs/trainer_matrix.md, what runs where: `python -m tests.matrix.table`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from grpo_doctor.markdown import wrapped
from tests.matrix.cells import CELLS, ENGINES, INPUTS, ROLLOUTS, TRAIN_TYPES, Cell
from tests.matrix.flags import FLAGS, REWARDS, Flag
from tests.matrix.gaps import ELSEWHERE, GAPS, gap_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "trainer_matrix.md"
_HEAD = """\
# What the trainer's tests run

`make docs` writes this page from `tests/matrix`, which the tests run. Each cell is a real training
run on 2 ranks without a GPU, several rollouts long. A cell has two runs. For one engine, the runs
with LoRA and with full training together cover every listed value of every flag, on text and again
on images. `make test` runs the columns of transformers, `make test-vllm` those of vLLM; CI runs
both.

Each field has four letters: LoRA on text, full on text, LoRA on images, full on images.
**C** runs in CI; **G** needs a GPU and has a test in tests/gpu; **n** is not run, with the reason
below the tables; **·** means that the flag has no effect. A table lists the flags that have an
effect in it.
"""
_NAMES = {"transformers": "transformers", "colocate": "vLLM colocate", "server": "vLLM server"}
_ENGINES = {"zero0": "0", "zero2": "2", "zero3": "3", "zero3_offload": "3+off"}


def page() -> str:
    lines = [_HEAD]
    for rollout in ROLLOUTS:
        lines += _table(rollout)
    lines += ["## Outside the cells", "", "Not run in a cell:", ""]
    lines += [f"- {gap.cells}: {gap.reason}." for gap in GAPS]
    lines += [f"- `--{flag.name}`: {flag.not_run}." for flag in FLAGS if flag.not_run]
    lines += ["", "Run outside the cells:", ""]
    lines += [f"- {subject}: `{path}`" for subject, path in ELSEWHERE]
    return wrapped("\n".join(lines) + "\n")


def _table(rollout: str) -> Iterator[str]:
    yield f"## Rollouts by {_NAMES[rollout]}\n"
    yield "| flag | values | " + " | ".join(f"ZeRO-{_ENGINES[name]}" for name in ENGINES) + " |"
    yield "|---" * (len(ENGINES) + 2) + "|"
    yield _row("every cell, by its own flags", "", _fields(rollout, None))
    for flag in FLAGS:
        fields = _fields(rollout, flag)
        if any(letters.strip("·") for letters in fields):
            yield _row(f"`--{flag.name}`", ", ".join(flag.values), fields)
    yield ""


def _fields(rollout: str, flag: Flag | None) -> list[str]:
    order = [(kind, inputs) for inputs in INPUTS for kind in TRAIN_TYPES]
    return [
        "".join(letter(Cell(rollout, engine, kind, inputs), flag) for kind, inputs in order)
        for engine in ENGINES
    ]


def _row(name: str, values: str, fields: Sequence[str]) -> str:
    plain = values.replace(REWARDS, "file")
    return f"| {name} | {plain} | " + " | ".join(fields) + " |"


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
