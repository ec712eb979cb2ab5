"""Runs a training step of a real model without its memory, and says what would have been held.

Fake tensors have sizes and no content. The model is transformers', the adapters PEFT's, the
optimizer and FSDP2 torch's, the loss that of TRL or of the bundled trainer.
"""
# ruff: noqa: SLF001 - what is traced is private to the libraries, and replaced where fake

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import transformers
from accelerate.utils import convert_outputs_to_fp32
from peft import LoraConfig, get_peft_model
from torch import distributed
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import masking_utils
from trl.kernels import chunked_logprob
from trl.trainer.utils import entropy_from_logits, selective_log_softmax

from benchmarks.memory_truth import Point
from grpo_doctor.memory.models import ModelShape
from grpo_doctor_trainer.algorithm import logprobs

_WHOLE = ("Unsharded Param", "Unsharded Grad", "All Gather", "Reduce Scatter")
_ATTENTION_TARGETS = ["q_proj", "v_proj"]


class Tracker:
    """Torch's tracker, without its statistics of each module, which cost a pass over them."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        divided = isinstance(model, FSDPModule)
        kind: Any = partial(FSDPMemTracker, model, optimizer) if divided else MemTracker
        self._torch = kind()
        self._torch.track_external(model, optimizer)
        self._torch._update_peak_stats = self._note_peak
        track = self._torch._track_module_params_and_buffers
        # Its hooks on gradients refuse parameters that are frozen.
        self._torch._track_module_params_and_buffers = lambda module, **_: track(module, False)
        self.peak: dict[str, int] = {}

    def __enter__(self) -> Tracker:
        self._torch.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._torch.__exit__(*error)

    def held(self) -> dict[str, int]:
        """Bytes by kind, now."""
        kinds: dict[Any, int] = next(iter(self._torch._curr_mem_snap.values()), {})
        return {getattr(kind, "value", kind): size for kind, size in kinds.items()}

    def _note_peak(self, _state: object) -> None:
        held = self.held()
        if held.get("Total", 0) > self.peak.get("Total", 0):
            self.peak = held

    def restart(self) -> dict[str, int]:
        """Begins a part of the step; returns the most that was held in the part before it."""
        before, self.peak = self.peak, self.held()
        return before

    def next_pass(self) -> None:
        """Torch's tracker takes each module once."""
        self._torch.reset_mod_stats()


def measure(point: Point, fake: bool = True) -> dict[str, int]:
    """The bytes of each term in the second of two micro-batches of the second step."""
    gc.collect()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    logprobs._BLOCK_BYTES.clear()
    try:
        with _patched(), FakeTensorMode() if fake else nullcontext():
            model = _model(point)
            if point.ranks > 1:
                _divide(model, point)
            trained = [p for p in model.parameters() if p.requires_grad]
            fused = not point.optimizer.endswith("_foreach")
            optimizer = torch.optim.AdamW(trained, lr=1e-5, foreach=not fused, fused=fused)
            with Tracker(model, optimizer) as tracker:
                return _steps(point, model, optimizer, tracker)
    finally:
        torch.set_num_threads(threads)
        if distributed.is_initialized():
            distributed.destroy_process_group()


@contextmanager
def _patched() -> Iterator[None]:
    """Without what fake tensors can't do, or what a real step does not."""
    with ExitStack() as stack:
        for kernel in ("_forward_tile", "_backward_tile", "_addmm_fp32"):  # in place on a GPU
            stack.enter_context(patch.object(chunked_logprob, kernel, lambda *_a, **_k: None))
        # Fake rows look packed, for which transformers makes a mask.
        none = patch.object(masking_utils, "find_packed_sequence_indices", lambda _: None)
        stack.enter_context(none)
        yield


