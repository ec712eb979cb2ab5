"""Weights, gradients and optimizer state of one rank."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.memory.facts import Calibration, facts
from grpo_doctor.memory.ledger import Component, Row, entries
from grpo_doctor.memory.setup import Setup, Share, share_of

_MOMENTS = {"adamw": 2.0, "muon": 1.0, "sgd": 0.0, "galore": 0.25, "adamw_8bit": 0.5}
_ZERO = "arXiv 1910.02054; deepspeed/runtime/zero, bf16_optimizer.py"
_MEGATRON = "Megatron-LM distributed optimizer: 18 B, or 6 B + 12 B / data parallel"
_STAGE = "deepspeed.stage"


@dataclass(frozen=True, slots=True)
class States:
    """What a rank holds between two micro-batches, and what the optimizer step adds."""

    weights: tuple[Component, ...]
    gradients: Component
    optimizer: tuple[Component, ...]
    scratch: tuple[Component, ...]
    step_gradients: Component
    """In the optimizer step, before which ZeRO-1 frees those of other ranks."""
    keeps_gradients: bool
    """Whether the gradients' buffer stays between steps."""
    trained: int
    """Parameters this rank's process trains before they are divided."""

    @property
    def all(self) -> tuple[Component, ...]:
        """Everything but the scratch."""
        return (*self.weights, self.gradients, *self.optimizer)

    @property
    def at_step(self) -> tuple[Component, ...]:
        """Everything in the optimizer step but its scratch."""
        return (*self.weights, self.step_gradients, *self.optimizer)

    @property
    def between_steps(self) -> tuple[Component, ...]:
        """Return what stays next to the weights when no step is running."""
        return (self.gradients, *self.optimizer) if self.keeps_gradients else self.optimizer


def states_of(setup: Setup, factors: Calibration) -> States:
    """The states of the worst rank."""
    share = share_of(setup)
    if setup.engine == "megatron":
        return _megatron(setup, share, factors)
    return _divided(setup, share, factors)


def frozen_bytes(setup: Setup, share: Share) -> float:
    """Bytes of what is not trained; tables, norms and the vision tower are never quantized."""
    if setup.base_bits >= 16:
        wide = setup.trained_dtype_bytes == 4 and setup.engine in ("torch", "fsdp", "device_map")
        return float(share.frozen * (4 if wide else 2))
    model = setup.model
    plain = (model.table_parameters + model.vision_parameters) // setup.tensor_parallel
    plain = min(share.frozen, plain)
    each = 4 if setup.tables_in_float32 else 2
    return plain * each + (share.frozen - plain) * quantized_bytes(setup)


def quantized_bytes(setup: Setup) -> float:
    """Bytes of a quantized weight: bitsandbytes has a float32 scale for 64 of them, GPTQ and AWQ
    one of 16 bits and a zero point for 128."""
    return (setup.base_bits + (0.5 if setup.tables_in_float32 else 0.16)) / 8


def zero_stage(setup: Setup) -> int:
    """What is divided, in ZeRO's numbers; FSDP divides all that stage 3 does."""
    return setup.zero_stage if setup.engine == "deepspeed" else 3 if setup.engine == "fsdp" else 0


def _moments(setup: Setup) -> float:
    return _MOMENTS.get(setup.optimizer.removesuffix("_foreach"), 2.0)


def _billions(count: float) -> str:
    return f"{count / 1e9:.2f}e9"


