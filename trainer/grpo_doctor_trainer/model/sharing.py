"""Whether a model gives the same with the prompts of completions shared as with each by itself.

Models differ in more than their configuration says: layers without attention, positions that are
counted and not taken, arguments that do not arrive, logits that are changed behind the last layer.
So each is asked both ways, once, on a few tokens.
"""

from __future__ import annotations

from typing import Any

import torch

from grpo_doctor_trainer.algorithm.logprobs import logprobs_in_parts
from grpo_doctor_trainer.algorithm.packing import IMPLEMENTATION
from grpo_doctor_trainer.data.experience import ImageFeatures, TokenBatch
from grpo_doctor_trainer.model.vision import VisionLayout, rope_positions

# In nats per token, on average. Float32 differs by 1e-6; weights of two bytes by some hundredths.
_LARGEST_GAP = {torch.float32: 1e-3}
_LARGEST_GAP_ELSEWHERE = 0.1
_PROMPTS = ([11, 3, 7, 5, 9], [11, 3, 7, 5, 9], [4, 2, 8])
_COMPLETIONS = torch.tensor([[6, 1, 10, 2], [12, 9, 5, 3], [7, 7, 1, 4]])
_LENGTHS = torch.tensor([4, 2, 3])


def reason_not_to_share(
    module: Any, device: torch.device, layout: VisionLayout | None = None
) -> str | None:
    """Compare both ways without gradients; all ranks call it, ZeRO-3 gathers for it.

    Returns:
        why the model cannot share prompts, to be put behind "because"; none if it can.
    """
    config = module.config.get_text_config()
    used = getattr(config, "_attn_implementation", None)
    if used != IMPLEMENTATION:
        return f"its attention is {used}, and only {IMPLEMENTATION} can be told which tokens belong"
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
