"""Has a model's last layer give log-probabilities instead of logits, a block of tokens at a time.

Logits are [tokens, vocabulary]: with a real vocabulary the largest tensor of a step, held until its
gradient of the same size is there. Where they are large, a block's logits are forgotten at once and
computed again in the backward pass.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Values = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# Logits up to this size are kept: computing them again takes longer than the memory is worth.
KEPT_BYTES = {"cpu": 64 * 2**20}
KEPT_BYTES_ELSEWHERE = 256 * 2**20
# What models do to logits behind the last layer, as their configurations call it.
_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")


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
        """Gives the values of hidden states [1, tokens, width]."""
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
    """Whether a text model does something to logits behind its last layer."""
    return any(getattr(config, name, None) not in {None, 1} for name in _CHANGES)


@contextmanager
def querying(model: Any, query: HeadQuery) -> Iterator[None]:
    """Puts the question in the place of the last layer's logits, if it is a plain one.

    Args:
        model: an engine's or a plain one.
        query: the question, of as many tokens as the model is told to keep logits of.
    """
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
