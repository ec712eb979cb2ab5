"""What FSDP1, DeepSpeed's ZeRO and vision towers hold, next to the estimate.

`python -m benchmarks.memory_held [fsdp1] [zero] [towers] [--write]`: small models with fake process
groups, and towers of full width with one and two layers, run for real on a CPU, in minutes.
"""

# ruff: noqa: SLF001 - a storage's identity and a configuration's kernel have no public names

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
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
from benchmarks.memory_truth import without_allocator
from grpo_doctor.memory import GIB, ModelShape, Setup, ledger_of, model_shape
from grpo_doctor.memory.facts import calibration
from grpo_doctor.memory.overhead import gathered, gathered_bytes
from grpo_doctor.memory.states import states_of

_TOKENS, _LAYERS = 16, 6
_BUCKET = 200_000
_SIDE = 16
_PATCHES = _SIDE**2
TOWERS = {"qwen2_5_vl": "Qwen/Qwen2.5-VL-7B-Instruct", "qwen3_vl": "Qwen/Qwen3-VL-4B-Instruct"}


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
                    self._storages[storage._cdata] = weakref.ref(storage)
        live = {key: found for key, ref in self._storages.items() if (found := ref()) is not None}
        self._storages = {key: self._storages[key] for key in live}
        self.now = sum(storage.nbytes() for storage in live.values())
        self.peak = max(self.peak, self.now)
        return results


@dataclass(frozen=True)
class Case:
    """A small model of Qwen2's kind, how it is trained and on how many ranks."""

    lora: bool
    ranks: int
    vocabulary: int
    tied: bool = False

    @property
    def shape(self) -> ModelShape:
        """256 wide."""
        sizes = (256, _LAYERS, 4, 2, 64, 1024, self.vocabulary, self.tied)
        return ModelShape("small", *sizes, "", qkv_bias=True)

    def model(self) -> Any:
        """The model itself."""
        config = transformers.Qwen2Config(
            hidden_size=self.shape.hidden, intermediate_size=self.shape.intermediate,
            vocab_size=self.vocabulary, num_hidden_layers=_LAYERS, num_attention_heads=4,
            num_key_value_heads=2, tie_word_embeddings=self.tied, use_cache=False,
        )  # fmt: skip
        return transformers.Qwen2ForCausalLM(config)


SHARDED = [Case(lora, ranks, size) for lora in (False, True) for ranks in (1, 2, 8)
           for size in (1000, 8000)] + [Case(False, 8, 8000, tied=True)]  # fmt: skip


def _sharded(case: Case) -> Any:
    model: Any = case.model().float().train()
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