def _divided(setup: Setup, share: Share, factors: Calibration) -> States:
    """Plain, DDP, ZeRO or FSDP."""
    trained = share.trained + share.trained_experts
    stage, ranks = zero_stage(setup), setup.shards
    weights_by = ranks if stage == 3 else 1
    gradients_by = ranks if stage >= 2 else 1
    each = trained_bytes(setup)
    on_card = 0 if setup.zero_offload_parameters and stage == 3 else 1
    rows: list[Row] = [
        ("trained weights", on_card * trained * each / weights_by,
         f"{_billions(trained)} x {each} B / {weights_by}", _ZERO, _STAGE),
    ]  # fmt: skip
    if share.frozen:
        frozen = frozen_bytes(setup, share)
        formula = f"{_billions(share.frozen)} x {frozen / share.frozen:.3g} B / {weights_by}"
        rows.append(
            ("frozen weights", on_card * frozen / weights_by, formula, "config.json", _STAGE)
        )
    on_host, deepspeed = setup.zero_offload_optimizer, setup.engine == "deepspeed"
    gradient = 2 if deepspeed else each
    held = 0 if on_host and stage >= 2 else trained * gradient / gradients_by
    formula = f"{_billions(trained)} x {gradient} B / {gradients_by}"
    gradients, divided = entries(
        factors.spread_training,
        ("gradients", held, formula, _ZERO, _STAGE),
        ("gradients", held / ranks, f"{formula} / {ranks}", _ZERO, _STAGE),
    )
    optimizer, scratch = _optimizer(setup, trained, ranks if stage else 1)
    return States(
        weights=entries(factors.spread_states, *rows),
        gradients=gradients,
        optimizer=() if on_host else entries(factors.spread_training, *optimizer),
        scratch=() if on_host else entries(factors.spread_training, *scratch),
        step_gradients=divided if stage == 1 else gradients,
        keeps_gradients=deepspeed and stage == 3,
        trained=trained,
    )


def trained_bytes(setup: Setup) -> int:
    """Bytes of one trained weight."""
    if setup.method == "lora" and setup.engine in ("torch", "device_map"):
        return 4  # PEFT's autocast_adapter_dtype
    if setup.engine == "deepspeed":
        return 2
    return setup.trained_dtype_bytes


def _optimizer(setup: Setup, trained: int, shards: int) -> tuple[list[Row], list[Row]]:
    """Return its state, and what its step needs in addition to that."""
    moments, deepspeed = _moments(setup), setup.engine == "deepspeed"
    each = 4 if deepspeed else trained_bytes(setup)
    group = trained / shards
    state: list[Row] = [
        ("optimizer moments", group * each * moments,
         f"{_billions(trained)} x {moments:g} x {each} B / {shards}", "torch.optim.AdamW",
         "train.optimizer"),
    ]  # fmt: skip
    scratch: list[Row] = []
    if deepspeed:
        state.append(
            ("float32 master weights", 4 * group, f"{_billions(trained)} x 4 B / {shards}", _ZERO,
             "deepspeed.offload_optimizer")
        )  # fmt: skip
        if setup.zero_stage == 3:
            group = min(group, float(facts()["deepspeed"]["sub_group_elements"]["elements"]))
        copied = 6 if setup.zero_stage else 4  # ZeRO flattens them in 16 bits before
        formula = f"{_billions(group)} x {copied} B"
        scratch.append(
            ("float32 copy of gradients", copied * group, formula,
             "deepspeed stage_1_and_2.py:3110, stage3.py", None)
        )  # fmt: skip
    if setup.optimizer.endswith("_foreach"):
        scratch.append(
            ("foreach scratch", each * group, f"{_billions(group)} x {each} B",
             "torch.optim.adam: _foreach_sqrt copies a moment", "train.optimizer")
        )  # fmt: skip
    return state, scratch


def _megatron(setup: Setup, share: Share, factors: Calibration) -> States:
    experts_by = max(1, setup.ranks // (setup.pipeline_parallel * setup.expert_parallel))
    dense_by = setup.data_parallel
    if not setup.distributed_optimizer:
        experts_by = dense_by = 1
    trained, tensor = share.trained + share.trained_experts, "parallel.tensor"
    each = 4 * (1 + _moments(setup))
    state = each * (share.trained / dense_by + share.trained_experts / experts_by)
    count, frozen = _billions(trained), frozen_bytes(setup, share)
    weights, gradients, optimizer, still = entries(
        factors.spread_training,
        ("trained weights", 2 * trained, f"{count} x 2 B", _MEGATRON, tensor),
        ("gradients", 4 * trained, f"{count} x 4 B", _MEGATRON, tensor),
        ("master weights and moments", state * (1 - setup.optimizer_offload_share),
         f"{each / 4:g} x 4 B / {dense_by} dense, / {experts_by} experts", _MEGATRON,
         "train.optimizer"),
        ("frozen weights", frozen, f"{_billions(share.frozen)} x 2 B", "config.json", tensor),
    )  # fmt: skip
    return States(
        weights=(weights, still) if share.frozen else (weights,),
        gradients=gradients,
        step_gradients=gradients,
        optimizer=(optimizer,),
        scratch=(),
        keeps_gradients=True,
        trained=trained,
    )
