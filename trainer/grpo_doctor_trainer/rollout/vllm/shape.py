"""What has to be the same in the trainer's model and the engine's."""

from __future__ import annotations

from typing import Any

_FACTS = ("vocab_size", "hidden_size", "num_hidden_layers")


def model_shape(config: Any) -> dict[str, int]:
    """Picks the facts of a transformers config that tell models apart.

    Args:
        config: a model's config; of a vision-language model the language model's part counts.
    """
    text = config.get_text_config()
    return {name: int(getattr(text, name)) for name in _FACTS if hasattr(text, name)}
