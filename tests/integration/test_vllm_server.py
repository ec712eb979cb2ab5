"""Rollouts with vLLM's own server as a user runs it: vLLM's CPU build, and real trainers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import torch
from safetensors.torch import save_file

pytest.importorskip("vllm", reason="needs vLLM, any build")
pytest.importorskip("deepspeed", reason="needs the trainer extra")

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer
from grpo_doctor_trainer.rollout.vllm.server import VllmServer
from tests.ports import free_port
from tests.rollout_server import (
    SHARED_MEMORY,
    START_S,
    Server,
    environment,
    kill_session,
    members,
    run_command,
    started,
)

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]
SMALL = (
    "--per_device_train_batch_size", "16", "--num_generations", "8", "--max_length", "64",
    "--save_steps", "0", "--output_dir", "out",
)  # fmt: skip
GREEDY: dict[str, Any] = {
    "n": 1, "max_tokens": 8, "temperature": 0.0, "logprobs": 0, "ignore_eos": True,
    "output_kind": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = started(tmp_path_factory.mktemp("server"))
    try:
        client(running).wait_until_ready(START_S, lambda _: None)
        yield running
    finally:
        kill_session(running.process)


def client(server: Server, patience_s: float = 60) -> VllmServer:
    return VllmServer(f"http://127.0.0.1:{server.port}", server.command, patience_s)


def changed_model(scale: float) -> Any:
    """The embedded model with other weights than the server was started with."""
    model = tiny_model(tiny_tokenizer())
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(scale)
    return model


def test_the_server_samples_from_the_weights_it_was_sent(server: Server, tmp_path: Path) -> None:
    check_weights(client(server), tmp_path, 1.3)


def check_weights(server: VllmServer, folder: Path, scale: float) -> None:
    """Sends weights and compares what is sampled from them with the trainer's own log-probs."""
    model = changed_model(scale)
    weights = list(model.state_dict().items())
    save_file(dict(weights[:5]), folder / "part-0.safetensors")
    save_file(dict(weights[5:]), folder / "part-1.safetensors")
    server.load(str(folder), f"test-{scale}")

    prompts = [[5, 6, 7, 8, 9] * 3, [11, 3, 20]]
    ask = [{"token_ids": prompt, "sampling_params": GREEDY} for prompt in prompts]
    completions = server.generate(ask, f"test-{scale}")
    for prompt, completion in zip(prompts, completions, strict=True):
        expected = model.generate(
            torch.tensor([prompt]), max_new_tokens=8, do_sample=False, eos_token_id=None,
            pad_token_id=0,
        )  # fmt: skip
        assert completion.tokens == expected[0, len(prompt) :].tolist()

    temperature = 0.7
    sampling = GREEDY | {"temperature": temperature, "n": 12, "seed": 1}
    many = [{"token_ids": prompts[0], "sampling_params": sampling}]
    completions = server.generate(many, f"test-{scale}")
    tokens = torch.tensor([completion.tokens for completion in completions])
    sequences = torch.cat([torch.tensor(prompts[0]).repeat(12, 1), tokens], dim=1)
    with torch.no_grad():
        logits = model(input_ids=sequences).logits[:, len(prompts[0]) - 1 : -1]
    logprobs = (logits / temperature).log_softmax(dim=2)
    own = logprobs.gather(2, tokens.unsqueeze(2)).squeeze(2)
    engines = torch.tensor([completion.logprobs for completion in completions])
    assert (own - engines).abs().max() < 1e-3
    assert len({tuple(completion.tokens) for completion in completions}) > 6
    assert {completion.prompt_tokens for completion in completions} == {15}

    with pytest.raises(RolloutError, match=f"has weights test-{scale} and not mine"):
        server.generate(ask, "mine")


