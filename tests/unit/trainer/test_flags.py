"""The command line of the trainer: every option, every default, and errors that help."""

from __future__ import annotations

import dataclasses
from importlib import resources

import pytest

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.flags import build_parser, parse, with_defaults

OPTIONS = dataclasses.fields(TrainerConfig)


def parsed(*arguments: str, ranks: int = 2) -> TrainerConfig:
    return parse(arguments, ranks)


def test_help_shows_every_option_with_its_text() -> None:
    unwrapped = " ".join(build_parser().format_help().split())
    for option in OPTIONS:
        assert f"--{option.name} " in unwrapped
        assert option.metadata["help"].split()[0] in unwrapped


def test_check_knows_every_option() -> None:
    listed = resources.files("grpo_doctor.knobs").joinpath("options/bundled.txt").read_text()
    assert listed.splitlines()[1:] == sorted(option.name for option in OPTIONS)


def test_help_ends_with_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parsed("--help")
    assert stop.value.code == 0
    assert "examples:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["--use_vllm", "false"], False),
        (["--use_vllm", "False"], False),
        (["--use_vllm", "no"], False),
        (["--use_vllm=0"], False),
        (["--use_vllm", "true"], True),
        (["--use_vllm", "1"], True),
        (["--use_vllm"], True),
    ],
)
def test_booleans(arguments: list[str], value: bool) -> None:
    assert build_parser().parse_args(arguments).use_vllm is value


def test_embedded_model_has_defaults_of_its_own() -> None:
    config = parsed()
    for option in OPTIONS:
        if option.metadata["embedded"] is not None:
            assert getattr(config, option.name) == option.metadata["embedded"], option.name
    assert config.train_type == "full"
    assert config.reward_funcs == ["accuracy", "arithmetic"]


def test_a_real_model_has_the_defaults_of_ms_swift() -> None:
    values = with_defaults({"model": "some/model", "dataset": ["rows.jsonl"]})
    config = TrainerConfig(**values)
    assert (config.train_type, config.num_generations, config.temperature) == ("lora", 8, 0.9)
    assert (config.beta, config.learning_rate, config.warmup_ratio) == (0.04, 1e-6, 0.05)
    assert (config.max_steps, config.deepspeed, config.save_steps) == (-1, None, 500)
    assert config.reward_funcs == ["accuracy"]


def test_what_is_given_beats_the_embedded_default() -> None:
    config = parsed("--max_steps", "3", "--deepspeed", "none", "--save_total_limit", "none")
    assert (config.max_steps, config.deepspeed, config.save_total_limit) == (3, None, None)


def test_lists_and_optional_numbers() -> None:
    config = parsed(
        "--reward_funcs", "accuracy", "format", "--reward_weights", "1", "0.5",
        "--epsilon_high", "0.28",
    )  # fmt: skip
    assert config.reward_funcs == ["accuracy", "format"]
    assert config.weights == [1.0, 0.5]
    assert config.epsilon_high == 0.28
    assert parsed().weights == [1.0, 1.0]
