"""The rollout server as a user runs it: its own process on vLLM's CPU build, trainers beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("vllm", reason="needs vLLM, any build")
pytest.importorskip("deepspeed", reason="needs the trainer extra")

from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer
from grpo_doctor_trainer.rollout.vllm.client import ServerClient
from grpo_doctor_trainer.rollout.vllm.collective import CollectiveTransfer
from grpo_doctor_trainer.rollout.vllm.transfer import FileTransfer, WeightTransfer
from grpo_doctor_trainer.serve.protocol import GenerateRequest, Prompt, Sampling
from tests.ports import free_port
from tests.rollout_server import (
    SHARED_MEMORY,
    START_S,
    Server,
    engine_memory,
    environment,
    kill_session,
    members,
    started,
)

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]
SMALL = (
    "--per_device_train_batch_size", "16", "--num_generations", "8", "--max_length", "64",
    "--save_steps", "0", "--output_dir", "out",
)  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = started(tmp_path_factory.mktemp("server"))
    try:
        ServerClient("127.0.0.1", running.port, 60).wait_until_ready(START_S, lambda _: None)
        yield running
    finally:
        kill_session(running.process)


def changed_model(scale: float) -> Any:
    """The embedded model with other weights than the server was started with."""
    model = tiny_model(tiny_tokenizer())
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(scale)
    return model


def weight_files(client: ServerClient) -> list[Path]:
    """What this server was sent and has not taken yet; others may serve beside it."""
    folders = [Path(folder.path) for folder in client.health().folders]
    return [path for folder in folders for path in folder.glob("*.safetensors")]


def by_files(client: ServerClient) -> WeightTransfer:
    return FileTransfer(client, client.health().folders)


def by_gloo(client: ServerClient) -> WeightTransfer:
    return CollectiveTransfer(client, client.health(), torch.device("cpu"), 60, "gloo")


@pytest.mark.parametrize(("open_transfer", "scale"), [(by_files, 1.3), (by_gloo, 1.6)])
def test_the_server_samples_from_the_weights_it_was_sent(
    server: Server, open_transfer: Any, scale: float
) -> None:
    check_weights(ServerClient("127.0.0.1", server.port, 60), open_transfer, scale)


def check_weights(client: ServerClient, open_transfer: Any, scale: float) -> None:
    """Sends weights and compares what is sampled from them with the trainer's own log-probs."""
    model = changed_model(scale)
    weights = list(model.state_dict().items())
    transfer = open_transfer(client)
    transfer.begin(f"test-{scale}")
    transfer.add(weights[:5])
    transfer.add(weights[5:])
    transfer.finish()  # compares the signatures
    transfer.close()
    assert not weight_files(client)

    prompts = [[5, 6, 7, 8, 9] * 3, [11, 3, 20]]
    ask = [Prompt(1, prompt) for prompt in prompts]
    greedy = Sampling(8, 0.0, 1.0, -1, 1.0, ())
    answer = client.generate(GenerateRequest(f"test-{scale}", ask, greedy), lambda _: None)
    for prompt, completion in zip(prompts, answer.completions, strict=True):
        expected = model.generate(
            torch.tensor([prompt]), max_new_tokens=8, do_sample=False, eos_token_id=None,
            pad_token_id=0,
        )  # fmt: skip
        assert completion.tokens == expected[0, len(prompt) :].tolist()

    temperature = 0.7
    sampling = Sampling(8, temperature, 1.0, -1, 1.0, ())
    many = [Prompt(12, prompts[0])]
    answer = client.generate(GenerateRequest(f"test-{scale}", many, sampling, 1), lambda _: None)
    tokens = torch.tensor([completion.tokens for completion in answer.completions])
    sequences = torch.cat([torch.tensor(prompts[0]).repeat(12, 1), tokens], dim=1)
    with torch.no_grad():
        logits = model(input_ids=sequences).logits[:, len(prompts[0]) - 1 : -1]
    logprobs = (logits / temperature).log_softmax(dim=2)
    own = logprobs.gather(2, tokens.unsqueeze(2)).squeeze(2)
    engines = torch.tensor([completion.logprobs for completion in answer.completions])
    assert (own - engines).abs().max() < 1e-3
    assert len({tuple(completion.tokens) for completion in answer.completions}) > 6
    assert answer.statistics.running_peak == 12
    assert {completion.prompt_tokens for completion in answer.completions} == {15}
    assert 0 < answer.statistics.kv_cache_peak < 1


