from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.knobs.advice import Job, instruct

OPTIMIZER = "deepspeed.offload_optimizer"
SERVER = {"vllm.mode": "server"}


def sentence(
    framework: str, settings: dict[str, Any], knob: str, value: Any, **versions: str
) -> Any:
    instruction = instruct(Job(framework, versions, settings), knob, value)
    assert instruction is None or instruction.text in instruction.sentence
    assert instruction is None or instruction.where in instruction.sentence
    return instruction and instruction.sentence


@pytest.mark.parametrize(
    ("preset", "knob", "value", "expected"),
    [
        ("zero2_offload", OPTIMIZER, False, "--deepspeed zero2"),
        ("zero3", "deepspeed.stage", 2, "--deepspeed zero2"),
        ("zero3_offload", "deepspeed.stage", 2, "--deepspeed zero2_offload"),
        # No preset keeps the parameters alone on the host.
        (
            "zero3_offload",
            OPTIMIZER,
            False,
            (
                'set "zero_optimization.offload_optimizer.device": "none" in the DeepSpeed '
                "configuration"
            ),
        ),
        ("runs/ds.json", OPTIMIZER, False,
         'set "zero_optimization.offload_optimizer.device": "none" in runs/ds.json'),
        (None, "deepspeed.stage", 1, "--deepspeed zero1"),
        ("runs/ds.json", "vllm.swap_space", 4.0, None),
    ],
)  # fmt: skip
def test_deepspeed_is_changed_where_it_is_set(
    preset: str | None, knob: str, value: Any, expected: str | None
) -> None:
    assert sentence("ms-swift", {"deepspeed.preset": preset}, knob, value) == expected


def test_a_framework_with_a_flag_needs_no_file_and_verl_has_neither() -> None:
    assert sentence("openrlhf", {}, "deepspeed.stage", 2, openrlhf="0.11.2") == "--ds.zero_stage 2"
    assert sentence("verl", {}, "deepspeed.stage", 2, verl="0.9.1") is None
    assert sentence("unknown", {}, "deepspeed.stage", 2) is None


def test_options_of_a_server_go_to_the_server() -> None:
    eager = ("vllm.enforce_eager", False)
    assert (
        sentence("trl", SERVER, *eager, trl="0.24.0")
        == "for `trl vllm-serve`: --enforce_eager false"
    )
    assert sentence("trl", SERVER, *eager, trl="1.16.0") == "for `vllm serve`: --no-enforce-eager"
    swift = sentence("ms-swift", SERVER, *eager, **{"ms-swift": "4.6.0"})
    assert swift == "for `swift rollout`: --vllm_enforce_eager false"
    bundled = sentence("bundled", SERVER, "vllm.max_num_seqs", 8, bundled="0.1.0")
    assert bundled == "for `vllm serve`: --max-num-seqs 8"
    # Beside the trainer: the flag is the trainer's own.
    assert sentence("trl", {"vllm.mode": "colocate"}, *eager, trl="1.16.0") is None


def test_what_is_the_trainers_stays_with_the_trainer() -> None:
    assert sentence("ms-swift", SERVER, "vllm.mode", "colocate", **{"ms-swift": "4.6.0"}) == (
        "--vllm_mode colocate"
    )
    assert sentence("trl", SERVER, "rollout.num_generations", 16, trl="1.16.0") == (
        "--num_generations 16"
    )


def test_an_option_that_takes_json_keeps_its_other_keys() -> None:
    text = sentence("ms-swift", {}, "vllm.max_num_batched_tokens", 8192, **{"ms-swift": "4.6.0"})
    assert text == (
        "--vllm_engine_kwargs '{\"max_num_batched_tokens\": 8192}' (in addition to its existing "
        "keys)"
    )