def _steps(
    point: Point, model: Any, optimizer: torch.optim.Optimizer, tracker: Tracker
) -> dict[str, int]:
    tokens = torch.zeros((point.micro_batch, point.prompt + point.completion), dtype=torch.long)
    parameters = list(model.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    weights = _bytes_of(trained), _bytes_of(parameters)
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # makes its state; gradients stay, as from an earlier micro-batch
    second = _Pass(point, model, tokens, tracker)
    gradients = _bytes_of(parameter.grad for parameter in trained)
    before = tracker.held()
    optimizer.step()
    scratch = tracker.restart()["Total"] - before["Total"]
    optimizer.zero_grad()
    tracker.restart()
    before = tracker.held()
    tracker.next_pass()
    with torch.no_grad():
        _loss(point, model, tokens)
    moments = (t for state in optimizer.state.values() for t in state.values() if t.dim())
    return {
        "trained weights": weights[0],
        "frozen weights": weights[1] - weights[0],
        "gradients": gradients,
        "optimizer states": _bytes_of(moments),
        "optimizer scratch": scratch,
        **second.terms(),
        "logprob": _divided(tracker.peak) - _divided(before),
    }


class _Pass:
    """Forward and backward, divided where the decoder ends and where its gradients begin and end.

    Attributes:
        held: at those moments, by kind.
        peaks: of the parts: to the decoder's end, head and loss, layers, tables.
    """

    def __init__(self, point: Point, model: Any, tokens: torch.Tensor, tracker: Tracker) -> None:
        self.held: list[dict[str, int]] = []
        self.peaks: list[dict[str, int]] = []
        self._tracker = tracker
        tracker.next_pass()
        tracker.restart()
        self.held.append(tracker.held())
        backbone = _backbone(model)
        hooks = [
            backbone.register_forward_hook(lambda *call: self._decoded(call[2])),
            backbone.embed_tokens.register_forward_hook(lambda *call: self._when_known(call[2])),
        ]
        _loss(point, model, tokens).backward()
        for hook in hooks:
            hook.remove()
        self._mark()

    def _mark(self, *_: object) -> None:
        self.peaks.append(self._tracker.restart())
        self.held.append(self._tracker.held())

    def _decoded(self, output: Any) -> None:
        self._mark()
        self._when_known(output.last_hidden_state)

    def _when_known(self, value: Any) -> None:
        if value.requires_grad:
            value.register_hook(self._mark)

    def terms(self) -> dict[str, int]:
        """The bytes of what comes and goes."""
        start, decoded, scored = (_divided(held) for held in self.held[:3])
        peaks = [_divided(peak) for peak in self.peaks]
        most = max(self.peaks, key=lambda peak: peak["Total"])
        return {
            "kept": decoded - start,
            "logits and loss": peaks[1] - decoded,
            "tied table": scored - decoded,
            "one layer": peaks[2] - scored,
            "tables": peaks[3] - start if len(peaks) > 3 else 0,
            "unsharded": sum(most.get(kind, 0) for kind in _WHOLE),
            "peak": most["Total"],
        }


def _divided(held: dict[str, int]) -> int:
    """All but what FSDP gathers for a moment."""
    return held["Total"] - sum(held.get(kind, 0) for kind in _WHOLE)


def _bytes_of(tensors: Iterable[Any]) -> int:
    local = [t.to_local() if hasattr(t, "to_local") else t for t in tensors]
    return sum(t.numel() * t.element_size() for t in local)


def _backbone(model: Any) -> Any:
    return getattr(model, "get_base_model", lambda: model)().model


def _model(point: Point) -> Any:
    config = transformers.AutoConfig.for_model(point.family, **_sizes(point.shape))
    kind: Any = transformers.AutoModelForCausalLM
    if point.loss == "values":  # verl's fsdp_workers.CriticWorker
        kind, config.num_labels = transformers.AutoModelForTokenClassification, 1
    model = kind.from_config(
        config,
        dtype=torch.float32 if point.trained_bytes == 4 else torch.bfloat16,
        attn_implementation="eager" if point.attention == "eager" else "sdpa",
    ).train()
    if point.recompute == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if point.method == "full":
        return model
    targets = _ATTENTION_TARGETS if point.targets == "attention" else "all-linear"
    # Fake parameters can't be moved in place; all is where it should be, adapters in float32.
    with patch.object(torch.nn.Module, "to", lambda self, *_a, **_k: self):
        return get_peft_model(model, LoraConfig(r=point.lora_rank, target_modules=targets))


def _sizes(shape: ModelShape) -> dict[str, Any]:
    sizes: dict[str, Any] = {
        "hidden_size": shape.hidden, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim, "intermediate_size": shape.intermediate,
        "vocab_size": shape.vocabulary, "tie_word_embeddings": shape.tied, "use_cache": False,
    }  # fmt: skip
    if shape.experts:
        sizes["num_experts"] = shape.experts.count
        sizes["num_experts_per_tok"] = shape.experts.active
        sizes["moe_intermediate_size"] = shape.experts.intermediate
    return sizes


def _divide(model: Any, point: Point) -> None:
    """FSDP2 as frameworks apply it: each layer, then the rest."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=point.ranks)
    with unset_fake_temporarily():
        mesh = init_device_mesh("cpu", (point.ranks,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    parts = list(_backbone(model).layers)
    if point.wraps == "tables" and not point.shape.tied:
        parts.append(_backbone(model).embed_tokens)
        parts += [model.lm_head] if point.shape.head else []
    for part in parts:
        fully_shard(part, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def _loss(point: Point, model: Any, tokens: torch.Tensor) -> Any:
    mixed = point.method == "lora" or point.trained_bytes == 4
    mixed = mixed and point.loss != "rows in 16 bits"
    if point.loss == "rows":  # Accelerator.prepare_model: autocast around the model alone
        forward: Any = convert_outputs_to_fp32(torch.autocast("cpu", torch.bfloat16)(model.forward))
        with patch.object(model, "forward", forward):
            return _rows_of_logits(model, tokens, point)
    with torch.autocast("cpu", torch.bfloat16) if mixed else nullcontext():
        return LOSSES[point.loss](model, tokens, point)


def _inputs(point: Point, tokens: torch.Tensor) -> dict[str, Any]:
    """Rows that are padded come with a mask, which FlashAttention's kernel under SDPA refuses."""
    if point.attention != "masked":
        return {"input_ids": tokens}
    rows, length = tokens.shape
    mask = torch.ones((rows, 1, length, length), dtype=torch.bool)
    return {"input_ids": tokens, "attention_mask": mask}


def _cross_entropy(model: Any, tokens: torch.Tensor, point: Point) -> Any:
    return model(**_inputs(point, tokens), labels=tokens).loss


def _rows_of_logits(model: Any, tokens: torch.Tensor, point: Point) -> Any:
    """TRL 0.16 to 1.15: `_get_per_token_logps_and_entropies`."""
    keep = point.completion
    logits = model(**_inputs(point, tokens), logits_to_keep=keep + 1).logits
    logits = logits[:, :-1, :][:, -keep:, :] / 0.9
    logps = selective_log_softmax(logits, tokens[:, -keep:])
    with torch.no_grad():
        entropy_from_logits(logits)
    return logps.sum()


def _tiles_of_logits(model: Any, tokens: torch.Tensor, point: Point) -> Any:
    """TRL 1.16, where Triton runs: its kernels work on a tile in place."""
    hidden = _backbone(model)(**_inputs(point, tokens)).last_hidden_state[:, :-1]
    hidden, targets = hidden[:, -point.completion :].flatten(0, 1), tokens[:, -point.completion :]
    weight = model.get_output_embeddings().weight
    tile, outputs = 32768, ("log_probs", "entropy")
    chunked = chunked_logprob.ChunkedLogProbFunction.apply
    return chunked(hidden, weight, None, targets.flatten(), 0.9, tile, None, 1.0, outputs)[0].sum()


def _bundled(model: Any, tokens: torch.Tensor, point: Point) -> Any:
    first = point.prompt - 1
    kept = torch.arange(first, first + point.completion)
    logits = model(**_inputs(point, tokens), logits_to_keep=kept).logits
    chosen = logprobs.token_logprobs(logits, tokens[:, point.prompt :], 0.9, entropy=True).chosen
    return chosen.sum()


class _CrossEntropy(torch.autograd.Function):
    """flash_attn.ops.triton.cross_entropy: its kernels keep logits, and write their gradient."""

    @staticmethod
    def forward(ctx: Any, logits: Any, in_place: bool) -> Any:
        ctx.save_for_backward(logits, logits.new_empty(len(logits), dtype=torch.float32))
        ctx.in_place = in_place
        return logits.new_empty(len(logits), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        logits = ctx.saved_tensors[0]
        return logits if ctx.in_place else torch.empty_like(logits), None


def _verl(model: Any, tokens: torch.Tensor, point: Point) -> Any:
    """verl 0.9 FSDPEngine.prepare_model_outputs, rows packed; its entropy is one compiled kernel,
    which keeps its input alone, as the cross entropy does."""
    output = model(input_ids=tokens.flatten()[None])
    logits = output.logits.squeeze(0)
    kernel: Callable[..., Any] = _CrossEntropy.apply
    total = kernel(logits, point.loss == "verl").sum()
    if point.loss == "verl, entropy":
        total = total + kernel(logits, False).sum()
    return total


def _values(model: Any, tokens: torch.Tensor, _point: Point) -> Any:
    """verl's DataParallelPPOCritic, and core_algos.compute_value_loss."""
    values = model(input_ids=tokens.flatten()[None]).logits.squeeze()
    clipped = values.clamp(-0.5, 0.5)
    return torch.max((values - 1) ** 2, (clipped - 1) ** 2).mean()


def _no_head(model: Any, tokens: torch.Tensor, point: Point) -> Any:
    hidden = _backbone(model)(**_inputs(point, tokens)).last_hidden_state
    return hidden.mean()


LOSSES: dict[str, Callable[[Any, torch.Tensor, Point], Any]] = {
    "cross entropy": _cross_entropy,
    "rows": _rows_of_logits,
    "rows in 16 bits": _rows_of_logits,
    "verl": _verl,
    "verl, entropy": _verl,
    "trl": _tiles_of_logits,
    "bundled": _bundled,
    "none": _no_head,
    "values": _values,
}
