"""What stacks mean: of torch, the training frameworks and people's own names."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.hang.model.process.stacks import Place, awaited, place_of
from grpo_doctor_probes.evidence import Blocked, Frame, PythonThread
from tests.evidence import frames

LIB = "/usr/lib/python3.11"
SITE = "/opt/env/lib/python3.12/site-packages"


def place(*lines: str) -> Place:
    return place_of(PythonThread(1, "MainThread", frames(*lines)))


@pytest.mark.parametrize(
    ("call", "lines"),
    [
        ("p2p", (f"recv {SITE}/torch/distributed/distributed_c10d.py:1",)),
        ("p2p", (f"send_object_list {SITE}/torch/distributed/distributed_c10d.py:1",)),
        ("store", (f"init_process_group {SITE}/torch/distributed/distributed_c10d.py:1",)),
        ("collective", (f"barrier {SITE}/torch/distributed/distributed_c10d.py:1",)),
        ("loader", (f"_try_get_data {SITE}/torch/utils/data/dataloader.py:1",)),
        ("child", (f"communicate {LIB}/subprocess.py:1",)),
        ("pool", (f"wait {LIB}/threading.py:1", f"Pool.get {LIB}/multiprocessing/pool.py:2")),
        ("http", (f"readinto {LIB}/socket.py:1", f"send {SITE}/requests/sessions.py:2")),
        ("asyncio", (f"select {LIB}/selectors.py:1", f"run {LIB}/asyncio/runners.py:2")),
        ("queue", (f"get {LIB}/queue.py:1",)),
        ("lock", (f"join {LIB}/threading.py:1",)),
    ],
)  # fmt: skip
def test_library_calls(call: str, lines: tuple[str, ...]) -> None:
    assert place(*lines, "main /home/me/train.py:9").call == call


@pytest.mark.parametrize(
    ("purpose", "phase", "line"),
    [
        ("reward", "reward", f"_calculate_rewards {SITE}/trl/trainer/grpo_trainer.py:1"),
        ("reward", "reward", "score_answers /home/me/judge_client.py:1"),
        ("reward", "reward", f"compute_score {SITE}/verl/utils/reward_score/math.py:1"),
        ("weight-sync", "sync", f"sync_weights {SITE}/trl/generation/vllm_generation.py:1"),
        ("weight-sync", "sync", f"update_named_param {SITE}/trl/extras/vllm_client.py:1"),
        ("weight-sync", "sync", f"_move_model_to_vllm {SITE}/swift/grpo_trainer.py:1"),
        ("generate", "rollout", f"generate {SITE}/vllm/entrypoints/llm.py:1"),
        ("generate", "rollout", "step /home/me/vllm/vllm/v1/engine/core.py:1"),
        ("generate", "rollout", f"_sample {SITE}/transformers/generation/utils.py:1"),
        ("checkpoint", "checkpoint", f"_save {SITE}/torch/serialization.py:1"),
        ("checkpoint", "checkpoint", f"_save_checkpoint {SITE}/transformers/trainer.py:1"),
        ("compile", None, f"codegen {SITE}/torch/_inductor/graph.py:1"),
        ("compile", None, f"make_ir {SITE}/triton/compiler/compiler.py:1"),
        ("download", "init", f"http_get {SITE}/huggingface_hub/file_download.py:1"),
        ("load", "init", f"from_pretrained {SITE}/transformers/modeling_utils.py:1"),
        ("evaluate", "eval", "evaluate /home/me/train.py:1"),
        ("dataload", "dataload", "next_batch /home/me/train.py:1"),
        ("logprob", "logprob", f"_get_per_token_logps {SITE}/trl/trainer/grpo_trainer.py:1"),
        ("train", "train", f"training_step {SITE}/transformers/trainer.py:1"),
    ],
)  # fmt: skip
def test_purposes(purpose: str, phase: str | None, line: str) -> None:
    status = place(f"inner {LIB}/json/decoder.py:1", line, "main /home/me/run.py:3")
    assert (status.purpose, status.phase) == (purpose, phase)


@pytest.mark.parametrize(
    "line",
    [
        "all_reduce /opt/envs/vllm/lib/python3.12/site-packages/torch/distributed/c10d.py:1",
        "wait /home/me/rewards/.venv/lib/python3.12/threading.py:1",
        "score /opt/envs/verl/lib/python3.12/site-packages/sklearn/base.py:1",
        "step /home/me/vllm/train.py:1",
        "step /home/me/rewards/src/train.py:1",
        "step /home/me/math-verifier/src/train.py:1",
    ],
)
def test_the_name_of_an_environment_or_a_checkout_says_nothing(line: str) -> None:
    assert place(line, "main /home/me/run.py:3").purpose is None


def test_a_function_that_generates_and_scores_is_in_its_rewards_while_it_scores() -> None:
    score, rollout = "score /home/me/r.py:1", "rollout /home/me/t.py:3"
    assert (place(score, rollout).long_work, place(rollout, score).long_work) == (None, "generate")


POOL = f"{LIB}/concurrent/futures/thread.py"


# The thread that the main one waits for.

SCORES = frames("score /home/me/rewards.py:3", "run /home/me/t.py:9")
LOGS = frames("flush /home/me/logs.py:3", "run /home/me/logs.py:9")
IDLE = frames(f"wait {LIB}/threading.py:327", f"run {LIB}/threading.py:980")


def beside(
    tid: int, stack: tuple[Frame, ...], *, pool: bool = False, name: str = "t"
) -> PythonThread:
    return PythonThread(tid, name, (*stack, *(frames(f"_worker {POOL}:83") if pool else ())))


QUEUE, JOIN, ACQUIRE = (
    (f"get {LIB}/queue.py:171",),
    (f"join {LIB}/threading.py:1119",),
    (f"acquire {LIB}/threading.py:90",),
)
IN_POOL, IN_LOOP = (f"result {LIB}/concurrent/futures/_base.py:1",), (f"run {LIB}/asyncio/r.py:2",)


@pytest.mark.parametrize(
    ("main", "others", "blocked", "tid"),
    [
        # Of a pool any with a task, one that is blocked first.
        (IN_POOL, (beside(3, SCORES, pool=True), beside(2, SCORES, pool=True)), (), 2),
        (
            IN_POOL,
            (beside(3, SCORES, pool=True), beside(2, SCORES, pool=True)),
            ((3, "socket-receive"),),
            3,
        ),
        (IN_POOL, (beside(3, SCORES, pool=True), beside(2, SCORES, pool=True)), ((3, "poll"),), 2),
        (IN_POOL, (beside(2, (), pool=True), beside(3, SCORES)), (), None),
        (IN_LOOP, (beside(2, SCORES, pool=True),), (), 2),
        (IN_LOOP, (beside(2, SCORES),), (), None),
        # A join means the only one in the user's code.
        (JOIN, (beside(2, LOGS),), (), 2),
        (JOIN, (beside(2, LOGS), beside(3, IDLE)), (), 2),
        (JOIN, (beside(2, LOGS), beside(3, SCORES)), (), None),
        (JOIN, (beside(2, LOGS, name="heartbeat"),), (), None),
        (JOIN, (beside(2, IDLE),), (), None),
        # A queue or a lock as well, if that is part of a step.
        (QUEUE, (beside(2, SCORES),), (), 2),
        (QUEUE, (beside(2, LOGS),), (), None),
        (QUEUE, (beside(2, LOGS), beside(3, SCORES)), (), 3),
        (ACQUIRE, (beside(2, SCORES),), (), 2),
        # Or the only one that is blocked.
        (QUEUE, (beside(2, LOGS), beside(3, IDLE)), ((3, "pipe-write"),), 3),
        (QUEUE, (beside(2, LOGS), beside(3, SCORES)), ((2, "file"),), 2),
        (QUEUE, (beside(2, LOGS), beside(3, SCORES)), ((2, "futex"),), 3),
        (QUEUE, (beside(2, LOGS), beside(3, SCORES)), ((2, "file"), (3, "file")), 3),
        ((), (beside(2, SCORES),), ((2, "file"),), None),
        ((f"readinto {LIB}/socket.py:1",), (beside(2, SCORES, pool=True),), (), None),
    ],
)
def test_the_thread_that_a_main_thread_waits_for(
    main: tuple[str, ...],
    others: tuple[PythonThread, ...],
    blocked: tuple[tuple[int, Any], ...],
    tid: int | None,
) -> None:
    rows = [Blocked(1, thread, kind) for thread, kind in blocked]
    needed = awaited(place(*main, "main /home/me/t.py:9"), others, rows)
    assert (needed.tid if needed is not None else None) == tid
