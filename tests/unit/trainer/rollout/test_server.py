"""The rollout with a server, against a real server around an engine that counts."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the trainer extra")
pytest.importorskip("transformers", reason="needs the trainer extra")

from PIL import Image  # noqa: E402

from grpo_doctor_trainer.data.batch import PromptBatch  # noqa: E402
from grpo_doctor_trainer.errors import RolloutError  # noqa: E402
from grpo_doctor_trainer.flags import parse  # noqa: E402
from grpo_doctor_trainer.model.load import load_model  # noqa: E402
from grpo_doctor_trainer.ranks.group import Ranks  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.requests import as_prompts  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.server import ServerRollout  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.statistics import totals  # noqa: E402
from grpo_doctor_trainer.serve.protocol import Completion  # noqa: E402
from grpo_doctor_trainer.serve.state import RolloutStatistics, model_shape  # noqa: E402
from grpo_doctor_trainer.serve.web import WebServer  # noqa: E402
from tests.unit.trainer.serve.served import CountingEngine, serving  # noqa: E402

ALONE = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("cpu"), threads=1)
SHORT = ("--max_length", "20", "--max_completion_length", "4", "--vllm_server_timeout", "5")


@pytest.fixture(scope="module")
def loaded() -> Any:
    return load_model(parse([], 1), torch.float32)


@pytest.fixture
def facts(loaded: Any) -> dict[str, Any]:
    shape = model_shape(loaded.policy.config)
    return {"shape": shape, "max_model_len": 24, "dtype": "float32", "device": "cpu"}


def rollout_with(server: WebServer, loaded: Any, *flags: str) -> ServerRollout:
    where = ("--vllm_server_port", str(server.server_address[1]))
    config = parse(["--use_vllm", "true", "--vllm_mode", "server", *where, *SHORT, *flags], 1)
    engine: Any = SimpleNamespace(
        module=loaded.policy, model=loaded.policy, device=torch.device("cpu"), zero_stage=None
    )
    return ServerRollout(engine, loaded, config, ALONE)


def batch(*prompts: list[int]) -> PromptBatch:
    """Each prompt twice, as a group."""
    longest = max(map(len, prompts))
    rows: Any = [object() for _ in prompts]
    every = [prompt for prompt in prompts for _ in range(2)]
    tokens = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in every])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in every])
    return PromptBatch([row for row in rows for _ in range(2)], [""] * len(every), tokens, mask)


def test_completions_that_have_ended_come_before_the_others(
    loaded: Any, facts: dict[str, Any], tmp_path: Path
) -> None:
    (end,) = loaded.end_tokens
    heard: dict[int, list[int]] = {}
    two_heard = threading.Event()

    class Patient(CountingEngine):
        def step(self) -> list[tuple[str, Completion]]:
            assert self.steps < 2 or two_heard.wait(60)
            return super().step()

    def hear(ended: Mapping[int, list[int]]) -> None:
        heard.update(ended)
        if {2, 3} <= heard.keys():
            two_heard.set()

    with serving(Patient(), tmp_path, **facts) as server:
        rollout = rollout_with(server, loaded)
        rollout.sync()
        completed = rollout.generate(batch([7], [end - 2]), hear)
        rollout.close()
    assert heard[2] == heard[3] == [end - 1, end]
    for row, tokens in heard.items():
        assert completed.tokens.completion_tokens[row, : len(tokens)].tolist() == tokens


def test_a_rollout_sends_weights_and_pads_what_comes_back(
    loaded: Any, facts: dict[str, Any], tmp_path: Path
) -> None:
    engine = CountingEngine()
    (end,) = loaded.end_tokens
    pad = loaded.tokenizer.pad_token_id
    with serving(engine, tmp_path, **facts) as server:
        rollout = rollout_with(server, loaded, "--move_model_batches", "3")
        rollout.sync()
        with rollout.awake():
            made = rollout.generate(batch([7, 8, 9], [end - 2]))
        rollout.close()
        rollout.close()
        assert not list(tmp_path.rglob("*.safetensors"))
    assert set(engine.names) == set(loaded.policy.state_dict())
    tokens = made.tokens
    assert tokens.completion_tokens.tolist() == [
        [10, 11, 12, 13], [10, 11, 12, 13], [end - 1, end, pad, pad], [end - 1, end, pad, pad],
    ]  # fmt: skip
    assert tokens.completion_mask.tolist() == [[1] * 4, [1] * 4, [1, 1, 0, 0], [1, 1, 0, 0]]
    assert tokens.prompt_mask.tolist() == [[1, 1, 1]] * 2 + [[0, 0, 1]] * 2
    assert made.logprobs is not None
    seeds = (-made.logprobs[:, 0]).tolist()  # as the engine got them
    assert seeds == [(seeds[0] + number) % 100 for number in range(4)]


def test_a_server_that_does_not_fit_is_told(
    loaded: Any, facts: dict[str, Any], tmp_path: Path
) -> None:
    mismatched = facts | {"shape": facts["shape"] | {"hidden_size": 64}, "model": "some/model"}
    with (
        serving(CountingEngine(), tmp_path, **mismatched) as server,
        pytest.raises(
            RolloutError, match=r"another model \(some/model\): hidden_size 128 here and 64"
        ),
    ):
        rollout_with(server, loaded)
    with (
        serving(CountingEngine(), tmp_path, **facts) as server,
        pytest.raises(RolloutError, match=r"takes 24 tokens at most.* need 29.*--max_model_len 29"),
    ):
        rollout_with(server, loaded, "--max_length", "25")


def test_a_server_that_was_started_anew_is_noticed(
    loaded: Any, facts: dict[str, Any], tmp_path: Path
) -> None:
    with serving(CountingEngine(), tmp_path, **facts) as server:
        rollout = rollout_with(server, loaded)
        rollout.sync()
        server.service.health = server.service.health.__class__("ready", "", 2, "/the/log")
        with pytest.raises(RolloutError, match="another trainer uses it, or it was started anew"):
            rollout.generate(batch([7]))


def test_a_server_that_died_is_an_error_in_every_call(
    loaded: Any, facts: dict[str, Any], tmp_path: Path
) -> None:
    with serving(CountingEngine(), tmp_path, **facts) as server:
        rollout = rollout_with(server, loaded)
        rollout.sync()
    with pytest.raises(RolloutError, match=r"is gone while it generated .*Its log: /the/log"):
        rollout.generate(batch([7]))
    with pytest.raises(RolloutError, match=r"--weights_dir|is gone"):
        rollout.sync()
    rollout.close()


def test_prompts_with_images_go_as_text_and_png() -> None:
    picture = Image.new("RGB", (3, 2), (250, 10, 20))
    plain = batch([5, 6], [7])
    prompts = as_prompts(
        PromptBatch(
            plain.rows,
            ["look"] * 2 + ["no"] * 2,
            plain.tokens,
            plain.mask,
            pictures=[[picture], [picture], [], []],
        )
    )
    assert [(p.copies, p.tokens, p.text) for p in prompts] == [(2, [], "look"), (2, [7], "")]
    with Image.open(io.BytesIO(base64.b64decode(prompts[0].images[0]))) as sent:
        assert sent.format == "PNG"
        assert sent.tobytes() == picture.tobytes()


def test_what_is_the_whole_engines_is_counted_once() -> None:
    statistics = RolloutStatistics(9, 4.5, 2, 0.5, 0.25, 1, 40, 30, 12)
    completions = [Completion([7] * 4, [], 3), Completion([7] * 2, [], 3)]
    main = totals(statistics, completions, whole_engine=True)
    assert main["running_requests_peak"] == 9
    assert main["kv_cache_peak_pct"] == 25
    assert (main["prompt_tokens"], main["generated_tokens"]) == (6, 6)
    secondary = totals(statistics, completions, whole_engine=False)
    assert "preemptions" not in secondary
    assert secondary["generated_tokens"] == 6
    assert secondary.items() <= main.items()
