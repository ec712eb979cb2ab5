"""How an engine starts whose weights all come with the first sync: nothing is read from disk.

vLLM's own `dummy` format fills every tensor that a checkpoint could have with random values. That
includes buffers which no checkpoint has and no sync brings, such as the scale and the mean with
which vLLM 0.32 normalizes the pixels of an image: prompts with images were then sampled from noise.
"""

from __future__ import annotations

from typing import Any

FORMAT = "grpo_doctor_unloaded"


def register_format() -> None:
    """Tells vLLM of `--load-format grpo_doctor_unloaded`: `dummy`, but buffers stay as made."""
    from vllm.model_executor.model_loader import register_model_loader  # noqa: PLC0415 - seconds
    from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader  # noqa: PLC0415

    @register_model_loader(FORMAT)
    class UnloadedModel(DummyModelLoader):  # type: ignore[misc]
        def load_weights(self, model: Any, model_config: Any) -> None:
            made = [(buffer, buffer.clone()) for buffer in model.buffers()]
            super().load_weights(model, model_config)
            for buffer, value in made:
                buffer.copy_(value)