def held_by_fsdp1(case: Case) -> tuple[int, int]:
    """Bytes beside the shards, at most in a forward and in a backward pass."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=case.ranks)
    try:
        model = _sharded(case)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
        tokens = torch.zeros((1, _TOKENS), dtype=torch.long)
        memory, peaks = Held(), (0, 0)
        for _ in range(3):
            with memory, torch.autocast("cpu", dtype=torch.bfloat16):
                rest, memory.peak = memory.now, 0
                output = model(input_ids=tokens).logits.sum()
                forward, memory.peak = memory.peak, 0
            with memory:
                output.backward()
                peaks = forward - rest, memory.peak - rest
                optimizer.step()
        return peaks
    finally:
        distributed.destroy_process_group()


def estimated_of_fsdp1(case: Case) -> tuple[int, int]:
    """The same by the estimate."""
    setup = Setup(
        case.shape, 80 * GIB, ranks=case.ranks, engine="fsdp", trained_dtype_bytes=4,
        method="lora" if case.lora else "full", wraps_tables=False, flat_parameters=True,
    )  # fmt: skip
    groups = gathered(setup)
    return max(groups.start, groups.head), max(groups.layer + groups.reducing, groups.end)


def fsdp1() -> Iterator[str]:
    """Of each case of FSDP1."""
    yield from ("| job | forward | backward |", "|---|---|---|")
    for case in SHARDED:
        cells = [f"{ours / 1e6:.1f} of {true / 1e6:.1f} MB, {100 * (ours / true - 1):+.0f}%"
                 for ours, true in zip(estimated_of_fsdp1(case), held_by_fsdp1(case), strict=True)
                 ]  # fmt: skip
        method = "LoRA" if case.lora else "full"
        tied = ", tied" if case.tied else ""
        job = f"{method}, {case.ranks} ranks, {case.vocabulary} words{tied}"
        yield f"| {job} | {' | '.join(cells)} |"


STAGES = [(1, 8, False), (2, 8, False), (2, 8, True), (3, 8, False)]


def _engine(stage: int, ranks: int, overlap: bool) -> Any:
    """An engine of DeepSpeed as rank 0 of so many."""
    os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(ranks))
    import deepspeed  # noqa: PLC0415 - it picks its accelerator when it is imported

    # Its collectives for CPUs are compiled for minutes, and fake groups call none.
    sys.modules["deepspeed.comm.torch"].__dict__["build_shm_op"] = lambda: None
    model: Any = Case(lora=False, ranks=ranks, vocabulary=8000).model().to(torch.bfloat16)
    model.gradient_checkpointing_enable()
    zero = {
        "stage": stage, "overlap_comm": overlap, "reduce_bucket_size": _BUCKET,
        "stage3_param_persistence_threshold": 1000,
    }  # fmt: skip
    adam = {"type": "AdamW", "params": {"torch_adam": True}}
    settings = {
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2,
        "bf16": {"enabled": True}, "zero_optimization": zero, "optimizer": adam,
        "zero_force_ds_cpu_optimizer": False,
    }  # fmt: skip
    return deepspeed.initialize(model=model, config=settings)[0]


def held_by_zero(stage: int, ranks: int, overlap: bool) -> tuple[int, int, int]:
    """Bytes between steps, at most in a backward pass and in the optimizer step."""
    torch.set_num_threads(1)
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    tokens = torch.zeros((1, _TOKENS), dtype=torch.long)
    memory, backward, rest = Held(), 0, 0
    with memory:
        engine = _engine(stage, ranks, overlap)
        for _ in range(4):
            loss = engine(input_ids=tokens, labels=tokens).loss
            memory.peak = 0
            engine.backward(loss)
            backward, memory.peak = memory.peak, 0
            del loss
            engine.step()
            rest = memory.now
    return rest, backward, memory.peak


def estimated_of_zero(stage: int, ranks: int, overlap: bool) -> tuple[int, int, int]:
    """The same by the estimate, with this bucket."""
    setup = Setup(
        Case(lora=False, ranks=ranks, vocabulary=8000).shape, 80 * GIB, ranks=ranks,
        engine="deepspeed", zero_stage=stage, optimizer="adamw_foreach",
    )  # fmt: skip
    states = states_of(setup, calibration())
    bucket = 2 * _BUCKET * (2 if overlap else 1)
    stays = bucket if stage == 3 else 0
    rest = sum(entry.bytes for entry in (*states.weights, *states.between_steps)) + stays
    backward = sum(entry.bytes for entry in states.all) + bucket + gathered_bytes(setup)
    step = sum(entry.bytes for entry in (*states.at_step, *states.scratch)) + stays
    return rest, backward + 2 * setup.model.embedding_parameters, step


def zero() -> Iterator[str]:
    """Of each stage, run in a process of its own: DeepSpeed keeps its groups."""
    yield from ("| job | between steps | backward | optimizer step |", "|---" * 4 + "|")
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        measured = pool.starmap(held_by_zero, STAGES, chunksize=1)
    for (stage, ranks, overlap), truth in zip(STAGES, measured, strict=True):
        count = Case(lora=False, ranks=ranks, vocabulary=8000).shape.parameters
        pairs = zip(estimated_of_zero(stage, ranks, overlap), truth, strict=True)
        cells = [f"{ours / count:.2f} of {true / count:.2f}, {100 * (ours / true - 1):+.0f}%"
                 for ours, true in pairs]  # fmt: skip
        job = f"ZeRO-{stage}, {ranks} ranks{', overlap_comm' if overlap else ''}"
        yield f"| {job} | {' | '.join(cells)} |"


def held_by_tower(kind: str, layers: int, trained: bool, recompute: bool) -> tuple[float, float]:
    """Bytes per patch after a forward pass, and at most within it."""
    config = transformers.AutoConfig.for_model(kind).vision_config
    sizes = _tower(kind, layers).vision
    assert sizes is not None
    config.depth, config._attn_implementation = layers, "sdpa"
    config.hidden_size, config.intermediate_size = sizes.hidden, sizes.intermediate
    torch.set_default_dtype(torch.bfloat16)
    tower = transformers.AutoModel.from_config(config).train().requires_grad_(trained)
    torch.set_default_dtype(torch.float32)
    if recompute:
        tower.gradient_checkpointing_enable({"use_reentrant": False})
    pixels = torch.zeros(_PATCHES, 3 * 2 * config.patch_size**2, dtype=torch.bfloat16)
    grid = torch.tensor([[1, _SIDE, _SIDE]])
    with Held() as memory, torch.set_grad_enabled(trained):
        for known in (*tower.parameters(), *tower.buffers(), pixels, grid):
            known.detach()
        rest, memory.peak = memory.now, 0
        output = tower(pixels, grid)
        kept = memory.now  # while there is an output, which holds it
    del output
    return (kept - rest) / _PATCHES, (memory.peak - rest) / _PATCHES


def _tower(kind: str, layers: int) -> ModelShape:
    shape = model_shape(TOWERS[kind])
    assert shape.vision is not None
    return replace(shape, vision=replace(shape.vision, layers=layers))


def estimated_of_tower(kind: str, layers: int, **change: Any) -> float:
    """Bytes per patch by the estimate, without the pixels."""
    shape = _tower(kind, layers)
    side = shape.vision.patch if shape.vision else 0
    setup = Setup(shape, 80 * GIB, max_pixels=_PATCHES * side**2, packing=True, **change)
    entries = ledger_of(setup, without_allocator()).train.phases[0].components
    size = next(entry.bytes for entry in entries if entry.name == "vision tower")
    return size / _PATCHES - 3 * 2 * side**2 * 4


def towers() -> Iterator[str]:
    """Of each tower, what a trained layer keeps and the whole holds where it is frozen."""
    yield from ("| tower | term | estimate | real | off |", "|---" * 5 + "|")
    for kind in TOWERS:
        terms = {}
        for name, recompute in (("kept by a layer", False), ("kept by a layer, recomputed", True)):
            trained: dict[str, Any] = {"freeze_vision": False, "vision_recompute": recompute}
            ours = [estimated_of_tower(kind, layers, **trained) for layers in (1, 2)]
            true = [held_by_tower(kind, layers, True, recompute)[0] for layers in (1, 2)]
            terms[name] = ours[1] - ours[0], true[1] - true[0]
        terms["frozen"] = estimated_of_tower(kind, 1), held_by_tower(kind, 1, False, False)[1]
        for name, (own, real) in terms.items():
            off = 100 * (own / real - 1)
            yield f"| {kind} | {name} | {own:.0f} B | {real:.0f} B | {off:+.0f}% |"


TABLES: dict[str, Callable[[], Iterator[str]]] = {"fsdp1": fsdp1, "zero": zero, "towers": towers}


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(print_or_write(__doc__, {n: partial("\n".join, t()) for n, t in TABLES.items()}))
