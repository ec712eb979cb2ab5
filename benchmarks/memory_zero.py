"""What DeepSpeed's ZeRO holds, next to the estimate.

`python -m benchmarks.memory_zero [--write FILE]`: a small model on a CPU, with fake process groups.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any

import torch
import transformers
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks.memory_accuracy import print_or_write
from benchmarks.memory_fsdp1 import Case, Held
from grpo_doctor.memory import GIB, Setup
from grpo_doctor.memory.facts import calibration
from grpo_doctor.memory.overhead import gathered_bytes
from grpo_doctor.memory.states import states_of

BEGIN = "<!-- section zero -->"
HEADING = """## What ZeRO holds

Written by `python -m benchmarks.memory_zero --write benchmarks/results/accuracy.md`: everything
that lives between two steps, at most in the second backward pass of a step, and in the optimizer
step, in bytes of a trained parameter. DeepSpeed 0.19.8 runs with fake process groups, 16 tokens,
buckets of 200,000 elements, only norms and biases kept whole, and torch's AdamW. First answer, with
the gradients of all ranks in ZeRO-1's step and without their 16-bit copy in ZeRO-3's: +35%, -14%.
What is missing in the backward pass is a partition of gradients that is added to what is there; it
comes after the activations are gone.
"""
_BUCKET = 200_000
CASES = [(1, 8, False), (2, 8, False), (2, 8, True), (3, 8, False)]


def _engine(stage: int, ranks: int, overlap: bool) -> Any:
    """An engine of DeepSpeed as rank 0 of so many."""
    os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(ranks))
    import deepspeed  # noqa: PLC0415 - it picks its accelerator when it is imported

    # Its collectives for CPUs are compiled for minutes, and fake groups call none.
    sys.modules["deepspeed.comm.torch"].__dict__["build_shm_op"] = lambda: None
    shape = Case(lora=False, ranks=ranks, vocabulary=8000).shape
    config = transformers.Qwen2Config(
        hidden_size=shape.hidden, intermediate_size=shape.intermediate, vocab_size=8000,
        num_hidden_layers=shape.layers, num_attention_heads=4, num_key_value_heads=2,
        tie_word_embeddings=False, use_cache=False,
    )  # fmt: skip
    model: Any = transformers.Qwen2ForCausalLM(config).to(torch.bfloat16)
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


def held(stage: int, ranks: int, overlap: bool) -> tuple[int, int, int]:
    """Bytes between steps, at most in a backward pass and in the optimizer step."""
    torch.set_num_threads(1)
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    tokens = torch.zeros((1, 16), dtype=torch.long)
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


def estimated(stage: int, ranks: int, overlap: bool) -> tuple[int, int, int]:
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


def rows() -> Iterator[str]:
    """Of each case, run in a process of its own: DeepSpeed keeps its groups."""
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        measured = pool.starmap(held, CASES, chunksize=1)
    for case, truth in zip(CASES, measured, strict=True):
        stage, ranks, overlap = case
        count = Case(lora=False, ranks=ranks, vocabulary=8000).shape.parameters
        pairs = zip(estimated(*case), truth, strict=True)
        cells = [f"{ours / count:.2f} of {true / count:.2f}, {100 * (ours / true - 1):+.0f}%"
                 for ours, true in pairs]  # fmt: skip
        job = f"ZeRO-{stage}, {ranks} ranks{', overlap_comm' if overlap else ''}"
        yield f"| {job} | {' | '.join(cells)} |"


def table() -> str:
    """Each job with its estimates and what the run held, as Markdown."""
    head = "| job | between steps | backward | optimizer step |"
    return "\n".join([head, "|---" * 4 + "|", *rows()])


if __name__ == "__main__":
    sys.exit(print_or_write(__doc__, table, BEGIN, HEADING))
