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


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("Authorization: Bearer abcdef.123456", f"Authorization: Bearer {HIDDEN}"),
        (
            "https://host/data?token=abc&split=train",
            f"https://host/data?token={HIDDEN}&split=train",
        ),
        ('{"api_key": "abc", "max_tokens": "5"}', f'{{"api_key": "{HIDDEN}", "max_tokens": "5"}}'),
        ("nvapi-" + "a1" * 20, HIDDEN),
        ("eos_token=<|end|> lr=1e-6", "eos_token=<|end|> lr=1e-6"),
    ],
)
def test_values_that_are_named_as_secrets(text: str, safe: str) -> None:
    assert redact_text(text) == safe


def test_switches_and_counts_are_no_secrets() -> None:
    config = {"use_auth": True, "total_tokens": 4096, "password": 12345, "token": "abc"}
    assert redact_mapping(config) == {
        "use_auth": True,
        "total_tokens": 4096,
        "password": HIDDEN,
        "token": HIDDEN,
    }


def test_secrets_inside_lists_and_json_arguments() -> None:
    assert redact_mapping({"args": ["--x", "hf_abcdefghijklmnopqrstu"]}) == {
        "args": ["--x", HIDDEN]
    }
    assert redact_command(["--kwargs", '{"hub_token":"abc"}']) == [
        "--kwargs",
        f'{{"hub_token":"{HIDDEN}"}}',
    ]


@pytest.mark.timeout(10)
def test_a_long_text_takes_no_long_time() -> None:
    for text in ("a" * 300_000, "a=" * 100_000, "eyJ" * 100_000, "://" * 100_000):
        assert redact_text(text)
