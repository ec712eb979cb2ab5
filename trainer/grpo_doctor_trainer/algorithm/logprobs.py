"""Log-probabilities of the completions' tokens under a model, and the entropy of each choice.

Logits are [completions, tokens, vocabulary]: with a real vocabulary the largest tensor of a step.
They are computed in blocks. Where they are large, a block is dropped after use and recomputed in
the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from grpo_doctor_trainer.algorithm.inputs import (
    IMPLEMENTATION,
    model_inputs,
    needs_companion,
    pack,
    packed_inputs,
)
from grpo_doctor_trainer.data.experience import ImageFeatures, TokenBatch
from grpo_doctor_trainer.model.vision import VisionLayout, rope_positions

Values = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# Logits up to this size are kept: computing them again takes longer than the memory is worth.
KEPT_BYTES = {"cpu": 64 * 2**20}
KEPT_BYTES_ELSEWHERE = 256 * 2**20
# What models do to logits after the last layer, by the names in their configurations.
_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")

# Of float32 logits worked on at once. A CPU is faster where a block stays in its cache.
_BLOCK_BYTES = {"cpu": 2 * 2**20}
_BLOCK_BYTES_ELSEWHERE = 128 * 2**20
# In nats per token, on average. Float32 differs by 1e-6; weights of two bytes by some hundredths.
_LARGEST_GAP = {torch.float32: 1e-3}
_LARGEST_GAP_ELSEWHERE = 0.1
_PROMPTS = ([11, 3, 7, 5, 9], [11, 3, 7, 5, 9], [4, 2, 8])
_COMPLETIONS = torch.tensor([[6, 1, 10, 2], [12, 9, 5, 3], [7, 7, 1, 4]])
_LENGTHS = torch.tensor([4, 2, 3])


class HeadQuery:
    """What the last layer is asked for.

    Attributes:
        tokens: [1, tokens], each the one that is predicted.
        values: of logits [1, tokens, vocabulary] and such tokens, [1, tokens, any].
        answered: whether the layer was called; a patched model may go around it.
    """

    def __init__(self, tokens: torch.Tensor, values: Values) -> None:
        self.tokens = tokens
        self.values = values
        self.answered = False

    def answer(self, head: torch.nn.Linear, hidden: torch.Tensor) -> torch.Tensor:
        """Return the values of hidden states [1, tokens, width]."""
        self.answered = True
        count = hidden.size(1)
        limit = KEPT_BYTES.get(hidden.device.type, KEPT_BYTES_ELSEWHERE)
        size = max(1, limit // (head.out_features * hidden.element_size()))
        if count <= size:
            return self._values(head, hidden, self.tokens)
        parts = []
        for start in range(0, count, size):
            block, tokens = hidden[:, start : start + size], self.tokens[:, start : start + size]
            parts.append(
                checkpoint(
                    self._values, head, block, tokens,
                    use_reentrant=False, preserve_rng_state=False,
                )
                if torch.is_grad_enabled()
                else self._values(head, block, tokens)
            )  # fmt: skip
        return torch.cat(parts, dim=1)

    def _values(
        self, head: torch.nn.Linear, hidden: torch.Tensor, tokens: torch.Tensor
    ) -> torch.Tensor:
        return self.values(linear(hidden, head.weight, head.bias), tokens)


def changes_logits(config: Any) -> bool:
    """Whether a text model changes logits after its last layer."""
    return any(getattr(config, name, None) not in {None, 1} for name in _CHANGES)


@contextmanager
def querying(model: Any, query: HeadQuery) -> Iterator[None]:
    """Put the question in the place of the last layer's logits, if it is a plain one."""
    module = getattr(model, "module", model)
    head = module.get_output_embeddings()
    changed = changes_logits(module.config.get_text_config())
    if type(head) is not torch.nn.Linear or "forward" in vars(head) or changed:
        yield
        return

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        return query.answer(head, hidden)

    # On the instance, so that hooks around the call still run: ZeRO-3 gathers the weight there.
    vars(head)["forward"] = forward
    try:
        yield
    finally:
        del vars(head)["forward"]


