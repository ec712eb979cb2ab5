"""What comes and goes within a micro-batch: activations, checkpoints, logits, image features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grpo_doctor.memory.facts import Calibration, facts
from grpo_doctor.memory.layers import (
    SOURCE,
    backward_bytes,
    computes_in_float32,
    kept_bytes,
    scored_bytes,
    selective_bytes,
)
from grpo_doctor.memory.ledger import Component
from grpo_doctor.memory.overhead import gathered
from grpo_doctor.memory.setup import Setup

_ENTROPY_ROWS = 128
_TILE, _TILE_ROWS = 65_536, 4096
"""Bytes of a row in TRL's fused kernel, and how many rows it takes at once."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of one micro-batch on one rank."""

    all: int
    """Through the decoder, after context parallelism."""
    scored: int
    """Those whose logits are kept."""
    images: int


def tokens_of(
    setup: Setup,
    factors: Calibration,
    micro_batch: int | None = None,
    budget: int | None = None,
    most_rows: int | None = None,
) -> Tokens:
    """How many tokens the largest micro-batch of so many rows, or up to a budget, has."""
    batch = micro_batch or setup.micro_batch
    longest = setup.prompt_tokens + setup.completion_tokens
    images = min(setup.image_tokens, setup.prompt_tokens)
    rows = batch * (2 if setup.paired else 1)
    if setup.is_grpo:
        many = float(rows)
        if budget:  # what is counted is without padding
            budget = budget if setup.padding_free else round(budget / factors.usual_share)
            many = max(1.0, budget * setup.context_parallel / longest)
            many = min(many, most_rows or many)
        elif setup.padding_free:  # of long-tailed lengths one row makes a batch large
            many = 1 + (rows - 1) * factors.usual_share
        scored = longest if setup.scores_prompts else setup.completion_tokens
        return Tokens(
            round(many * longest / setup.context_parallel),
            round(many * scored / setup.context_parallel),
            round(images * (many if budget else batch)),
        )
    if setup.packing:
        everything = rows * longest
    else:
        usual = setup.usual_row_tokens or round(factors.usual_row_tokens)
        row = setup.longest_row_tokens or round(factors.longest_row_tokens)
        row = min(longest, max(row, images + usual))
        everything = rows * row
        if setup.padding_free:
            everything = row + (rows - 1) * min(row, images + usual)
    everything //= setup.context_parallel
    return Tokens(everything, everything, images * batch)


def fragmentation(setup: Setup, factors: Calibration) -> float:
    """Reserved over allocated bytes of what comes and goes."""
    if setup.expandable_segments:
        return factors.fragmentation_expandable
    fixed = setup.packing or setup.engine == "megatron"
    return factors.fragmentation_fixed if fixed else factors.fragmentation_varied


def train_activations(setup: Setup, factors: Calibration) -> tuple[Component, ...]:
    """The worst moment of forward and backward pass, without the states."""
    tokens = tokens_of(setup, factors, budget=setup.train_tokens, most_rows=setup.most_rows)
    waste = fragmentation(setup, factors)
    entries: list[Component] = []
    spread = _spread(setup, factors)
    fact = facts()["loss_bytes_per_logit"][setup.loss]
    # The share of a loss's buffers that it cannot do without at the same time.
    of_loss = fact.get("at_once", fact["bytes"]) / (fact["bytes"] or 1)

    def add(name: str, size: float, formula: str, source: str, knob: str | None) -> None:
        at_once = of_loss if name == _LOSS else 1.0
        spare = _spare(size, waste, factors, setup.train_tokens, at_once)
        entries.append(Component(name, round(size * waste), formula, source, knob, spread, spare))

    kept, formula = _kept(setup, tokens)
    name, knob = "activations", "train.gradient_checkpointing"
    if setup.recompute == "full":
        name, knob = "checkpoints", "train.micro_batch"
    add(name, kept, formula, SOURCE, knob)
    groups, copies = gathered(setup), float(_weight_copies(setup))
    keeps_all = setup.recompute != "full"
    freed = kept / setup.model.layers if keeps_all else 0
    one = copies if keeps_all else copies / setup.model.layers
    tables = f"{setup.model.vocabulary} x {setup.model.hidden}"
    of_tables = (3 if setup.model.tied and setup.loss != "none" else 1) * _trains_tables(setup)
    left = max(0.0, of_tables * _table_bytes(setup) - kept)  # at the end, when nothing is kept
    at_head = one if setup.loss == "upcast" else copies  # Accelerate's autocast ends before it
    moments = (
        (_head(setup, tokens), groups.head, at_head),
        (_layer(setup, tokens, freed), groups.layer + max(0, groups.reducing - freed), one),
        (("gradients of tables", left, tables, _EMBEDDING, "train.type"), 0, 0),
        (_NOTHING, groups.head_alone, 0),
        (_NOTHING, max(groups.start, groups.end) - kept, 0),
    )  # fmt: skip
    (name, size, formula, source, knob), whole, copies = max(
        moments, key=lambda moment: moment[0][1] + moment[1] + moment[2]
    )
    if size:
        add(name, size, formula, source, knob)
    if whole > 0:
        entries.append(
            Component(_GATHERED, round(whole), "busy groups of FSDP x 2 to 8 B", _FSDP,
                      "deepspeed.stage", factors.spread_overhead)
        )  # fmt: skip
    if copies:
        add(_COPIES, copies, f"{copies / 2e9:.2f}e9 x 2 B", _AUTOCAST, None)
    vision = _vision_bytes(setup, tokens)
    if vision:
        add("vision tower", vision, f"{tokens.images} image tokens x 4 patches",
            "transformers Qwen2.5-VL, Qwen3-VL", "data.max_pixels")  # fmt: skip
    return tuple(entries)


