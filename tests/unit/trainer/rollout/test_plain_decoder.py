"""Completions from a decoder's parts: as from the model, or by the model itself with a reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the trainer extra")
transformers = pytest.importorskip("transformers", reason="needs the trainer extra")
peft = pytest.importorskip("peft", reason="needs the trainer extra")

from grpo_doctor_trainer.data.batch import PromptBatch  # noqa: E402
from grpo_doctor_trainer.data.experience import TokenBatch  # noqa: E402
from grpo_doctor_trainer.flags import parse  # noqa: E402
from grpo_doctor_trainer.model.load import LoadedModel, load_model  # noqa: E402
from grpo_doctor_trainer.model.sharing import probe  # noqa: E402
from grpo_doctor_trainer.rollout.decoding import Sampler, plain_parts, sample  # noqa: E402
from grpo_doctor_trainer.rollout.plain_decoder import NotPlainError, PlainDecoder  # noqa: E402
from grpo_doctor_trainer.rollout.transformers import TransformersRollout  # noqa: E402

CPU = torch.device("cpu")
SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "pad_token_id": 0, "initializer_range": 0.3,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}
TEMPERED = YARN | {"llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 64}
ENDS = (3, 9, 11, 20)  # often enough that rows end before others


def model_of(family: str, **settings: Any) -> Any:
    config = getattr(transformers, f"{family}Config")(**SIZES | settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return getattr(transformers, f"{family}ForCausalLM")(config).eval()


def prompts() -> TokenBatch:
    """Six completions of a long prompt and two of a short one."""
    tokens = torch.tensor([[5, 17, 23, 8, 40]] * 6 + [[0, 0, 31, 6, 12]] * 2)
    mask = (tokens != 0).long()
    return TokenBatch(tokens, mask, tokens[:, :0], mask[:, :0])


def sampler(*flags: str) -> Sampler:
    loaded: Any = SimpleNamespace(
        tokenizer=SimpleNamespace(pad_token_id=0), end_tokens=ENDS, vision=None
    )
    return Sampler(parse(["--max_completion_length", "16", *flags], 1), loaded)


def completed(model: Any, plain: PlainDecoder | None, *flags: str) -> Any:
    torch.manual_seed(1)
    with torch.no_grad():
        return sample(model, prompts(), sampler(*flags), None, plain)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("Llama", {"rope_parameters": YARN}),
        ("Qwen2", {}),
        ("Qwen3", {"head_dim": 16}),
        ("Gemma", {"head_dim": 8}),
        ("Starcoder2", {}),
        ("Qwen3Moe", EXPERTS | {"head_dim": 16}),
    ],
)
def test_parts_say_what_the_model_says(family: str, settings: dict[str, Any]) -> None:
    model = model_of(family, **settings)
    state = torch.random.get_rng_state()
    plain = plain_parts(model, probe(CPU, None))
    assert torch.equal(state, torch.random.get_rng_state())
    direct, parts = (completed(model, decoder) for decoder in (None, plain))
    assert parts.equal(direct)
    assert not parts.is_inference()
    lengths = (parts != 0).sum(dim=1)
    assert len(lengths.unique()) > 1, "rows have to end before others"
    greedy = [completed(model, decoder, "--top_k", "1") for decoder in (None, plain)]
    assert greedy[0].equal(greedy[1])


@pytest.mark.parametrize(
    ("family", "settings", "reason"),
    [
        ("Mistral", {"sliding_window": 4096}, "its attention has a sliding window"),
        ("Gemma2", {"head_dim": 8}, "it has layers of sliding_attention"),
        ("Granite", {"logits_scaling": 8.0}, "it changes its logits"),
        ("Olmo2", {}, "its layers are of another kind"),
        ("Nemotron", {}, "its layers do not take it"),
        ("Llama", {"rope_parameters": YARN | {"rope_type": "dynamic"}}, "rotary embedding is dyn"),
        ("Granite", {"residual_multiplier": 0.5}, "its log-probs would differ by"),
        ("SmolLM3", {"num_hidden_layers": 4}, "its log-probs would differ by"),
        ("Ministral3", {"rope_parameters": TEMPERED}, "its log-probs would differ by"),
    ],
)
def test_a_model_of_another_kind_is_refused(
    family: str, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(NotPlainError, match=reason):
        plain_parts(model_of(family, **settings), probe(CPU, None))


def test_adapters_and_changed_weights_count() -> None:
    base = model_of("Qwen2")
    before = completed(base, None)
    settings = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    torch.manual_seed(2)
    model = peft.get_peft_model(base, settings, autocast_adapter_dtype=False).eval()
    plain = plain_parts(model, probe(CPU, None))
    adapted = completed(model, plain)
    assert adapted.equal(completed(model, None))
    assert adapted.shape != before.shape or not adapted.equal(before)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)
    changed = completed(model, plain)
    assert changed.equal(completed(model, None))
    assert changed.shape != adapted.shape or not changed.equal(adapted)


@pytest.fixture(scope="module", params=["", "embedded-vl"])
def loaded(request: pytest.FixtureRequest) -> LoadedModel:
    return load_model(parse(["--model", request.param] if request.param else [], 1), torch.float32)


def test_the_embedded_models_are_plain(loaded: LoadedModel) -> None:
    plain_parts(loaded.policy.eval(), probe(CPU, loaded.vision))


def test_what_is_attached_to_a_model_is_not_gone_around(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loaded = load_model(parse([], 1), torch.float32)
    engine: Any = SimpleNamespace(
        module=loaded.policy, model=loaded.policy, device=CPU, zero_stage=None
    )
    rollout = TransformersRollout(engine, loaded, parse(["--max_completion_length", "4"], 1))
    calls: list[Any] = []
    layer = loaded.policy.model.layers[0]
    layer.register_forward_hook(lambda *_: calls.append(None))
    batch = loaded.tokenizer(["1+2"] * 8, return_tensors="pt")
    prompts = PromptBatch([], [], batch["input_ids"], batch["attention_mask"])
    with caplog.at_level("INFO", "grpo_doctor_trainer"):
        rollout.generate(prompts)
        made = rollout.generate(prompts).tokens.completion_tokens
    assert caplog.text.count("because something is attached to its Qwen2DecoderLayer") == 1
    assert len(calls) >= made.size(1)
