"""What FSDP1 holds beside its shards, next to the estimate.

`python -m benchmarks.memory_fsdp1 [--write FILE]`: a small model on a CPU, with fake process
groups.
"""

# ruff: noqa: SLF001 - a storage's identity has no public name

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import transformers
from peft import LoraConfig, get_peft_model
from torch import distributed
from torch.distributed import fsdp
from torch.distributed.fsdp.wrap import _or_policy, lambda_auto_wrap_policy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy as by_class
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

from benchmarks.memory_accuracy import print_or_write
from grpo_doctor.memory import GIB, ModelShape, Setup
from grpo_doctor.memory.overhead import gathered

BEGIN = "<!-- section fsdp1 -->"
HEADING = """## What FSDP1 holds beside its shards

Written by `python -m benchmarks.memory_fsdp1 --write benchmarks/results/accuracy.md`: the most in a
forward and a backward pass of 16 tokens, beside weights, gradients and moments, as verl wraps a
model with float32 weights. First answer, with what FSDP2 holds: forward +50% to +97%, backward
-22% to +22%, and nothing at all on one rank.
"""
_TOKENS, _LAYERS = 16, 6


@dataclass(frozen=True)
class Case:
    """A small model, how it is trained and on how many ranks."""

    lora: bool
    ranks: int
    vocabulary: int
    tied: bool = False

    @property
    def shape(self) -> ModelShape:
        """Of Qwen2's kind, 256 wide."""
        sizes = (256, _LAYERS, 4, 2, 64, 1024, self.vocabulary, self.tied)
        return ModelShape("small", *sizes, "", qkv_bias=True)


CASES = [Case(lora, ranks, size) for lora in (False, True) for ranks in (1, 2, 8)
         for size in (1000, 8000)] + [Case(False, 8, 8000, tied=True)]  # fmt: skip


class Held(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The most that storages had together, whatever FSDP resized."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._storages: dict[int, Any] = {}
        self.now = self.peak = 0

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = call(*args, **(kwargs or {}))
        for value in (*args, results):
            for tensor in value if isinstance(value, (tuple, list)) else [value]:
                if isinstance(tensor, torch.Tensor) and not tensor.is_meta:
                    storage = tensor.untyped_storage()
                    self._storages.setdefault(storage._cdata, weakref.ref(storage))
        live = {key: found for key, ref in self._storages.items() if (found := ref()) is not None}
        self._storages = {key: self._storages[key] for key in live}
        self.now = sum(storage.nbytes() for storage in live.values())
        self.peak = max(self.peak, self.now)
        return results


def _divided(case: Case) -> Any:
    shape = case.shape
    config = transformers.Qwen2Config(
        hidden_size=shape.hidden, intermediate_size=shape.intermediate, vocab_size=case.vocabulary,
        num_hidden_layers=_LAYERS, num_attention_heads=4, num_key_value_heads=2,
        tie_word_embeddings=case.tied,
    )  # fmt: skip
    model: Any = transformers.Qwen2ForCausalLM(config).float().train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    policies: list[Any] = [partial(by_class, transformer_layer_cls={Qwen2DecoderLayer})]
    if case.lora:
        model.enable_input_require_grads()
        model = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear"))
        policies.append(partial(lambda_auto_wrap_policy, lambda_fn=_is_adapter))
    half = fsdp.MixedPrecision(torch.bfloat16, torch.float32, torch.float32)
    return fsdp.FullyShardedDataParallel(
        model, auto_wrap_policy=partial(_or_policy, policies=policies), mixed_precision=half,
        device_id=torch.device("cpu"),
    )  # fmt: skip


def _is_adapter(module: Any) -> bool:
    weight = getattr(module, "weight", None)
    return weight is not None and weight.requires_grad and not list(module.children())


def held(case: Case) -> tuple[int, int]:
    """Bytes beside the shards, at most in a forward and in a backward pass."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=case.ranks)
    try:
        model = _divided(case)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
        tokens = torch.zeros((1, _TOKENS), dtype=torch.long)
        memory, peaks = Held(), (0, 0)
        for _ in range(3):
            with memory, torch.autocast("cpu", dtype=torch.bfloat16):
                rest, memory.peak = memory.now, 0
                output = model(input_ids=tokens, use_cache=False).logits.sum()
                forward, memory.peak = memory.peak, 0
            with memory:
                output.backward()
                peaks = forward - rest, memory.peak - rest
                optimizer.step()
        return peaks
    finally:
        distributed.destroy_process_group()


def estimated(case: Case) -> tuple[int, int]:
    """The same by the estimate."""
    setup = Setup(
        case.shape, 80 * GIB, ranks=case.ranks, engine="fsdp", trained_dtype_bytes=4,
        method="lora" if case.lora else "full", wraps_tables=False, flat_parameters=True,
    )  # fmt: skip
    groups = gathered(setup)
    return max(groups.start, groups.head), max(groups.layer + groups.reducing, groups.end)


def rows() -> Iterator[str]:
    """Of each case."""
    for case in CASES:
        cells = [f"{ours / 1e6:.1f} of {true / 1e6:.1f} MB, {100 * (ours / true - 1):+.0f}%"
                 for ours, true in zip(estimated(case), held(case), strict=True)]  # fmt: skip
        method = "LoRA" if case.lora else "full"
        tied = ", tied" if case.tied else ""
        job = f"{method}, {case.ranks} ranks, {case.vocabulary} words{tied}"
        yield f"| {job} | {' | '.join(cells)} |"


def table() -> str:
    """Each job with its estimates and the peaks of the run, as Markdown."""
    torch.set_num_threads(1)
    return "\n".join(["| job | forward | backward |", "|---|---|---|", *rows()])


if __name__ == "__main__":
    sys.exit(print_or_write(__doc__, table, BEGIN, HEADING))
