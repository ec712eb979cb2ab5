"""What comes and goes within a micro-batch: activations, checkpoints, logits, image features."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.memory.facts import Calibration, facts
from grpo_doctor.memory.ledger import Component
from grpo_doctor.memory.models import ModelShape
from grpo_doctor.memory.setup import Setup

_KORTHIKANTI = "arXiv 2205.05198, with flash attention and gated MLPs"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of one micro-batch on one rank."""

    all: int
    """Through the decoder, after context parallelism."""
    scored: int
    """Those whose logits are kept."""
    images: int


def tokens_of(
    setup: Setup, factors: Calibration, micro_batch: int | None = None, budget: int | None = None
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


def layer_bytes_per_token(setup: Setup) -> float:
    """What one decoder layer keeps of a token for its backward pass.

    Queries, keys, values and their rotated copies, the norms' float32 casts, the MLP's four
    intermediate results; experts have the MLP's for each that a token is sent to.
    """
    model = setup.model
    hidden, query, key = model.hidden, model.query_width, model.key_width
    if setup.engine == "megatron":
        # With fused norms, rotations and SwiGLU their inputs alone are kept, in 16 bits.
        return 2 * (3 * hidden + 2 * (query + 2 * key) + query + _mlp_elements(model, 3))
    attention = 2 * hidden + query + 2 * key + (query + 2 * key) + query + hidden
    normed = 4 * query if model.query_key_norm else 0
    elements = attention + 2 * hidden + _mlp_elements(model, 4)
    if setup.method == "lora" and setup.lora_targets == "attention" and not model.experts:
        elements -= query + hidden + model.intermediate  # frozen layers need not keep their input
    return 2 * elements + 16 * hidden + normed


def _mlp_elements(model: ModelShape, results: int) -> float:
    """What is kept of a token in an MLP with so many intermediate results, or in its experts."""
    experts = model.experts
    if experts is None:
        return float(results * model.intermediate)
    inner = results * (experts.active * experts.intermediate + experts.shared_intermediate)
    return float(inner + 2 * experts.active * model.hidden)


def _selective_layer_bytes(setup: Setup) -> float:
    """Where outputs of attention and of every other matrix product are kept (torchtitan)."""
    model = setup.model
    products = model.query_width + 2 * model.key_width + 2 * model.hidden + 2 * model.intermediate
    return 2 * (products / 2 + model.hidden + model.query_width)


def train_activations(setup: Setup, factors: Calibration) -> tuple[Component, ...]:
    """The worst moment of forward and backward pass, without the states."""
    tokens = tokens_of(setup, factors, budget=setup.train_tokens)
    waste = fragmentation(setup, factors)
    model = setup.model
    divided = setup.tensor_parallel
    layers = max(1, model.layers // setup.pipeline_parallel)
    in_flight = setup.pipeline_parallel
    if setup.engine == "device_map":
        layers, in_flight = max(1, model.layers // setup.ranks), 1
    pairs = _scored_pairs(setup, tokens) / divided
    each_pair = facts()["eager_attention_bytes_per_score"]
    layer = tokens.all * layer_bytes_per_token(setup) / divided + pairs * each_pair["peak"]
    checkpoint = tokens.all * 2 * model.hidden / (divided if setup.sequence_parallel else 1)
    entries: list[Component] = []
    spread = _spread(setup, factors)

    def add(name: str, size: float, formula: str, source: str, knob: str | None) -> None:
        spare = max(0, round(size * (waste - factors.fragmentation_pressed)))
        entries.append(Component(name, round(size * waste), formula, source, knob, spread, spare))

    loss = _loss_bytes(setup, tokens)
    stacked = f"{tokens.all} tokens x 2 B x {model.hidden} x {layers} layers"
    if setup.recompute == "full":
        on_host = setup.activations_on_host
        add("checkpoints", 0 if on_host else checkpoint * layers * in_flight, stacked, _KORTHIKANTI,
            "train.micro_batch")  # fmt: skip
    else:
        each = layer_bytes_per_token(setup)
        if setup.recompute == "selective" and setup.engine != "megatron":
            each = _selective_layer_bytes(setup)
        add("activations",
            (tokens.all * each / divided + pairs * each_pair["kept"]) * layers * in_flight,
            f"{tokens.all} tokens x {each / 1024:.0f} KiB x {layers} layers",
            _KORTHIKANTI, "train.gradient_checkpointing")  # fmt: skip
    if setup.recompute == "full" and layer > loss:
        add("one layer, recomputed", layer,
            f"{tokens.all} tokens x {layer_bytes_per_token(setup) / 1024:.0f} KiB", _KORTHIKANTI,
            "train.micro_batch")  # fmt: skip
    elif loss:
        each = facts()["loss_bytes_per_logit"][setup.loss]["bytes"]
        add("logits and loss", loss, f"{tokens.scored} tokens x {model.vocabulary} x {each} B",
            facts()["loss_bytes_per_logit"][setup.loss]["source"], "train.use_liger")  # fmt: skip
    vision = _vision_bytes(setup, tokens)
    if vision:
        add("vision tower", vision, f"{tokens.images} image tokens x 4 patches",
            "transformers Qwen2.5-VL, Qwen3-VL", "data.max_pixels")  # fmt: skip
    return tuple(entries)


def logprob_activations(setup: Setup, factors: Calibration) -> tuple[Component, ...]:
    """The worst moment of a forward pass without gradients that scores completions."""
    tokens = tokens_of(setup, factors, setup.logprob_micro_batch, setup.logprob_tokens)
    waste = fragmentation(setup, factors)
    each = 0 if setup.loss in ("fused", "none") else facts()["logprob_bytes_per_logit"]["bytes"]
    logits = tokens.scored * setup.model.vocabulary * each / setup.tensor_parallel
    layer = tokens.all * layer_bytes_per_token(setup) / 2 / setup.tensor_parallel
    name = "logits" if logits > layer else "one layer"
    size = max(logits, layer)
    return (
        Component(name, round(size * waste),
                  f"{tokens.scored} tokens x {setup.model.vocabulary} x {each} B",
                  facts()["logprob_bytes_per_logit"]["source"], "train.logprob_micro_batch",
                  factors.spread_activations,
                  max(0, round(size * (waste - factors.fragmentation_pressed)))),
    )  # fmt: skip


def _spread(setup: Setup, factors: Calibration) -> float:
    """Wider where nobody says how long rows are: of data, or of completions that are not padded."""
    if setup.is_grpo:
        mixed = setup.padding_free and setup.micro_batch > 1 and not setup.train_tokens
        return factors.spread_rollout_rows if mixed else factors.spread_activations
    known_rows = setup.packing or setup.longest_row_tokens is not None
    return factors.spread_activations if known_rows else factors.spread_unknown_rows


def _scored_pairs(setup: Setup, tokens: Tokens) -> float:
    """Scores of all heads, one for each pair of tokens of a row."""
    if setup.attention == "fused":
        return 0.0
    rows = setup.micro_batch * (2 if setup.paired else 1)
    return float(setup.model.heads * tokens.all**2 / rows)


def _loss_bytes(setup: Setup, tokens: Tokens) -> float:
    each = facts()["loss_bytes_per_logit"][setup.loss]["bytes"]
    if setup.whole_row_logits and setup.is_grpo and each:
        prompts = 4 * (tokens.all - tokens.scored)  # logits and their gradient, cut off afterwards
        logits = (tokens.scored * each + prompts) * setup.model.vocabulary
        return float(logits / setup.tensor_parallel)
    if setup.loss == "fused":
        return 8.0 * tokens.scored * setup.model.hidden
    return float(tokens.scored * setup.model.vocabulary * each / setup.tensor_parallel)


def _vision_bytes(setup: Setup, tokens: Tokens) -> float:
    """Saved by the vision tower, if something in it is trained; else its largest layer."""
    vision = setup.model.vision
    if vision is None or not tokens.images:
        return 0.0
    patches = tokens.images * vision.merge**2
    gated = vision.kind == "qwen2_5_vl"
    layer = patches * (2 * (10 * vision.hidden + (4 if gated else 2) * vision.intermediate))
    pixels = patches * 3 * vision.temporal_patch * vision.patch**2 * 4
    mask = vision_mask_bytes(setup, tokens.images)
    if setup.freeze_vision:
        return pixels + layer / 2 + mask
    if setup.vision_recompute:
        return pixels + layer + mask + patches * 2 * vision.hidden * vision.layers
    return pixels + (layer + mask) * vision.layers


def vision_mask_bytes(setup: Setup, image_tokens: int) -> float:
    """An old tower's mask of all pairs of the patches that go through it together."""
    vision = setup.model.vision
    if vision is None or not setup.old_vision_tower or "qwen2" not in vision.kind:
        return 0.0
    patches = image_tokens * vision.merge**2
    return float(facts()["old_vision_tower"]["bytes_per_pair"] * patches**2)
