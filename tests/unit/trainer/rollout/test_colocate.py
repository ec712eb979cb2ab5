"""What a colocated engine is made of, as far as it works without vLLM."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the trainer extra")
peft = pytest.importorskip("peft", reason="needs the trainer extra")

from grpo_doctor_trainer.errors import ConfigError, RolloutError  # noqa: E402
from grpo_doctor_trainer.flags import parse  # noqa: E402
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer  # noqa: E402
from grpo_doctor_trainer.rollout.vllm import requests  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.enginelog import (  # noqa: E402
    console_to_file,
    explained,
    failure_message,
)
from grpo_doctor_trainer.rollout.vllm.groups import EngineGroup, seeded  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.leftovers import (  # noqa: E402
    remove_for_rank,
    remove_of_servers,
)
from grpo_doctor_trainer.rollout.vllm.loading import _check  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.options import (  # noqa: E402
    engine_options,
    longest_sequence,
)
from grpo_doctor_trainer.rollout.vllm.patience import Patience  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.starting import (  # noqa: E402
    cache_bytes,
    require_vllm,
    watch_steps,
)
from grpo_doctor_trainer.rollout.vllm.statistics import EngineStatistics  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.weights import (  # noqa: E402
    adapter_weights,
    policy_weights,
    stream_weights,
)

COLOCATED = ("--use_vllm", "true")
CPU = torch.device("cpu")


def config(*flags: str, ranks: int = 2) -> Any:
    return parse([*COLOCATED, *flags], ranks)


@pytest.mark.parametrize(
    ("flags", "ranks", "said"),
    [
        (("--vllm_tensor_parallel_size", "3"), 4, "valid values here: 1, 2, 4"),
        (("--vllm_gpu_memory_utilization", "1.5"), 2, "at most 1"),
        (("--sleep_level", "3"), 2, "0, 1 or 2"),
        (("--vllm_max_model_len", "8"), 2, "raise it to 2056"),
        (("--vllm_enable_lora", "true"), 2, "--train_type lora"),
        (
            ("--vllm_enable_lora", "true", "--train_type", "lora", "--lora_rank", "32"),
            2,
            "raise --vllm_max_lora_rank to 32",
        ),
        (
            ("--vllm_enable_lora", "true", "--train_type", "lora", "--sleep_level", "2"),
            2,
            "use --sleep_level 1",
        ),
    ],
)
def test_options_that_cannot_work_are_refused(
    flags: tuple[str, ...], ranks: int, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        config(*flags, ranks=ranks)


def test_without_vllm_its_options_are_not_looked_at() -> None:
    assert parse(["--sleep_level", "3"], 2).sleep_level == 3


def test_the_options_become_those_of_the_engine() -> None:
    options = engine_options(
        config("--vllm_tensor_parallel_size", "2", "--vllm_max_num_seqs", "7"),
        model="folder", context=None, cache_bytes=None,
    )  # fmt: skip
    assert options["tensor_parallel_size"] == 2
    assert options["max_num_seqs"] == 7
    assert options["load_format"] == "dummy"
    assert not options["enforce_eager"]
    assert not options["enable_sleep_mode"]
    assert "kv_cache_memory_bytes" not in options
    assert "enable_lora" not in options


def test_an_engine_decodes_a_whole_rollout_at_once_unless_told_otherwise() -> None:
    chosen = config("--vllm_tensor_parallel_size", "2", "--per_device_train_batch_size", "32")
    assert engine_options(chosen, model="", context=None, cache_bytes=5)["max_num_seqs"] == 64


def test_adapters_alone_need_the_base_from_disk_and_a_rank_that_vllm_has() -> None:
    chosen = config(
        "--train_type", "lora", "--vllm_enable_lora", "true", "--vllm_max_lora_rank", "20"
    )
    options = engine_options(chosen, model="", context=None, cache_bytes=5)
    assert (options["load_format"], options["max_lora_rank"]) == ("auto", 32)
    assert options["enforce_eager"]


def test_the_longest_sequence_is_prompt_and_completion_within_the_model() -> None:
    assert longest_sequence(config(), None) == 2048 + 8
    assert longest_sequence(config(), 1024) == 1024
    assert longest_sequence(config("--vllm_max_model_len", "99"), 1024) == 99


def test_without_a_device_the_cache_is_a_share_of_the_host_divided_by_its_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    ranks: Any = SimpleNamespace(device=CPU, world_size=4)
    size = cache_bytes(config("--vllm_gpu_memory_utilization", "0.5"), ranks)
    assert size == pytest.approx(host / 4, rel=1e-6)
    ranks = SimpleNamespace(device=torch.device("cuda"), world_size=4)
    assert cache_bytes(config(), ranks) is None


def test_memory_that_a_killed_engine_left_goes_and_what_another_has_stays(tmp_path: Path) -> None:
    mine, held = (tmp_path / f"-tp:{number}-[2-3]-cpushm_1" for number in (0, 1))
    others = [tmp_path / "-tp:0-[2-3]-cpushm_0", tmp_path / "-tp:0-[0-1]-cpushm_1"]
    server = tmp_path / "vllm_dist_0a-tp:0-[0-1]-cpushm_0"
    for path in (mine, held, *others, server):
        path.write_bytes(b"x")
    with held.open("r+b") as file, mmap.mmap(file.fileno(), 1):
        remove_for_rank(2, 2, 1, tmp_path)
    assert not mine.exists()
    assert held.exists()
    assert all(path.exists() for path in others)
    remove_of_servers(tmp_path)
    assert not server.exists()


def test_what_is_missing_is_said_before_the_engine_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    with pytest.raises(ConfigError, match="no sleep mode; use --sleep_level 0"):
        require_vllm(config("--sleep_level", "1"), CPU)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "vllm" or None)
    with pytest.raises(RolloutError, match="import torchvision, which is not installed"):
        require_vllm(config("--model", "embedded-vl"), CPU, with_images=True)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(RolloutError, match="pip install"):
        require_vllm(config(), CPU)


# -- weights


def adapted() -> Any:
    torch.manual_seed(1)
    adapters = peft.LoraConfig(
        r=8, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    policy = peft.get_peft_model(tiny_model(tiny_tokenizer()), adapters)
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    return policy


def engine_of(module: Any) -> Any:
    return SimpleNamespace(module=module, zero_stage=None)


def options_for_weights(train_type: str, parts: int | None = None) -> Any:
    return SimpleNamespace(train_type=train_type, move_model_batches=parts)


@pytest.mark.parametrize("parts", [None, 1, 3, 1000])
def test_weights_come_under_their_own_names_in_parts(parts: int | None) -> None:
    model = tiny_model(tiny_tokenizer())
    found = list(policy_weights(engine_of(model), options_for_weights("full", parts)))
    assert 1 <= len(found) <= (parts or 1)
    if parts == 3:
        assert len(found) == 3
    assert {name for part in found for name, _ in part} == set(model.state_dict())


def test_merged_weights_give_what_adapters_give_and_leave_the_policy_alone() -> None:
    policy = adapted()
    before = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
    merged = tiny_model(tiny_tokenizer())
    merged.load_state_dict(dict(stream_weights(engine_of(policy), options_for_weights("lora"))))
    tokens = torch.arange(40).view(2, 20)
    with torch.no_grad():
        torch.testing.assert_close(merged(tokens).logits, policy(tokens).logits)
        plain = tiny_model(tiny_tokenizer())(tokens).logits
    assert not torch.allclose(plain, policy(tokens).logits, atol=1e-2)
    assert all(weight.equal(before[name]) for name, weight in policy.named_parameters())


def test_merged_weights_are_those_of_pefts_own_merge() -> None:
    policy = adapted()
    mine = dict(stream_weights(engine_of(policy), options_for_weights("lora")))
    theirs = policy.merge_and_unload().state_dict()
    assert mine.keys() == theirs.keys()
    assert all(mine[name].equal(theirs[name]) for name in mine)


def test_a_tied_head_comes_under_both_names() -> None:
    from transformers import Qwen2ForCausalLM

    settings = tiny_model(tiny_tokenizer()).config
    settings.tie_word_embeddings = True
    found = dict(stream_weights(engine_of(Qwen2ForCausalLM(settings)), options_for_weights("full")))
    assert found["lm_head.weight"].equal(found["model.embed_tokens.weight"])


def test_adapters_come_under_pefts_names_and_as_copies() -> None:
    policy = adapted()
    found = adapter_weights(engine_of(policy), options_for_weights("lora"))
    assert found.keys() == peft.get_peft_model_state_dict(policy).keys()
    assert (
        adapter_weights(engine_of(tiny_model(tiny_tokenizer())), options_for_weights("full")) == {}
    )


def test_an_engine_that_did_not_take_the_weights_is_found_out() -> None:
    model = torch.nn.LayerNorm(4)
    names = {"weight", "bias"}
    good = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    _check(model, names, good)
    with pytest.raises(RolloutError, match="other values in weight"):
        _check(model, names, good | {"weight": torch.zeros(4)})
    with pytest.raises(RolloutError, match="sent nothing for bias"):
        _check(model, {"weight"}, good)


def test_a_step_of_the_optimizer_is_noticed_below_its_wrapper() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    engine: Any = SimpleNamespace(optimizer=SimpleNamespace(optimizer=optimizer))
    seen: list[int] = []
    watch_steps(engine, lambda: seen.append(1))
    optimizer.step()
    assert seen == [1]


# -- requests and outputs


def prompts(*lines: list[int]) -> Any:
    from grpo_doctor_trainer.data.batch import PromptBatch

    longest = max(map(len, lines))
    tokens = torch.tensor([[0] * (longest - len(line)) + line for line in lines])
    mask = torch.tensor([[0] * (longest - len(line)) + [1] * len(line) for line in lines])
    return PromptBatch([], [f"text {line}" for line in lines], tokens, mask)


def test_requests_are_the_prompts_without_padding() -> None:
    assert requests.as_requests(prompts([5, 6, 7], [8])) == [
        {"prompt_token_ids": [5, 6, 7]},
        {"prompt_token_ids": [8]},
    ]


def test_a_prompt_with_pictures_goes_as_text() -> None:
    import dataclasses

    picture: Any = object()
    batch = dataclasses.replace(prompts([5], [6]), pictures=[[picture], []])
    assert requests.as_requests(batch) == [
        {"prompt": "text [5]", "multi_modal_data": {"image": [picture]}},
        {"prompt_token_ids": [6]},
    ]


def test_a_prompt_that_leaves_no_room_is_refused_before_generation() -> None:
    batch = prompts([1] * 30)
    requests.check_length(batch, config(), 38)
    with pytest.raises(RolloutError, match=r"30 tokens .* raise that to 38 .* --max_length to 29"):
        requests.check_length(batch, config(), 37)


def test_sampling_is_the_trainers() -> None:
    loaded: Any = SimpleNamespace(end_tokens=(3, 4), vision=None)
    found = requests.sampling_options(
        config("--top_p", "0.9", "--temperature", "0.7", "--repetition_penalty", "1.1"), loaded
    )
    assert (found["top_k"], found["top_p"], found["temperature"]) == (0, 0.9, 0.7)
    assert found["repetition_penalty"] == 1.1
    assert (found["stop_token_ids"], found["max_tokens"]) == ([3, 4], 8)
    assert requests.sampling_options(config("--top_k", "5"), loaded)["top_k"] == 5


def output(tokens: list[int], reason: str = "stop") -> Any:
    made = SimpleNamespace(
        token_ids=tokens,
        finish_reason=reason,
        logprobs=[{token: SimpleNamespace(logprob=-float(token))} for token in tokens],
    )
    return SimpleNamespace(outputs=[made], prompt_token_ids=[1, 2])


def test_outputs_stand_behind_their_prompts_padded_on_the_right() -> None:
    sampled = [requests.read_output(output(tokens)) for tokens in ([7, 8, 3], [3])]
    made = requests.as_completions(prompts([1, 2], [9]), sampled, 0, CPU)
    assert made.tokens.completion_tokens.tolist() == [[7, 8, 3], [3, 0, 0]]
    assert made.tokens.completion_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert made.tokens.prompt_tokens.tolist() == [[1, 2], [0, 9]]
    assert made.logprobs is not None
    assert made.logprobs.tolist() == [[-7, -8, -3], [-3, 0, 0]]


def test_a_request_that_the_engine_gave_up_is_an_error() -> None:
    with pytest.raises(RolloutError, match="gave up a completion after 1 tokens"):
        requests.read_output(output([7], "abort"))


def test_prompts_that_the_engine_reads_in_another_way_are_an_error() -> None:
    sampled = [requests.read_output(output([7]))]
    requests.check_read(prompts([1, 2]), sampled)
    with pytest.raises(RolloutError, match="as 2 tokens and the trainer as 3"):
        requests.check_read(prompts([1, 2, 3]), sampled)


def test_a_seed_repeats_and_leaves_the_generators_as_they_were() -> None:
    import random

    import numpy as np

    def draw() -> list[float]:
        return [float(torch.rand(())), random.random(), np.random.rand()]

    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    with seeded(11, CPU):
        first = draw()
    assert torch.random.get_rng_state().equal(state)
    with seeded(11, CPU):
        assert draw() == first
    with seeded(12, CPU):
        assert draw() != first


def test_a_rank_alone_shares_with_nobody_and_draws_a_seed_each_time() -> None:
    ranks: Any = SimpleNamespace(rank=3, world_size=4)
    group = EngineGroup(1, ranks)
    one, two = group.share(["a", "b"]), group.share(["a", "b"])
    assert one[:2] == (["a", "b"], slice(0, 2))
    assert one[2] != two[2]


# -- statistics


def test_statistics_of_a_rollout_and_nothing_left_for_the_next() -> None:
    statistics = EngineStatistics()
    for running, waiting, usage in ((4, 2, 0.25), (2, 0, 0.5)):
        scheduler = SimpleNamespace(
            num_running_reqs=running, num_waiting_reqs=waiting, num_skipped_waiting_reqs=0,
            kv_cache_usage=usage, prefix_cache_stats=SimpleNamespace(queries=10, hits=4),
        )  # fmt: skip
        statistics.record(scheduler, SimpleNamespace(num_preempted_reqs=1), engine_idx=0)
    found = statistics.totals([3, 4], [1, 5])
    assert found["running_requests_peak"] == 4
    assert found["running_requests_mean"] == 3
    assert found["waiting_requests_mean"] == 1
    assert found["kv_cache_peak_pct"] == 50
    assert found["preemptions"] == 2
    assert (found["prompt_tokens"], found["generated_tokens"]) == (7, 6)
    assert (found["prefix_cache_queried_tokens"], found["prefix_cache_hit_tokens"]) == (20, 8)
    assert found["completions_of_1_to_1_tokens"] == 1
    assert found["completions_of_5_to_8_tokens"] == 1
    assert found["completions_of_3_to_4_tokens"] == 0
    statistics.finish([3], [1])
    assert statistics.totals([], [])["steps"] == 0


# -- failures and waiting


@pytest.mark.parametrize(
    ("error", "todo"),
    [
        (ValueError("No available memory for the cache blocks."), "raise --vllm_gpu_memory_util"),
        (ValueError("memory on startup is less than desired GPU memory"), "lower --vllm_gpu_mem"),
        (ValueError("User-specified max_model_len (9) is greater"), "lower --vllm_max_model_len"),
        (RuntimeError("CUDA out of memory. Tried"), "--vllm_max_num_seqs"),
        (ValueError("heads must be divisible by tensor parallel size (2)."), "tensor_parallel"),
    ],
)
def test_a_failure_names_its_reason_the_log_and_the_flag(error: Exception, todo: str) -> None:
    message = failure_message("starting", error, Path("x/rank.log"))
    assert str(error).rstrip(".") in message
    assert todo in message
    assert "x/rank.log" in message


def test_the_traceback_of_a_failure_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "rank.log"
    with (
        pytest.raises(RolloutError, match="while testing: KeyError: 'no'"),
        explained("testing", log),
    ):
        raise KeyError("no")
    assert "Traceback" in log.read_text()


def test_the_console_goes_to_the_log_and_comes_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "rank.log"
    with console_to_file(log):
        os.write(1, b"from below\n")
    os.write(1, b"afterwards\n")
    assert log.read_text() == "from below\n"
    assert capfd.readouterr().out == "afterwards\n"


def test_patience_ends_a_wait_and_is_renewed_by_each_answer(tmp_path: Path) -> None:
    patience = Patience(0.3, tmp_path / "rank.log")
    with patience.waiting("testing") as heard:
        for _ in range(4):
            time.sleep(0.15)
            heard()
    started = time.monotonic()
    with (
        pytest.raises(RolloutError, match=r"0.3 s while testing .*rank\.log"),
        patience.waiting("testing"),
    ):
        time.sleep(5)
    assert time.monotonic() - started < 2


def test_a_wait_that_never_returns_to_python_ends_the_process(tmp_path: Path) -> None:
    # With its signal blocked, the main thread is as deaf as in a kernel or a collective.
    program = f"""
import signal, time
from pathlib import Path
from grpo_doctor_trainer.rollout.vllm import patience
patience._GRACE_S = 0.3
with patience.Patience(0.3, Path({str(tmp_path)!r})).waiting("testing"):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(50)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "error: vLLM did not answer for 0.3 s while testing" in done.stderr