def test_two_ranks_train_with_the_server(server: Server, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
            "-m", "grpo_doctor_trainer", *SMALL, *server.flags, "--deepspeed", "zero3",
            "--move_model_batches", "3", "--max_steps", "3",
        ],
        env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=500,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert f"vLLM server http://127.0.0.1:{server.port}" in done.stdout
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3]
    for rank in (0, 1):
        recorded = b"".join(
            path.read_bytes() for path in (tmp_path / "run" / "ranks").glob(f"{rank:05d}*.spans")
        )
        for name in (b"sync/gather", b"sync/agree", b"rollout/generate", b"rollout/agree"):
            assert name in recorded
        assert (b"engine/running_requests_peak" in recorded) == (rank == 0)
    assert not weight_files(ServerClient("127.0.0.1", server.port, 60))


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


def test_a_server_of_two_workers_serves_and_leaves_nothing(tmp_path: Path) -> None:
    before = engine_memory()
    server = started(tmp_path, "--tensor_parallel_size", "2")
    try:
        client = ServerClient("127.0.0.1", server.port, 60)
        client.wait_until_ready(START_S, lambda _: None)
        check_weights(client, by_files, 1.3)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(180) == 128 + signal.SIGTERM
        ends = time.monotonic() + 60  # Python's own helper process notices that it is alone
        while members(server.process.pid):
            assert time.monotonic() < ends, members(server.process.pid)
            time.sleep(0.1)
        assert engine_memory() <= before
        assert not list(SHARED_MEMORY.glob(f"grpo-doctor-weights-{server.process.pid}-*"))
        assert "Traceback" not in (tmp_path / "server.txt").read_text()
    finally:
        kill_session(server.process)


def test_a_killed_server_ends_every_rank_with_one_message(tmp_path: Path) -> None:
    before = set(SHARED_MEMORY.glob("grpo-doctor-weights-*"))
    server = started(tmp_path)
    jobs = ranks(  # they wait for the server; LoRA: what is sent is merged
        tmp_path, *server.flags, "--train_type", "lora", "--deepspeed", "none",
        "--max_completion_length", "1500", "--max_steps", "50",
    )  # fmt: skip
    try:
        client = ServerClient("127.0.0.1", server.port, 60)
        client.wait_until_ready(START_S, lambda _: None)
        ends = time.monotonic() + 120
        while client._ask("GET", "/statistics", b"", dict, 10)["running"] < 32:
            assert time.monotonic() < ends
            time.sleep(0.1)
        server.process.kill()
        killed = time.monotonic()
        outputs = [job.communicate(timeout=120) for job in jobs]
        assert time.monotonic() - killed < 60  # seconds, on a busy machine too
        for job, (_, errors) in zip(jobs, outputs, strict=True):
            assert job.returncode == 2, errors
            assert f"error: the vLLM server at http://127.0.0.1:{server.port} is gone" in errors
            assert f"Its log: {server.log}" in errors
            assert "grpo_doctor_trainer/" not in errors  # no traceback of ours
            assert not members(job.pid)
        server.process.wait(10)
        assert not members(server.process.pid)
        assert set(SHARED_MEMORY.glob("grpo-doctor-weights-*")) <= before
    finally:
        kill_session(server.process)
        for job in jobs:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)


# The last test of the module's server.
def test_ctrl_c_ends_the_server(server: Server) -> None:
    folders = [
        Path(folder.path) for folder in ServerClient("127.0.0.1", server.port, 9).health().folders
    ]
    assert all(folder.is_dir() for folder in folders)
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(180) == 128 + signal.SIGINT
    assert not members(server.process.pid)
    assert not any(folder.exists() for folder in folders)
    output = (server.folder / "server.txt").read_text()
    assert output.endswith("stopped by signal 2\n")
    assert "Traceback" not in output
