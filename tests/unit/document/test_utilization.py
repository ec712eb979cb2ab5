"""Model FLOPs: against torch's own count of real models, and from a recording to a percentage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document.utilization import flops_per_token, linear_flops, utilization_entry
from grpo_doctor.memory import model_shape
from grpo_doctor.memory.models import shape_of
from grpo_doctor.trace.model import Kind
from grpo_doctor_reports.schema.report import UtilizationEntry
from tests.unit.document.test_memory import recorded

ROW = 64
DENSE = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "vocab_size": 300,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "tie_word_embeddings": False,
}  # fmt: skip
EXPERTS = {**DENSE, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "config"),
    [("Qwen2", DENSE), ("Llama", DENSE), ("Qwen3Moe", {**EXPERTS, "model_type": "qwen3_moe"})],
)
def test_flops_are_those_that_torch_counts(kind: str, config: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from torch.utils.flop_counter import FlopCounterMode

    settings = {key: value for key, value in config.items() if key != "model_type"}
    made = getattr(transformers, f"{kind}Config")(**settings, attn_implementation="eager")
    if "num_experts" in settings:
        made._experts_implementation = "eager"  # grouped products are not counted
    model = getattr(transformers, f"{kind}ForCausalLM")(made)
    tokens = torch.randint(0, 300, (2, ROW))
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        model(tokens)
    with FlopCounterMode(display=False) as both:
        model(tokens).logits.sum().backward()
    shape = shape_of(kind, {"model_type": kind.lower(), **config}, "here")
    # torch counts whole squares of attention, of which causal attention needs half.
    rest_of_attention = 2.0 * ROW * shape.query_width * shape.layers
    once = linear_flops(shape) + 2 * rest_of_attention
    assert forward.get_total_flops() / (2 * ROW) == pytest.approx(once, rel=0.01)
    whole = flops_per_token(shape, ROW, "full") + 3 * rest_of_attention
    assert both.get_total_flops() / (2 * ROW) == pytest.approx(whole, rel=0.06)


def test_known_models() -> None:
    """6 FLOPs a parameter, of Qwen2.5-7B its 7.07 billion without the token table; with LoRA 4."""
    shape = model_shape("Qwen/Qwen2.5-7B-Instruct")
    assert flops_per_token(shape, 0, "full") / 6 == pytest.approx(7.07e9, rel=0.002)
    assert flops_per_token(shape, 0, "lora") / 4 == pytest.approx(7.07e9, rel=0.002)
    active = linear_flops(model_shape("Qwen/Qwen3-30B-A3B")) / 2
    assert active == pytest.approx(3.04e9, rel=0.01)


def entry(
    places: float = 20_000.0, *, card: str = "", cuda: bool = False, **more: Any
) -> UtilizationEntry:
    """The utilization of two ranks that train for 1 s a step."""
    build = recorded(**more)
    for rank in (0, 1):
        for number in range(3):
            at_s = 10.0 + 3 * number + 1.5
            build.series("train/token_places", "", (at_s,), [places], scope="counter", rank=rank)
            if cuda:
                begin_s = 11.0 + 3 * number
                build.row(Kind.CUDA_SPAN, rank, "train", begin_s, begin_s + 1, depth=1, value=1e3)
    trace = build.build()
    if card:
        trace = replace(trace, gpus=tuple(replace(gpu, name=card) for gpu in trace.gpus))
    return utilization_entry(analyse(trace))


def test_percent_of_the_peak_in_the_step_and_in_train() -> None:
    shape = model_shape("Qwen/Qwen2.5-7B-Instruct")
    expected = 100 * 20_000 * flops_per_token(shape, 2048, "lora") / 989.4e12
    assert 40 < expected < 75
    found = entry(card="NVIDIA H100 80GB HBM3")
    assert found.reason == ""
    assert found.step_pct == pytest.approx(expected / 3, abs=0.1)
    assert found.train_pct is None  # by the host's clock alone
    assert found.padding_counted
    measured = entry(card="NVIDIA H100 80GB HBM3", cuda=True)
    assert measured.step_pct == found.step_pct
    assert measured.train_pct == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(("more", "reason"), [
    ({"card": "Tesla K80"}, "not modeled: the peak of Tesla K80 is not known here"),
    ({"framework": "unknown"}, "the settings of unknown are not known here"),
    ({"knobs": {"model.name": "Qwen/Qwen2.5-VL-7B-Instruct"}}, "the vision tower"),
    ({"knobs": {"model.name": "no/such-model"}}, "the shape of no/such-model is not known"),
    ({"places": 1e6}, "more tokens were recorded than these GPUs can train"),
    ({"gpu": False}, "no GPU of a rank was sampled"),
])  # fmt: skip
def test_what_is_not_modeled_is_said(more: dict[str, Any], reason: str) -> None:
    found = entry(**more)
    assert reason in found.reason
    assert found.train_pct is None


def test_without_tokens_there_is_no_number() -> None:
    found = utilization_entry(analyse(recorded().build()))
    assert found == UtilizationEntry(reason="the tokens of training passes were not recorded")