def test_two_ranks_train_with_the_server(server: Server, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
            "-m", "grpo_doctor_trainer", *SMALL, *server.flags, "--deepspeed", "zero3",
            "--move_model_batches", "3", "--max_steps", "3", "--max_completion_length", "600",
        ],
        env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=500,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert f"vLLM server http://127.0.0.1:{server.port}" in done.stdout
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    assert [step["step"] for step in steps] == [1, 2, 3]
    gaps = [step["metrics"]["sampling/sampling_logp_difference/mean"] for step in steps]
    assert max(gaps) < 1e-4
    for rank in (0, 1):
        recorded = b"".join(
            path.read_bytes() for path in (tmp_path / "run" / "ranks").glob(f"{rank:05d}*.spans")
        )
        for name in (b"sync/gather", b"sync/agree", b"rollout/generate", b"rollout/agree"):
            assert name in recorded
    assert not list(SHARED_MEMORY.glob(f"grpo-doctor-weights-*-{server.port}"))


def ranks(folder: Path, *flags: str) -> list[subprocess.Popen[str]]:
    """Two ranks without torchrun, which would end the second as soon as the first has ended."""
    port = str(free_port())
    processes = []
    for rank in ("0", "1"):
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        process = subprocess.Popen(
            [sys.executable, "-m", "grpo_doctor_trainer", *SMALL, *flags],
            env=environment(folder) | variables, cwd=folder, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
    return processes


def test_the_trainer_waits_for_the_server_that_it_says_to_start(tmp_path: Path) -> None:
    port = free_port()
    flags = ("--use_vllm", "true", "--vllm_mode", "server", "--vllm_server_port", str(port))
    shown = tmp_path / "trainer.txt"
    with shown.open("wb") as output:
        job = subprocess.Popen(
            [sys.executable, "-m", "grpo_doctor_trainer", *SMALL, *flags, "--max_steps", "1"],
            env=environment(tmp_path), cwd=tmp_path, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    server = None
    try:
        ends = time.monotonic() + 120
        while not (match := re.search(r"start it: (VLLM_SERVER_DEV_MODE=1 .*)", shown.read_text())):
            assert job.poll() is None, shown.read_text()
            assert time.monotonic() < ends
            time.sleep(0.1)
        server = run_command(match[1], tmp_path, port)
        assert job.wait(START_S) == 0, shown.read_text()
    finally:
        kill_session(job)
        if server is not None:
            kill_session(server.process)


def test_a_killed_server_ends_every_rank_with_one_message(tmp_path: Path) -> None:
    server = started(tmp_path, "--tensor-parallel-size", "2")
    jobs = ranks(  # they wait for the server; LoRA: what is sent is merged
        tmp_path, *server.flags, "--train_type", "lora", "--deepspeed", "none",
        "--max_completion_length", "1500", "--max_steps", "50",
    )  # fmt: skip
    try:
        client(server).wait_until_ready(START_S, lambda _: None)
        ends = time.monotonic() + 120
        metrics = f"http://127.0.0.1:{server.port}/metrics"
        while not re.search(r"num_requests_running\{.* 32\.0", requests.get(metrics).text):
            assert time.monotonic() < ends
            time.sleep(0.1)
        os.killpg(server.process.pid, signal.SIGKILL)
        killed = time.monotonic()
        outputs = [job.communicate(timeout=120) for job in jobs]
        assert time.monotonic() - killed < 60  # seconds, on a busy machine too
        for job, (_, errors) in zip(jobs, outputs, strict=True):
            assert job.returncode == 2, errors
            assert f"error: the vLLM server at http://127.0.0.1:{server.port} is gone" in errors
            assert "start it with: VLLM_SERVER_DEV_MODE=1 " in errors
            assert f"--port {server.port}" in errors
            assert "grpo_doctor_trainer/" not in errors  # no traceback of ours
            assert not members(job.pid)
        assert not list(SHARED_MEMORY.glob(f"grpo-doctor-weights-*-{server.port}"))
    finally:
        kill_session(server.process)
        for job in jobs:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
