"""The rollout with a server, over real HTTP against a vLLM that counts."""

from __future__ import annotations

import base64
import io
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.prompts import PromptBatch
from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.model.load import load_model
from grpo_doctor_trainer.ranks import Ranks
from grpo_doctor_trainer.rollout.vllm import server
from grpo_doctor_trainer.rollout.vllm.requests import as_bodies
from tests.ports import free_port
from tests.unit.trainer.rollout.fake_server import FakeVllm, serving

CPU = torch.device("cpu")
ALONE = Ranks(rank=0, world_size=1, local_rank=0, device=CPU, threads=1)
SHORT = ("--max_length", "20", "--max_completion_length", "4", "--vllm_server_timeout", "5")


@pytest.fixture(scope="module")
def loaded() -> Any:
    return load_model(parse([], 1), torch.float32)


@pytest.fixture
def make(loaded: Any, tmp_path: Path) -> Any:
    def rollout_with(address: str, *flags: str) -> server.ServerRollout:
        where = ("--vllm_server_port", address.rpartition(":")[2], "--output_dir", str(tmp_path))
        served = ("--use_vllm", "true", "--vllm_mode", "server", *where, *SHORT)
        folder = ("--vllm_weights_dir", str(tmp_path / "weights"))
        engine: Any = SimpleNamespace(module=loaded.policy, device=CPU, zero_stage=None)
        config = parse([*served, *folder, *flags], 1)
        return server.ServerRollout(engine, loaded, config, ALONE)

    return rollout_with


def batch(*prompts: list[int]) -> PromptBatch:
    """Each prompt twice, as a group."""
    longest = max(map(len, prompts))
    rows: Any = [object() for _ in prompts]
    every = [prompt for prompt in prompts for _ in range(2)]
    tokens = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in every])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in every])
    return PromptBatch([row for row in rows for _ in range(2)], [""] * len(every), tokens, mask)


def test_a_rollout_sends_weights_and_pads_what_comes_back(
    make: Any, loaded: Any, tmp_path: Path
) -> None:
    vllm = FakeVllm()
    (end,) = loaded.end_tokens
    pad = loaded.tokenizer.pad_token_id
    with serving(vllm) as address:
        rollout = make(address, "--move_model_batches", "3")
        rollout.sync()
        with rollout.awake():
            made = rollout.generate(batch([7, 8, 9], [end - 2]))
        rollout.close()
        rollout.close()
    assert vllm.names == set(loaded.policy.state_dict())
    assert not list(tmp_path.rglob("part-*.safetensors"))
    assert vllm.asked[:3] == ["/health", "/server_info", "/resume"]
    pause = vllm.asked.index("/pause")
    assert vllm.asked[pause : pause + 4] == [
        "/pause", "/collective_rpc", "/update_weight_version", "/resume",
    ]  # fmt: skip
    tokens = made.tokens
    assert tokens.completion_tokens.tolist() == [
        [10, 11, 12, 13], [10, 11, 12, 13], [end - 1, end, pad, pad], [end - 1, end, pad, pad],
    ]  # fmt: skip
    assert tokens.completion_mask.tolist() == [[1] * 4, [1] * 4, [1, 1, 0, 0], [1, 1, 0, 0]]
    assert tokens.prompt_mask.tolist() == [[1, 1, 1]] * 2 + [[0, 0, 1]] * 2
    assert made.logprobs is not None
    assert made.logprobs[0].tolist() == [-(token % 7) for token in (10, 11, 12, 13)]
    seeds = [body["sampling_params"]["seed"] for body in vllm.bodies[1:]]
    assert abs(seeds[1] - seeds[0]) == 2  # each completion has a seed of its own


def test_a_server_that_does_not_come_is_asked_for_once_and_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "_RETRY_S", 0.01)
    said: list[str] = []
    waiting = server.VllmServer(f"http://127.0.0.1:{free_port()}", "vllm serve x", 1.0)
    with pytest.raises(RolloutError, match=r"after 0\.1 s\. Start it: vllm serve x; or raise"):
        waiting.wait_until_ready(0.1, said.append)
    assert said == [f"waiting for vLLM at {waiting.address}; start it: vllm serve x"]


