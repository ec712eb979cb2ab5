"""What gives the logits of one token after the other, with keys and values that have room."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from transformers.cache_utils import Cache, DynamicLayer

if TYPE_CHECKING:
    import torch


class Steps(Protocol):
    """The tokens behind some prompts, all rows at once."""

    def keep(self, rows: torch.Tensor) -> None:
        """Goes on with some rows only."""

    def logits(self, tokens: torch.Tensor, index: int) -> torch.Tensor:
        """Reads a token for each row.

        Args:
            tokens: [rows].
            index: of the tokens in their sequences, prompts included; one more each time.

        Returns:
            [rows, vocabulary], for the token behind it.
        """


class ModelSteps:
    """Asks the model's own forward pass."""

    def __init__(
        self, module: Any, cache: Cache, mask: torch.Tensor, following: torch.Tensor
    ) -> None:
        """Begins behind the prompts.

        Args:
            module: the policy.
            cache: with the keys and values of each row's prompt.
            mask: [rows, prompts and room for completions], 1 where there is a token or will be.
            following: [..., rows, 1], the position of the first token behind each prompt.
        """
        self._module, self._cache, self._mask = module, cache, mask
        self._following, self._first = following, cache.get_seq_length()

    def keep(self, rows: torch.Tensor) -> None:
        """Goes on with some rows only."""
        self._cache.batch_select_indices(rows)
        self._mask, self._following = self._mask[rows], self._following[..., rows, :]

    def logits(self, tokens: torch.Tensor, index: int) -> torch.Tensor:
        """Reads a token for each row."""
        logits: torch.Tensor = self._module(
            input_ids=tokens.unsqueeze(1),
            attention_mask=self._mask[:, : index + 1],
            position_ids=self._following + (index - self._first),
            past_key_values=self._cache,
            use_cache=True,
        ).logits
        return logits[:, -1]


class RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values with room for those to come, so that a token does not copy all before it.

    Attributes:
        buffers: keys and values, each [rows, heads, room, width of a head]; none as long as there
            are only prompts, whose rows are still to be multiplied.
    """

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room
        self.buffers: list[torch.Tensor] = []

    def make_room(self) -> None:
        """Moves what there is to where more fits."""
        before: tuple[torch.Tensor, ...] = (self.keys, self.values)
        for states in before:
            buffer = states.new_empty(*states.shape[:2], self._room, states.size(3))
            buffer[:, :, : states.size(2)] = states
            self.buffers.append(buffer)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Adds some tokens; gives all."""
        length, added = self.get_seq_length(), key_states.size(2)
        if not length:
            return super().update(key_states, value_states)  # type: ignore[no-any-return]
        if not self.buffers:
            self.make_room()
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, length : length + added] = states
        self.keys, self.values = (buffer[:, :, : length + added] for buffer in self.buffers)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Takes some rows, in any order and number."""
        self.buffers = []
        super().batch_select_indices(indices)


def key_value_cache(room: int) -> Cache:
    """Makes an empty cache for sequences of at most `room` tokens."""
    return Cache(layer_class_to_replicate=partial(RoomyLayer, room))