_LOSS = "logits and loss"


Moment = tuple[str, float, str, str, str]
"""What one moment of the backward pass needs: name, bytes, formula, source, setting."""
_GATHERED = "gathered parameters"
_FSDP = "torch.distributed.fsdp foreach_all_gather, foreach_reduce"
_NOTHING: Moment = ("", 0.0, "", "", "")
"""Only FSDP moves something."""
_EMBEDDING = "torch embedding_dense_backward"
_COPIES, _AUTOCAST = "16-bit weights", "torch.autocast keeps its copies until it ends"


def _weight_copies(setup: Setup) -> int:
    """Copies of float32 weights of layers that autocast makes for its forward passes."""
    layers = setup.model.layers // (setup.ranks if setup.engine == "device_map" else 1)
    return 2 * setup.model.layer_parameters * max(1, layers) * computes_in_float32(setup)


def _kept(setup: Setup, tokens: Tokens) -> tuple[float, str]:
    """What forward passes keep: of each layer its input, or what its backward pass needs."""
    model, divided = setup.model, setup.tensor_parallel
    layers, in_flight = max(1, model.layers // setup.pipeline_parallel), setup.pipeline_parallel
    if setup.engine == "device_map":
        layers, in_flight = max(1, model.layers // setup.ranks), 1
    residual = 4 if computes_in_float32(setup) else 2
    last = 0 if setup.engine == "megatron" else (6 if setup.method == "lora" else 8) * model.hidden
    if setup.recompute == "full":
        shared = divided if setup.sequence_parallel else 1
        stacked = 0 if setup.activations_on_host else layers * in_flight
        size = tokens.all * (residual * model.hidden * stacked + last) / shared
        return size, f"{tokens.all} tokens x {residual} B x {model.hidden} x {layers} layers"
    each = kept_bytes(setup)
    if setup.recompute == "selective" and setup.engine != "megatron":
        each = selective_bytes(setup)
    pairs = _scored_pairs(setup, tokens) * _score_bytes(setup)["kept"]
    size = ((tokens.all * each + pairs) * layers * in_flight + tokens.all * last) / divided
    return size, f"{tokens.all} tokens x {each / 1024:.0f} KiB x {layers} layers"


def _head(setup: Setup, tokens: Tokens) -> Moment:
    """The loss, or the trained head's own backward pass."""
    fact = facts()["loss_bytes_per_logit"][setup.loss]
    size = _loss_bytes(setup, tokens)
    if _trains_tables(setup) and setup.loss not in ("fused", "none", "parallel", "triton"):
        size = max(size, 2.0 * tokens.scored * setup.model.vocabulary + _table_bytes(setup))
    formula = f"{tokens.scored} tokens x {setup.model.vocabulary} x {fact['bytes']} B"
    return _LOSS, size, formula, fact["source"], "train.use_liger"


def _score_bytes(setup: Setup) -> dict[str, float]:
    """Of eager attention; transformers 4.3x under autocast took more."""
    scores: dict[str, Any] = facts()["eager_attention_bytes_per_score"]
    return scores["amp"] if setup.loss == "amp" else scores


def _layer(setup: Setup, tokens: Tokens, freed: float) -> Moment:
    """One layer's backward pass, after its forward pass was repeated."""
    model, divided = setup.model, setup.tensor_parallel
    each = backward_bytes(setup)
    size = tokens.all * each / divided
    if setup.recompute == "full":
        each += kept_bytes(setup)
        pairs = _scored_pairs(setup, tokens) * _score_bytes(setup)["peak"]
        size = (tokens.all * each + pairs) / divided
    if setup.method == "full" and setup.engine != "megatron":
        size += max(0, 2 * _arriving(setup) - freed)
    if _trains_tables(setup) and setup.loss != "none" and (model.tied or setup.engine == "fsdp"):
        size += _table_bytes(setup) * (setup.engine != "fsdp" or gathered(setup).root > 0)
    else:
        size += _merged_experts(setup)
    formula = f"{tokens.all} tokens x {each / 1024:.0f} KiB"
    name = "one layer, recomputed" if setup.recompute == "full" else "one layer's gradients"
    return name, size, formula, SOURCE, "train.micro_batch"


def _merged_experts(setup: Setup) -> int:
    """A layer's experts with their adapters, which PEFT adds up in 16 bits."""
    experts = setup.model.experts
    merges = setup.fused_experts and setup.lora_targets == "all-linear" and setup.method == "lora"
    return 2 * setup.model.expert_parameters // experts.layers if experts and merges else 0


def _arriving(setup: Setup) -> int:
    """Elements of gradients before they are added to what is there: of FSDP a layer's."""
    model, experts = setup.model, setup.model.experts
    if setup.engine == "fsdp" and setup.data_parallel > 1:
        return model.layer_parameters
    if experts and setup.fused_experts:
        return 2 * experts.count * model.hidden * experts.intermediate
    return model.hidden * (experts.intermediate if experts else model.intermediate)


def _trains_tables(setup: Setup) -> bool:
    return setup.method == "full" and setup.engine != "megatron"


def _table_bytes(setup: Setup) -> float:
    each = 4 if computes_in_float32(setup) else 2
    return float(each * setup.model.embedding_parameters)


def logprob_activations(setup: Setup, factors: Calibration) -> tuple[Component, ...]:
    """The worst moment of a forward pass without gradients that scores completions."""
    tokens = tokens_of(
        setup, factors, setup.logprob_micro_batch, setup.logprob_tokens, setup.most_logprob_rows
    )
    waste = fragmentation(setup, factors)
    fact, vocabulary = facts()["loss_bytes_per_logit"][setup.loss], setup.model.vocabulary
    logits = tokens.scored * vocabulary * fact["scored"] / setup.tensor_parallel
    logits += _block(setup, tokens, 1)
    if setup.model.capped_logits and logits:  # one step's results next to those before
        logits = max(logits, 4.0 * tokens.scored * vocabulary / setup.tensor_parallel)
    copies = _weight_copies(setup)
    if setup.loss == "triton":
        logits = copies + _TILE * min(tokens.scored, _TILE_ROWS)
    elif copies and logits:  # and of the head's weights, until autocast ends
        copied = copies + 2 * setup.model.embedding_parameters
        if setup.loss == "upcast":  # Accelerate's ends before the loss
            logits = max(logits, copied + 2 * tokens.scored * vocabulary)
        else:
            logits += copied
    pairs = _scored_pairs(setup, tokens) * _score_bytes(setup)["kept"]
    layer = (tokens.all * scored_bytes(setup) + pairs) / setup.tensor_parallel
    layer += _merged_experts(setup) + copies
    name = "logits" if logits > layer else "one layer"
    size = max(logits, layer)
    groups = gathered(setup)
    whole = max(groups.start - size, groups.head)
    held = Component(_GATHERED, round(whole), "", _FSDP, None, factors.spread_overhead)
    formula = f"{tokens.scored} tokens x {vocabulary} x {fact['scored']} B"
    return (
        *((held,) if whole > 0 else ()),
        Component(name, round(size * waste), formula, fact["source"], "train.logprob_micro_batch",
                  factors.spread_activations,
                  _spare(size, waste, factors, setup.logprob_tokens)),
    )  # fmt: skip


def _block(setup: Setup, tokens: Tokens, scoring: int) -> float:
    """What a block of logits takes in float32, where a loss goes block by block."""
    blocks = facts()["loss_bytes_per_logit"][setup.loss].get("block")
    whole = 3.0 * tokens.scored * setup.model.vocabulary
    return min(whole, blocks[scoring]) if blocks else 0.0


def _spare(
    size: float, waste: float, factors: Calibration, budget: int | None, at_once: float = 1.0
) -> int:
    """What a pass can do without: what the allocator gives back, and where rows fill a budget of
    tokens up to half of them. verl and OpenRLHF divide rows evenly over ceil(tokens / budget)
    passes (verl's seqlen_balancing.rearrange_micro_batches)."""
    least = size * at_once * factors.fragmentation_pressed / (2 if budget else 1)
    return max(0, round(size * waste - least))


def _spread(setup: Setup, factors: Calibration) -> float:
    """Return a wider spread for rows of unknown length: data, or completions without padding."""
    if setup.is_grpo:
        mixed = setup.padding_free and setup.micro_batch > 1 and not setup.train_tokens
        return factors.spread_rollout_rows if mixed else factors.spread_activations
    known_rows = setup.packing or setup.longest_row_tokens is not None
    return factors.spread_activations if known_rows else factors.spread_unknown_rows


def _scored_pairs(setup: Setup, tokens: Tokens) -> float:
    """Scores of all heads, one for each pair of tokens of a row."""
    if setup.attention != "eager":
        return 0.0
    rows = setup.micro_batch * (2 if setup.paired else 1)
    return float(setup.model.heads * tokens.all**2 / rows)


def _loss_bytes(setup: Setup, tokens: Tokens) -> float:
    """Logits and what becomes of them, until their gradient is there."""
    vocabulary, hidden, scored = setup.model.vocabulary, setup.model.hidden, tokens.scored
    each = facts()["loss_bytes_per_logit"][setup.loss]["bytes"]
    if setup.loss == "fused":
        return 8.0 * scored * hidden
    if setup.loss == "triton":
        head = 6 if _trains_tables(setup) else 0
        return float(
            _TILE * min(scored, _TILE_ROWS) + 4 * hidden * scored + head * vocabulary * hidden
        )
    if setup.loss == "blocks":
        each += _block(setup, tokens, 0) / max(1, scored * vocabulary)
    if setup.loss == "bfloat16":  # its entropy is in float32, a chunk at a time; one row's softmax
        chunks = 4 * scored + 6 * min(_ENTROPY_ROWS, scored)
        each = max(chunks, (2 + 4 / setup.micro_batch) * scored) / max(1, scored)
    if setup.model.capped_logits and each:  # the tanh keeps its result, and has a gradient
        each = max(each + 2, 6)
    whole = facts()["whole_row_logits"]["bytes"].get(setup.loss, 4)
    if setup.whole_row_logits and setup.is_grpo and each:
        each = max(each, whole * tokens.all / max(1, scored))
    return float(scored * vocabulary * each / setup.tensor_parallel)


def _vision_bytes(setup: Setup, tokens: Tokens) -> float:
    """Saved by the vision tower, if something in it is trained; else its largest layer."""
    vision = setup.model.vision
    if vision is None or not tokens.images:
        return 0.0
    patches = tokens.images * vision.merge**2
    pixels = patches * 3 * vision.temporal_patch * vision.patch**2 * 4
    mask = vision_mask_bytes(setup, tokens.images)
    hidden, inner = vision.hidden, vision.intermediate
    turned = vision.kind.startswith("qwen")  # queries and keys are turned in float32
    if setup.freeze_vision:
        return pixels + patches * (36 * hidden if turned else 10 * hidden + 2 * inner) + mask
    gated = vision.kind == "qwen2_5_vl"
    results = {"qwen2_5_vl": 8, "qwen2_vl": 6}.get(vision.kind, 4)  # a sigmoid of its own more
    layer = (24 if gated else 16) * hidden + results * inner + 6 * hidden * turned
    merged, backward = 16 * hidden, 4 * hidden + 2 * inner + 8 * hidden * turned
    if setup.vision_recompute:
        kept = 2 * hidden * vision.layers + layer
        return pixels + patches * (kept + merged + backward) + mask
    return pixels + patches * (layer * vision.layers + merged + backward) + mask * vision.layers


def vision_mask_bytes(setup: Setup, image_tokens: int) -> float:
    """An old tower's mask of all pairs of the patches that go through it together."""
    vision = setup.model.vision
    if vision is None or not setup.old_vision_tower or "qwen2" not in vision.kind:
        return 0.0
    patches = image_tokens * vision.merge**2
    return float(facts()["old_vision_tower"]["bytes_per_pair"] * patches**2)