@pytest.mark.parametrize(
    ("settings", "missing", "message"),
    [
        ({}, "/server_info", "has no /server_info: it was started without RL endpoints"),
        ({}, "/inference/v1/generate", "has no /inference/v1/generate"),
        ({"logprobs_mode": "raw_logprobs"}, "", "raw_logprobs instead of processed_logprobs"),
        ({"generation_config": "auto"}, "", "generation_config auto instead of vllm"),
    ],
)
def test_a_server_without_what_is_needed_is_told_the_command(
    make: Any, settings: dict[str, str], missing: str, message: str
) -> None:
    vllm = FakeVllm(**settings)
    vllm.missing = {missing}
    with serving(vllm) as address, pytest.raises(RolloutError) as error:
        make(address)
    assert message in str(error.value)
    assert "start it with: VLLM_SERVER_DEV_MODE=1 python -m vllm" in str(error.value)
    assert "--enable-scale-out" in str(error.value)


def test_a_server_for_shorter_sequences_is_refused(make: Any) -> None:
    with (
        serving(FakeVllm()) as address,
        pytest.raises(RolloutError, match=r"24 tokens at most.* need 29.*--max-model-len 29"),
    ):
        make(address, "--max_length", "25")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "default"}, "has weights default and not .*: another trainer uses it, or it"),
        ({"reason": "abort"}, r"gave up a completion \(abort\)"),
        ({"missing": {"/inference/v1/generate"}}, "has no /inference/v1/generate"),
    ],
)
def test_what_goes_wrong_in_a_rollout_is_named(
    make: Any, change: dict[str, Any], message: str
) -> None:
    vllm = FakeVllm()
    with serving(vllm) as address:
        rollout = make(address)
        rollout.sync()
        vars(vllm).update(change)
        with pytest.raises(RolloutError, match=message):
            rollout.generate(batch([7], [8]))
        rollout.close()


def test_a_server_that_died_is_an_error_in_every_call(make: Any) -> None:
    with serving(FakeVllm()) as address:
        rollout = make(address)
        rollout.sync()
    for call in (rollout.sync, lambda: rollout.generate(batch([7]))):
        with pytest.raises(RolloutError, match=r"is gone .*start it with: VLLM_SERVER"):
            call()
    rollout.close()


def test_an_engine_that_does_not_answer_is_an_error() -> None:
    vllm = FakeVllm()
    vllm.held = {7: threading.Event()}
    ask = [{"token_ids": [7], "sampling_params": {"n": 1, "max_tokens": 2}}]
    with serving(vllm) as address:
        one = server.VllmServer(address, "COMMAND", 0.5)
        with pytest.raises(RolloutError, match=r"within 0.5 s \(--vllm_timeout\).*COMMAND"):
            one.generate(ask, "default")


def test_prompts_with_images_go_as_text_and_png(loaded: Any) -> None:
    picture = Image.new("RGB", (3, 2), (250, 10, 20))
    plain = batch([5, 6], [7])
    pictures = [[picture], [picture], [], []]
    texts = ["look"] * 2 + ["no"] * 2
    prompts = PromptBatch(plain.rows, texts, plain.tokens, plain.mask, pictures=pictures)
    first, second = as_bodies(prompts, parse([], 1), loaded, None)
    assert (first["sampling_params"]["n"], second["sampling_params"]["seed"]) == (2, None)
    assert (loaded.tokenizer.decode(first["token_ids"]), second["token_ids"]) == ("look", [7])
    (part,) = first["content_parts"]
    kind, _, data = part["url"].partition(",")
    assert (part["type"], kind) == ("image_url", "data:image/png;base64")
    with Image.open(io.BytesIO(base64.b64decode(data))) as sent:
        assert sent.tobytes() == picture.tobytes()


def test_a_folder_that_a_killed_run_left_is_replaced(make: Any, tmp_path: Path) -> None:
    config = parse(["--vllm_weights_dir", str(tmp_path)], 1)
    folder = server.make_weights_folder(config)
    (folder / "part-00009.safetensors").write_text("old")
    assert server.make_weights_folder(config) == folder
    assert not list(folder.iterdir())
    assert folder.stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    with serving(FakeVllm()) as address:
        rollout = make(address, "--vllm_weights_dir", str(tmp_path / "file"))
        with pytest.raises(RolloutError, match=r"could not be written .*--vllm_weights_dir"):
            rollout.sync()


def test_the_command_for_a_gpu_is_vllm_serve() -> None:
    config = TrainerConfig(model="my org/m", torch_dtype="bfloat16")
    command = server.start_command(config, torch.device("cuda"), 100)
    assert command == (
        "VLLM_SERVER_DEV_MODE=1 vllm serve 'my org/m' --host 127.0.0.1 --port 8000 "
        "--enable-scale-out --generation-config vllm --logprobs-mode processed_logprobs "
        "--dtype bfloat16 --max-model-len 100"
    )
