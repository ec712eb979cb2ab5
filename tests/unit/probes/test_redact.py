"""Secrets leave, numbers of tokens stay."""

from __future__ import annotations

import pytest
from grpo_doctor_probes.redact import (
    HIDDEN,
    is_secret_name,
    redact_command,
    redact_mapping,
    redact_text,
)


@pytest.mark.parametrize(
    "name",
    [
        "--api_key",
        "hub_token",
        "WANDB_API_KEY",
        "password",
        "aws.secret",
        "--auth-token",
        "HF_TOKEN",
    ],
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "--max_tokens",
        "num_tokens",
        "pad_token",
        "eos_token",
        "tokenizer",
        "--max_completion_length",
    ],
)
def test_harmless_names(name: str) -> None:
    assert not is_secret_name(name)


def test_commands() -> None:
    command = ["swift", "--hub_token", "abc", "--model=x", "--api-key=def", "HF_TOKEN=ghi", "run"]
    assert redact_command(command) == [
        "swift", "--hub_token", HIDDEN, "--model=x", f"--api-key={HIDDEN}", f"HF_TOKEN={HIDDEN}",
        "run",
    ]  # fmt: skip
    assert redact_command(["--api_key", "--verbose"]) == ["--api_key", "--verbose"]


def test_values_that_look_like_keys() -> None:
    assert redact_text("use hf_abcdefghijklmnopqrstu now") == f"use {HIDDEN} now"
    assert redact_text("https://me:pw@host/path") == f"https://me:{HIDDEN}@host/path"
    assert redact_text("Qwen/Qwen2.5-VL-72B-Instruct") == "Qwen/Qwen2.5-VL-72B-Instruct"


def test_nested_configurations() -> None:
    config = {"a": {"token": "x", "max_token": 5}, "list": ["hf_" + "a" * 20], "token": None}
    assert redact_mapping(config) == {
        "a": {"token": HIDDEN, "max_token": 5},
        "list": [HIDDEN],
        "token": None,
    }
