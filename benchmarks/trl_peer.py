"""One rank of TRL's GRPOTrainer on a folder of `trainer_speed`; prints a line after each step.

python -m torch.distributed.run --nproc_per_node 2 -m benchmarks.trl_peer FOLDER '{"max_steps": 3}'
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from datasets import Dataset
from PIL import Image
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessorPil,
    TrainerCallback,
)
from trl import GRPOConfig, GRPOTrainer

from benchmarks.trainer_speed import IMAGE_MARK, REWARD_FILE


class _Lines(TrainerCallback):  # type: ignore[misc]
    """Prints the tokens so far after each step, as soon as it is over."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Called with the weights already stepped."""
        if args.process_index == 0:
            tokens = self.trainer.state.num_input_tokens_seen
            print(f"step {state.global_step} tokens {tokens}", flush=True)


def _row(row: dict[str, str], folder: Path) -> dict[str, Any]:
    """A row of the prompts' file as TRL takes it: messages, and the image beside them."""
    question = row["prompt"].removeprefix(IMAGE_MARK)
    example: dict[str, Any] = {"prompt": [{"role": "user", "content": question}]}
    if "images" in row:
        with Image.open(folder / row["images"]) as image:
            example["image"] = image.convert("RGB")
    return example


class _NoVideos(Qwen2_5_VLProcessor):  # type: ignore[misc]
    """transformers' processor without its video processor, which needs torchvision."""

    def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
        """Lets the video processor be None."""
        if argument_name == "video_processor":
            return None
        return super().check_argument_for_proper_class(argument_name, argument)


def _model_and_processing(folder: Path, dtype: str) -> tuple[Any, Any]:
    """The model, and the tokenizer or processor of its prompts."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if not (folder / "preprocessor_config.json").exists():
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype), tokenizer
    images = Qwen2VLImageProcessorPil.from_pretrained(folder)
    processor = _NoVideos(images, tokenizer, None, chat_template=tokenizer.chat_template)
    return AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype), processor


def main() -> None:
    """Trains."""
    folder, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    namespace: dict[str, Any] = {}
    exec((folder / REWARD_FILE).read_text(encoding="utf-8"), namespace)
    lines = (folder / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [_row(json.loads(line), folder) for line in lines]

    def judge(completions: list[list[dict[str, str]]], **columns: Any) -> list[float]:
        texts = [completion[0]["content"] for completion in completions]
        scores: list[float] = namespace["digits"](texts, **columns)
        return scores

    model, processing = _model_and_processing(
        folder / "model", "bfloat16" if settings.get("bf16") else "float32"
    )
    on_cpu = {"use_cpu": True, "ddp_backend": "gloo", "bf16": False}
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[judge],
        args=GRPOConfig(
            output_dir=str(folder / "trl"), report_to=[], save_strategy="no",
            logging_strategy="no", disable_tqdm=True, gradient_checkpointing=False,
            use_bias_correction_kl=False, **(on_cpu | settings),
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=processing,
    )  # fmt: skip
    trainer.add_callback(_Lines(trainer))
    trainer.train()


if __name__ == "__main__":
    main()
