"""The Qwen2-VL (2.0), Qwen2.5-VL and Qwen3-VL families, from a folder as AutoProcessor wrote it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from grpo_doctor_trainer.algorithm.inputs import generation_inputs
from grpo_doctor_trainer.algorithm.logprobs import logprobs_in_parts
from grpo_doctor_trainer.data.experience import TokenBatch
from grpo_doctor_trainer.data.prompts import PromptMaker, prompt_loader
from grpo_doctor_trainer.data.rows import load_rows
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.model.load import LoadedModel, load_model
from grpo_doctor_trainer.model.tiny import tiny_processor
from grpo_doctor_trainer.ranks import Ranks

ROWS = load_rows([], with_images=True)
PICTURE, SUM = ROWS[7], ROWS[-1]
TEXT = {
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.05,
    "bos_token_id": None,
}  # fmt: skip
ROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]}
TOWER = {
    "depth": 2, "num_heads": 4, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
    "initializer_range": 0.05,
}  # fmt: skip
FAMILIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Qwen2VL": (TEXT | {"rope_parameters": ROPE}, TOWER | {"embed_dim": 64, "hidden_size": 128}),
    "Qwen2_5_VL": (
        TEXT | {"rope_parameters": ROPE},
        TOWER | {
            "hidden_size": 64, "intermediate_size": 128, "out_hidden_size": 128,
            "window_size": 56, "fullatt_block_indexes": [1],
        },
    ),
    "Qwen3VL": (
        TEXT | {"head_dim": 32, "rope_parameters": ROPE | {"mrope_interleaved": True}},
        TOWER | {
            "hidden_size": 64, "intermediate_size": 128, "out_hidden_size": 128,
            "num_position_embeddings": 64, "deepstack_visual_indexes": [0],
        },
    ),
}  # fmt: skip
ALONE = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("cpu"), threads=1)


@pytest.fixture(scope="module", params=list(FAMILIES))
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A random model of the family, written to a folder and loaded as a user's is."""
    text, tower = FAMILIES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    processor = tiny_processor()
    tokenizer = processor.tokenizer
    names = {
        "image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>",
    }  # fmt: skip
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = getattr(transformers, f"{request.param}Config")(
        text_config=text | ends | {"vocab_size": len(tokenizer)}, vision_config=tower,
        tie_word_embeddings=False,
        **{key: tokenizer.convert_tokens_to_ids(name) for key, name in names.items()},
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = getattr(transformers, f"{request.param}ForConditionalGeneration")(config)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    _as_older_processors_wrote_it(folder)
    return load_model(parse(["--model", str(folder), "--dataset", "x", *FULL], 1), torch.float32)


FULL = (
    "--per_device_train_batch_size",
    "8",
    "--train_type",
    "full",
    "--gradient_checkpointing",
    "false",
    "--beta",
    "0",
)


def _as_older_processors_wrote_it(folder: Path) -> None:
    """The chat template is the processor's alone, in a file of its own."""
    (folder / "chat_template.json").write_text(
        json.dumps({"chat_template": (folder / "chat_template.jinja").read_text()})
    )
    (folder / "chat_template.jinja").unlink()


def batch(loaded: LoadedModel) -> TokenBatch:
    config = dataclasses.replace(
        parse(["--model", "embedded-vl"], 1), per_device_train_batch_size=4, num_generations=2,
        gradient_accumulation_steps=1, dataloader_num_workers=0, steps_per_generation=1,
    )  # fmt: skip
    prompts = next(prompt_loader([PICTURE, SUM], loaded, config, ALONE))
    tokens = torch.randint(0, 250, (4, 5), generator=torch.Generator().manual_seed(3))
    return TokenBatch(prompts.tokens, prompts.mask, tokens, torch.ones_like(tokens), prompts.images)


def test_the_processors_own_chat_template_is_used(loaded: LoadedModel) -> None:
    prompt = PromptMaker.of(loaded, parse(["--model", "embedded-vl"], 1)).make(PICTURE, 1)
    assert prompt.text.startswith("<|user|><|vision_start|><|image_pad|><|vision_end|>squares")
    assert prompt.text.endswith("<|assistant|>")
    assert loaded.vision is not None
    assert prompt.tokens.count(loaded.vision.image_token) == 4


def test_log_probs_are_the_models_own(loaded: LoadedModel) -> None:
    """Each completion alone, unpadded, with the positions that the model finds itself."""
    together = batch(loaded)
    with torch.no_grad():
        ours = logprobs_in_parts(loaded.policy, together, 1.0, 4)
        for line in range(4):
            alone = together.select(torch.tensor([line]))
            mask = torch.cat([alone.prompt_mask, alone.completion_mask], dim=1).bool()
            tokens = torch.cat([alone.prompt_tokens, alone.completion_tokens], dim=1)[mask][None]
            inputs = generation_inputs(tokens, torch.ones_like(tokens), alone.images)
            logits = loaded.policy.eval()(**inputs).logits[:, -6:-1].log_softmax(-1)
            own = logits.gather(-1, alone.completion_tokens.unsqueeze(-1)).squeeze(-1)[0]
            assert torch.allclose(ours[line], own, atol=1e-5)