def completion_logits(model: Any, batch: TokenBatch, temperature: float = 1.0) -> torch.Tensor:
    """Run the model and return the logits that predict each completion token.

    Returns:
        [completions, tokens, vocabulary], divided by the temperature, in the model's dtype.
    """
    count = batch.completion_tokens.size(1)
    first = batch.prompt_tokens.size(1) - 1  # the last prompt token predicts the first of these
    logits: torch.Tensor = model(
        **model_inputs(batch),
        # As places, not as a number: slicing the logits would double their gradient's memory.
        logits_to_keep=torch.arange(first, first + count, device=batch.prompt_tokens.device),
        use_cache=False,
    ).logits
    if len(logits) > len(batch):  # the last row is a companion, which is none of ours
        logits = logits[: len(batch)]
    return logits if temperature == 1.0 else logits / temperature


class TokenLogprobs(NamedTuple):
    """Both [completions, tokens], float32.

    Attributes:
        chosen: log-probability of each token that was sampled.
        entropies: of the distribution it was sampled from, in nats; zero if not asked for.
    """

    chosen: torch.Tensor
    entropies: torch.Tensor


def token_logprobs(
    logits: torch.Tensor, tokens: torch.Tensor, temperature: float = 1.0, *, entropy: bool = False
) -> TokenLogprobs:
    """Return the log-probability of each token, with gradient, and the entropy, without.

    log p(t) = x(t) - log sum exp(x), with x = logits / temperature, in float32.

    Args:
        logits: [completions, tokens, vocabulary], of any float dtype.
        tokens: [completions, tokens].
        temperature: that of sampling.
        entropy: whether entropies are wanted: a few more operations in the same pass.
    """
    apply: Any = _TokenLogprobs.apply
    chosen, entropies = apply(logits, tokens, temperature, entropy)
    return TokenLogprobs(chosen, entropies)


