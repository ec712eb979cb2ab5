"""The command line of the trainer: every option, every default, and errors that help."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.errors import ConfigError
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


def test_every_boolean_takes_both_values() -> None:
    for option in OPTIONS:
        if isinstance(option.default, bool):
            for text, value in (("true", True), ("false", False)):
                options = build_parser().parse_args([f"--{option.name}", text])
                assert getattr(options, option.name) is value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--learning_rte", "1"], "unknown flag --learning_rte: did you mean --learning_rate?"),
        (["--num-generations=4"], "unknown flag --num-generations: did you mean --num_generations"),
        (["--lear", "1"], "unknown flag --lear"),
        (["--xyzzy"], "unknown flag --xyzzy: see --help for all flags"),
        (["--overlap_sync", "true"], "--overlap_sync is gone: weights go to vLLM's own server in"),
        (["--report_to", "wandb"], "--report_to is gone: metrics.jsonl of a recorded run has"),
        (["--vllm_enable_lora"], "--vllm_enable_lora is gone: adapters are merged into what"),
        (["surplus"], "'surplus' does not belong to a flag"),
        (["--reward_funcs"], "expected at least one argument"),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parsed(*arguments)
    assert message in str(error.value)


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


def test_lists_are_not_shared_between_configurations() -> None:
    first = TrainerConfig()
    first.dataset.append("rows.jsonl")
    assert TrainerConfig().dataset == []


def test_a_wrong_flag_is_one_message_and_exit_code_2(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "grpo_doctor_trainer", "--learning_rte", "1"],
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert process.returncode == 2
    assert process.stderr == ("error: unknown flag --learning_rte: did you mean --learning_rate?\n")
