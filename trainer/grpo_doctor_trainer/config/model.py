"""What is trained: the model, the parts of it, its dtype."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_trainer.config.option import option


@dataclass(frozen=True)
class ModelOptions:
    """What is trained: the model, the parts of it, its dtype."""

    model: str | None = option(
        None,
        "model",
        "Hugging Face name or local folder; none: an embedded tiny random Qwen2; "
        "embedded-vl: an embedded tiny random Qwen2.5-VL",
    )
    embedded_width: int = option(
        128,
        "model",
        "embedded models: width of a layer, a multiple of 64; weights grow with its square",
    )
    train_type: str = option(
        "lora",
        "model",
        "train LoRA adapters or all weights",
        choices=("lora", "full"),
        embedded="full",
    )
    lora_rank: int = option(8, "model", "rank of the LoRA adapters")
    lora_alpha: int = option(32, "model", "scale of the LoRA adapters")
    freeze_vit: bool = option(True, "model", "vision-language: do not train the vision tower")
    freeze_aligner: bool = option(
        True, "model", "vision-language: do not train what joins the tower to the language model"
    )
    freeze_llm: bool = option(False, "model", "vision-language: do not train the language model")
    torch_dtype: str = option(
        "auto",
        "model",
        "dtype of the weights; auto: bfloat16 on GPU, float32 on CPU",
        choices=("auto", "float32", "bfloat16", "float16"),
        embedded="float32",
    )
    gradient_checkpointing: bool = option(
        True, "model", "recompute activations in the backward pass to save memory", embedded=False
    )