def completion_logprobs(
    model: Any,
    batch: TokenBatch,
    temperature: float,
    *,
    share_prompts: bool = False,
    entropy: bool = False,
) -> TokenLogprobs:
    """Run the model and return the log-probability of each token of the completions."""
    packing = pack(batch, companion=needs_companion(batch)) if share_prompts else None
    if packing is None:
        logits = completion_logits(model, batch)
        return token_logprobs(logits, batch.completion_tokens, temperature, entropy=entropy)

    def values(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return torch.stack(token_logprobs(logits, tokens, temperature, entropy=entropy), dim=2)

    tokens = batch.completion_tokens.flatten()[packing.predicted].unsqueeze(0)
    query = HeadQuery(tokens, values)
    with querying(model, query):
        logits = model(
            **packed_inputs(batch, packing), logits_to_keep=packing.predicting, use_cache=False
        ).logits
    pairs = (logits if query.answered else values(logits, tokens))[0]
    chosen, entropies = (packing.scattered(pairs[:, i], batch.completion_tokens) for i in (0, 1))
    return TokenLogprobs(chosen, entropies.detach())


@torch.no_grad()
def logprobs_in_parts(
    model: Any,
    batch: TokenBatch,
    temperature: float,
    part_size: int,
    *,
    share_prompts: bool = False,
) -> torch.Tensor:
    """Return the log-probabilities of a whole rollout without gradients, `part_size` at a time.

    Returns:
        [completions, tokens], float32.
    """
    parts = [
        completion_logprobs(model, part, temperature, share_prompts=share_prompts).chosen
        for part in batch.parts(part_size)
    ]
    return torch.cat(parts)


class _TokenLogprobs(torch.autograd.Function):
    """Keeps the logits and one normalizer per token for the backward pass, never a softmax."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, tokens: torch.Tensor, temperature: float, entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        normalizers = torch.empty(tokens.shape, dtype=dtype, device=logits.device)
        chosen = torch.empty_like(normalizers)
        entropies = torch.zeros_like(normalizers)
        for block in _blocks(logits):
            scaled = logits[block].to(dtype) / temperature
            normalizer = scaled.logsumexp(dim=2)
            normalizers[block] = normalizer
            chosen[block] = scaled.gather(2, tokens[block].unsqueeze(2)).squeeze(2) - normalizer
            if entropy:
                shares = (scaled - normalizer.unsqueeze(2)).exp_()
                entropies[block] = normalizer - torch.linalg.vecdot(shares, scaled)
        ctx.save_for_backward(logits, tokens, normalizers)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropies)
        return chosen, entropies

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        logits, tokens, normalizers = ctx.saved_tensors
        weights = gradients[0] / ctx.temperature
        gradient = torch.empty_like(logits)
        for block in _blocks(logits):
            # d log p(t) / d x(v) = [v = t] - p(v)
            scaled = logits[block].to(normalizers.dtype) / ctx.temperature
            weight = weights[block].unsqueeze(2)
            shares = scaled.sub_(normalizers[block].unsqueeze(2)).exp_().mul_(-weight)
            gradient[block] = shares.scatter_add_(2, tokens[block].unsqueeze(2), weight)
        return gradient, None, None, None


def _blocks(logits: torch.Tensor) -> Iterator[tuple[slice, slice]]:
    """Cut [completions, tokens, vocabulary] into blocks of a bounded size, views all of them."""
    rows, length, vocabulary = logits.shape
    limit = _BLOCK_BYTES.get(logits.device.type, _BLOCK_BYTES_ELSEWHERE) // (4 * vocabulary)
    high = max(1, limit // max(1, length))
    wide = max(1, min(length, limit))
    for row in range(0, rows, high):
        for column in range(0, length, wide):
            yield slice(row, row + high), slice(column, column + wide)


def reason_not_to_share(
    module: Any, device: torch.device, layout: VisionLayout | None = None
) -> str | None:
    """Compare both ways without gradients; all ranks call it, ZeRO-3 gathers for it.

    Returns:
        why the model cannot share prompts, phrased to follow "because"; None if it can.
    """
    config = module.config.get_text_config()
    used = getattr(config, "_attn_implementation", None)
    if used != IMPLEMENTATION:
        return f"its attention is {used}, and only {IMPLEMENTATION} supports shared prompts"
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        return f"it has layers of {', '.join(sorted(kinds))}"
    batch = probe(device, layout)
    training = module.training
    module.eval()
    try:
        alone, shared = (
            logprobs_in_parts(module, batch, 1.0, len(batch), share_prompts=share)
            for share in (False, True)
        )
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        return f"its layers do not take it ({str(error).strip().splitlines()[0]})"
    finally:
        module.train(training)
    distances = (alone - shared).abs()[batch.completion_mask.bool()]
    gap = float(distances.float().mean())
    if not gap <= largest_gap(module):
        return f"its log-probs would differ by {gap:.2g} nats per token"
    return None


def largest_gap(module: Any) -> float:
    """Return the mean distance of log-probs, in nats, that rounding explains."""
    dtype = next(iter(module.parameters())).dtype
    return _LARGEST_GAP.get(dtype, _LARGEST_GAP_ELSEWHERE)


def probe(device: torch.device, layout: VisionLayout | None) -> TokenBatch:
    """Make a batch to ask a model both ways: equal prompts and padding, but no image."""
    longest = max(map(len, _PROMPTS))
    tokens = torch.zeros(len(_PROMPTS), longest, dtype=torch.long)
    mask = torch.zeros_like(tokens)
    positions = torch.zeros(len(_PROMPTS), 3, longest, dtype=torch.long)
    for row, prompt in enumerate(_PROMPTS):
        start = longest - len(prompt)
        tokens[row, start:], mask[row, start:] = torch.tensor(prompt), 1
        if layout is not None:
            positions[row, :, start:] = rope_positions(prompt, [], layout)
    images = None
    if layout is not None:
        none, grid = torch.zeros(0, layout.patch_values), torch.zeros(0, 3, dtype=torch.long)
        images = ImageFeatures(none, grid, ((),) * len(_PROMPTS), positions, layout)
    counted = (torch.arange(_COMPLETIONS.size(1)) < _LENGTHS.unsqueeze(1)).long()
    return TokenBatch(
        tokens.to(device), mask.to(device), _COMPLETIONS.to(device), counted.to(device), images
    )
