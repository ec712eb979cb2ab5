"""Secrets leave, numbers of tokens stay."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.record.redact import HIDDEN, redact_command, redact_mapping, redact_text

CANARY = "Canary7Birdsong9Value"
WAYS = (
    ["--hf_token", CANARY], [f"--hf_token={CANARY}"], ["--hub-token", CANARY],
    ["--secret_key", CANARY], ["--openai_key", CANARY], ["--openaiApiKey=" + CANARY],
    ["--hfToken", CANARY], ["--db_pass", CANARY], ["--passphrase", CANARY], ["--pwd", CANARY],
    ["--token", f"-{CANARY}"], ["--token", f"--{CANARY}"], ["--use_wandb", CANARY],
    ["--aws_secret_access_key", CANARY], ["--webhook_url", CANARY], ["PGPASSWORD=" + CANARY],
    ["WANDB_API_KEY=" + CANARY], ["env", "HF_TOKEN=" + CANARY], ["+trainer.hf_token=" + CANARY],
    ["report_to.wandb.key=" + CANARY], ["bash", "-c", f"train --hf_token {CANARY}"],
    ["bash", "-c", f"train --hf_token={CANARY}"], ["bash", "-c", f"train --password '{CANARY}'"],
    ["bash", "-c", f'WANDB_API_KEY="{CANARY}" train'], ["bash", "-c", f"HF_TOKEN='{CANARY}' t"],
    ["bash", "-c", f"export HF_TOKEN={CANARY}; train"], [f"http://user:{CANARY}@host/path"],
    [f"http://u:p@{CANARY}@host/x"], [f"https://{CANARY}@github.com/a/b"],
    [f"redis://:{CANARY}@host:6379/0"], [f"https://a/b?token={CANARY}&x=1"],
    [f"https://a/b?sig={CANARY}&x=1"], [f"https://a/b?X-Amz-Signature={CANARY}"],
    [f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={CANARY};EndpointSuffix=c"],
    [f"https://hooks.slack.com/services/T00/B00/{CANARY}"], ["-H", f"X-Api-Key: {CANARY}"],
    ["-H", f"Authorization: token {CANARY}"], ["-H", f"Authorization: Bearer {CANARY}"],
    ["-H", f"Cookie: session={CANARY}"], [f"curl -H 'x-api-key: {CANARY}' host"],
    [f'{{"HF_TOKEN": "{CANARY}"}}'], [f"{{'HF_TOKEN': '{CANARY}'}}"],
    [f'{{\\"HF_TOKEN\\": \\"{CANARY}\\"}}'], [f"--kwargs={{'api_key':'{CANARY}'}}"],
    [f"['--api_key', '{CANARY}']"], [f'["--token","{CANARY}"]'],
    [f"HF_TOKEN: {CANARY}"], [f"export HF_TOKEN2={CANARY}"], [f"--api_key1 {CANARY}"],
    [f'{{"hub_token_2": "{CANARY}"}}'], [f"password: {CANARY}"], [f"failed with password {CANARY}"],
)  # fmt: skip
LETTERS = "Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0"
SHAPES = (
    "hf_", "sk-", "sk-ant-api03-", "sk-proj-", "sk_live_", "rk_live_", "ghp_", "gho_",
    "github_pat_11", "glpat-", "gldt-", "xoxb-", "xoxp-", "xapp-", "nvapi-", "npm_",
    "pypi-AgEIcHlwaS5vcmc", "dckr_pat_", "AIzaSyA", "ya29.", "GOCSPX-", "eyJ", "gsk_", "r8_",
    "rpa_", "lsv2_pt_", "xai-", "pplx-", "hvs.", "sq0csp-", "figd_", "phc_", "glsa_", "sntrys_",
    "ATATT3x", "whsec_", "Ab1Cd2Ef3Gh4Ij.atlasv1.", "pscale_tkn_", "FlyV1 fm2_", "fo1_",
    "LTAI", "AQVN", "ABSK", "GR1348941", "sha256~", "fio-u-", "NRII-", "HRKU-AA", "EAAA", "EZTK",
    "AKCp", "cmVmd", "pnu_", "lin_api_", "xkeysib-", "CLOJARS_", "s-s4t2af-", "FLWSECK_TEST-",
    "live_pub_", "duffel_live_", "fm1r_", "sm_aat_", "sat.", "plaid=",
)  # fmt: skip


@pytest.mark.parametrize("arguments", WAYS, ids=lambda arguments: " ".join(arguments)[:40])
def test_a_named_secret_is_hidden_in_a_command_and_in_text(arguments: list[str]) -> None:
    assert CANARY not in " ".join(redact_command(arguments))
    assert CANARY not in redact_text(" ".join(arguments))


@pytest.mark.parametrize("prefix", SHAPES)
def test_a_published_token_format_is_hidden_without_a_name(prefix: str) -> None:
    for text in (prefix + LETTERS, f"use {prefix}{LETTERS}, now", f"['{prefix}{LETTERS}']"):
        assert LETTERS not in redact_text(text)


@pytest.mark.parametrize(
    "token",
    ["AKIA" + "B2" * 8, "ASIA" + "C3" * 8, "0a1b2c3d4e" * 4, "123456789:AA" + LETTERS + "abcdef",
     "ms-01234567-89ab-cdef-0123-456789abcdef", "dapi" + "0f" * 16, "shpat_" + "0f" * 16,
     f"-----BEGIN RSA PRIVATE KEY-----\n{LETTERS}\n-----END RSA PRIVATE KEY-----"],
)  # fmt: skip
def test_a_token_of_fixed_letters_is_hidden(token: str) -> None:
    assert redact_text(f"key {token} end") == f"key {HIDDEN} end"


@pytest.mark.parametrize(
    "text",
    """--input_key question|--label_key=answer|data.reward_fn_key=data_source|--pad_token <pad>|
    --max_tokens 5|loss_agg_mode=token-mean|--token_level true|https://github.com/a/b|
    git+ssh://git@github.com/a|key: value|--stop_token </s>|tokens: 12|--use_auth true|
    password=None|Qwen2VLForConditionalGeneration|_ZN4c10d16ProcessGroupNCCL8WorkNCCL9isStartedEv|
    models--a--b/snapshots/0123456789abcdef0123456789abcdef01234567|--rdzv_id 20260101123456789012|
    https://github.com/a/b/blob/0123456789abcdef0123456789abcdef01234567/c.py|
    --task forward_pass|--system You are basic arithmetic|eos_token=<|PWD=/data|
    data.continuous_token=true|--deepspeed zero3|Process 12 got signal: 2|--tokenizer Qwen/Qwen3|
    num_tokens 4096|PASS: Dynamo works|--max_completion_length 512|a@b.com""".replace("\n    ", "")
    .split("|"),
)  # fmt: skip
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact_text(text) == text
    assert redact_command(text.split()) == text.split()


def test_commands() -> None:
    command = ["swift", "--hub_token", "abc", "--model=x", "--api-key=def", "HF_TOKEN=ghi", "run"]
    assert redact_command(command) == [
        "swift", "--hub_token", HIDDEN, "--model=x", f"--api-key={HIDDEN}", f"HF_TOKEN={HIDDEN}",
        "run",
    ]  # fmt: skip
    assert redact_command(["--api_key", "--verbose"]) == ["--api_key", "--verbose"]
    json = '{"hub_token":"%s"}'
    assert redact_command(["--kwargs", json % "abc"]) == ["--kwargs", json % HIDDEN]


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("use hf_abcdefghijklmnopqrstu now", f"use {HIDDEN} now"),
        ("https://me:pw@host/path", f"https://me:{HIDDEN}@host/path"),
        ("Authorization: Bearer abcdef.123456", f"Authorization: Bearer {HIDDEN}"),
        ("https://a/data?token=abc&split=train", f"https://a/data?token={HIDDEN}&split=train"),
        ('{"api_key": "abc", "max_tokens": "5"}', f'{{"api_key": "{HIDDEN}", "max_tokens": "5"}}'),
        ("eos_token=<|end|> lr=1e-6", "eos_token=<|end|> lr=1e-6"),
    ],
)
def test_what_is_around_a_secret_stays(text: str, safe: str) -> None:
    assert redact_text(text) == safe


def test_secrets_of_nested_settings_are_hidden() -> None:
    config = {
        "a": {"token": "x", "max_token": 5}, "list": ["--x", "hf_" + "a" * 20], "hf_token": None,
        "use_auth": True, "total_tokens": 4096, "password": 12345, "token": "abc",
    }  # fmt: skip
    assert redact_mapping(config) == {
        **config, "a": {"token": HIDDEN, "max_token": 5}, "list": ["--x", HIDDEN],
        "password": HIDDEN, "token": HIDDEN,
    }  # fmt: skip


@pytest.mark.timeout(10)
def test_a_long_text_takes_no_long_time() -> None:
    for text in ("a", "a=", "eyJ", "-eyJ", "://", "://a@", "token: ", "--a ", "key-", "A1b2_"):
        assert redact_text(text * (100_000 // len(text)))
