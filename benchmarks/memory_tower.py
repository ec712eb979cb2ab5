"""What vision towers of transformers hold for each patch, next to the estimate.

`python -m benchmarks.memory_tower [--write FILE]`; towers of full width with one and two layers run
for real on a CPU, in a minute.
"""

# ruff: noqa: SLF001 - a storage's identity and a configuration's kernel have no public names

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.memory_accuracy import print_or_write
from benchmarks.memory_truth import without_allocator
from grpo_doctor.memory import GIB, ModelShape, Setup, ledger_of, model_shape

BEGIN = "<!-- section vision towers -->"
HEADING = """## What vision towers hold

Written by `python -m benchmarks.memory_tower --write benchmarks/results/accuracy.md`: bytes for
each patch in 16 bits, with PyTorch's own attention. *Kept by a layer* is what two layers keep for
their backward pass more than one; *frozen* is the most that a frozen tower holds. First answer,
before the estimate knew that queries and keys are turned in float32: a layer of Qwen2.5's -20%,
frozen -43%.
"""
TOWERS = {"qwen2_5_vl": "Qwen/Qwen2.5-VL-7B-Instruct", "qwen3_vl": "Qwen/Qwen3-VL-4B-Instruct"}
_SIDE = 16
_PATCHES = _SIDE**2


class Held(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of the tensors that operations made and that are still there."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sizes = {p.untyped_storage()._cdata: 0 for p in model.parameters()}
        self.now = self.peak = 0

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = call(*args, **(kwargs or {}))
        for result in results if isinstance(results, (tuple, list)) else [results]:
            if isinstance(result, torch.Tensor):
                self._add(result.untyped_storage())
        return results

    def _add(self, storage: Any) -> None:
        if storage._cdata not in self._sizes:
            self._sizes[storage._cdata] = storage.nbytes()
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._drop, storage._cdata)

    def _drop(self, key: int) -> None:
        self.now -= self._sizes.pop(key, 0)


def held(kind: str, layers: int, trained: bool, recompute: bool) -> tuple[float, float]:
    """Bytes per patch after a forward pass, and at most within it."""
    config = transformers.AutoConfig.for_model(kind).vision_config
    sizes = _shape(kind, layers).vision
    assert sizes is not None
    config.depth, config._attn_implementation = layers, "sdpa"
    config.hidden_size, config.intermediate_size = sizes.hidden, sizes.intermediate
    torch.set_default_dtype(torch.bfloat16)
    tower = transformers.AutoModel.from_config(config).train().requires_grad_(trained)
    torch.set_default_dtype(torch.float32)
    if recompute:
        tower.gradient_checkpointing_enable({"use_reentrant": False})
    pixels = torch.zeros(_PATCHES, 3 * 2 * config.patch_size**2, dtype=torch.bfloat16)
    with Held(tower) as memory, torch.set_grad_enabled(trained):
        output = tower(pixels, torch.tensor([[1, _SIDE, _SIDE]]))
        kept = memory.now  # while there is an output, which holds it
    del output
    return kept / _PATCHES, memory.peak / _PATCHES


def _shape(kind: str, layers: int) -> ModelShape:
    shape = model_shape(TOWERS[kind])
    assert shape.vision is not None
    return replace(shape, vision=replace(shape.vision, layers=layers))


def estimated(kind: str, layers: int, **change: Any) -> float:
    """Bytes per patch by the estimate, without the pixels."""
    shape = _shape(kind, layers)
    side = shape.vision.patch if shape.vision else 0
    setup = Setup(shape, 80 * GIB, max_pixels=_PATCHES * side**2, packing=True, **change)
    entries = ledger_of(setup, without_allocator()).train.phases[0].components
    size = next(entry.bytes for entry in entries if entry.name == "vision tower")
    return size / _PATCHES - 3 * 2 * side**2 * 4


def rows() -> Iterator[tuple[str, str, float, float]]:
    """Tower, term, bytes by the estimate and in truth."""
    for kind in TOWERS:
        for name, recompute in (("kept by a layer", False), ("kept by a layer, recomputed", True)):
            settings: dict[str, Any] = {"freeze_vision": False, "vision_recompute": recompute}
            ours = estimated(kind, 2, **settings) - estimated(kind, 1, **settings)
            true = held(kind, 2, True, recompute)[0] - held(kind, 1, True, recompute)[0]
            yield kind, name, ours, true
        yield kind, "frozen", estimated(kind, 1), held(kind, 1, False, False)[1]


def table() -> str:
    """Each term of each tower, estimated and real, as Markdown."""
    torch.set_num_threads(1)
    lines = ["| tower | term | estimate | real | off |", "|---" * 5 + "|"]
    lines += [f"| {kind} | {name} | {ours:.0f} B | {true:.0f} B | {100 * (ours / true - 1):+.0f}% |"
              for kind, name, ours, true in rows()]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(print_or_write(__doc__, table, BEGIN, HEADING))
