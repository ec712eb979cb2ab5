"""Rollout with transformers: what it samples is what the log-probs are computed of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the trainer extra")
pytest.importorskip("transformers", reason="needs the trainer extra")

from grpo_doctor_trainer.algorithm.logprobs import completion_logits, token_logprobs  # noqa: E402
from grpo_doctor_trainer.data.batch import PromptBatch  # noqa: E402
from grpo_doctor_trainer.flags import parse  # noqa: E402
from grpo_doctor_trainer.model.load import load_model  # noqa: E402
from grpo_doctor_trainer.rollout.transformers import TransformersRollout  # noqa: E402

TEMPERATURE = 0.7


@pytest.fixture(scope="module")
def loaded() -> Any:
    return load_model(parse([], 1), torch.float32)


def make_rollout(loaded: Any, *flags: str) -> TransformersRollout:
    engine: Any = SimpleNamespace(
        module=loaded.policy, model=loaded.policy, device=torch.device("cpu"), zero_stage=None
    )
    return TransformersRollout(engine, loaded, parse(flags, 1))


def prompts(tokenizer: Any, *texts: str) -> PromptBatch:
    batch = tokenizer(list(texts), return_tensors="pt", padding=True)
    return PromptBatch([], list(texts), batch["input_ids"], batch["attention_mask"])


def test_completions_end_with_the_end_token_or_the_limit(loaded: Any) -> None:
    torch.manual_seed(0)
    rollout = make_rollout(loaded, "--max_completion_length", "60")
    batch = rollout.generate(prompts(loaded.tokenizer, *["1+2"] * 64)).tokens
    end = loaded.tokenizer.eos_token_id
    for tokens, mask in zip(batch.completion_tokens, batch.completion_mask, strict=True):
        kept = tokens[mask.bool()].tolist()
        assert end not in kept[:-1]
        assert kept[-1] == end or len(kept) == batch.completion_tokens.size(1)
        assert (tokens[~mask.bool()] == loaded.tokenizer.pad_token_id).all()
    assert loaded.policy.training  # as before


def test_log_probs_agree_with_those_of_generation_also_behind_padding(loaded: Any) -> None:
    torch.manual_seed(1)
    rollout = make_rollout(
        loaded, "--max_completion_length", "5", "--temperature", str(TEMPERATURE)
    )
    made = rollout.generate(prompts(loaded.tokenizer, "1", "a much longer prompt: 3+4"))
    assert made.logprobs is None  # the trainer's own forward pass gives the same
    batch = made.tokens
    with torch.no_grad():
        logits = completion_logits(loaded.policy, batch)
        found = token_logprobs(logits, batch.completion_tokens, TEMPERATURE).chosen
        for row in range(2):  # one at a time, without padding, one token after the other
            sequence = batch.prompt_tokens[row][batch.prompt_mask[row].bool()]
            for place, token in enumerate(batch.completion_tokens[row]):
                next_token = loaded.policy(input_ids=sequence[None]).logits[0, -1] / TEMPERATURE
                expected = next_token.log_softmax(0)[token]
                assert found[row, place] == pytest.approx(float(expected), abs=1e-4)
                sequence = torch.cat([sequence, token[None]])
