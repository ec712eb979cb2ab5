"""What stacks mean: of torch, the training frameworks and people's own names."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.model.process.call_stack import (
    Place,
    is_library,
    place_of,
    works_for_pool,
)
from grpo_doctor_probes.evidence import PythonThread
from tests.evidence import collective, frames

LIB = "/usr/lib/python3.11"
SITE = "/opt/env/lib/python3.12/site-packages"


def place(*lines: str) -> Place:
    return place_of(PythonThread(1, "MainThread", frames(*lines)))


def test_a_collective_and_the_users_own_line() -> None:
    found = place_of(PythonThread(1, "", collective("all_reduce", "update /home/me/train.py:70")))
    assert (found.call, found.operation) == ("collective", "all_reduce")
    assert found.user is not None
    assert found.text() == "all_reduce, train.py:70 in update"


def test_the_outermost_collective_is_the_one_that_was_called() -> None:
    found = place(
        f"all_gather {SITE}/torch/distributed/distributed_c10d.py:1",
        f"all_gather_object {SITE}/torch/distributed/distributed_c10d.py:2",
        "gather_rows /home/me/train.py:3",
    )
    assert found.operation == "all_gather_object"


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
    found = place(f"inner {LIB}/json/decoder.py:1", line, "main /home/me/run.py:3")
    assert (found.purpose, found.phase) == (purpose, phase)


def test_a_librarys_own_words_say_nothing() -> None:
    assert place(f"compile {LIB}/re/__init__.py:1", "run /home/me/t.py:1").purpose is None
    assert place(f"score {SITE}/sklearn/base.py:1", "run /home/me/t.py:1").purpose is None


def test_the_innermost_purpose_comes_first() -> None:
    found = place("save_checkpoint /home/me/t.py:1", "evaluate /home/me/t.py:2")
    assert found.purposes == ("checkpoint", "evaluate")
    assert found.long_work == "checkpoint"


def test_nothing_is_nowhere() -> None:
    assert place_of(None) == Place()
    assert Place().text() == ""


@pytest.mark.parametrize("file", [f"{SITE}/trl/a.py", f"{LIB}/re.py"])
def test_libraries(file: str) -> None:
    assert is_library(frames(f"f {file}:1")[0])
    assert not is_library(frames("f /home/me/libs/train.py:1")[0])


def test_a_function_that_generates_and_scores_does_no_long_work_while_it_scores() -> None:
    scoring = place("score_answers /home/me/r.py:3", "rollout /home/me/t.py:9")
    assert scoring.purposes == ("reward", "generate")
    assert scoring.long_work is None
    loading = place("load_model /home/me/r.py:3", "rollout /home/me/t.py:9")
    assert loading.long_work == "load"
    evaluating = place("score_answers /home/me/r.py:3", "evaluate /home/me/t.py:9")
    assert evaluating.long_work == "evaluate"


POOL = f"{LIB}/concurrent/futures/thread.py"
EVENT = (f"Condition.wait {LIB}/threading.py:327", f"Event.wait {LIB}/threading.py:629")


@pytest.mark.parametrize(
    ("works", "lines"),
    [
        (True, (*EVENT, "judged /home/me/reward.py:8", f"_WorkItem.run {POOL}:58")),
        (True, (f"_WorkItem.run {POOL}:58",)),  # a function in C
        (False, ()),
        (False, (*EVENT, f"get {LIB}/queue.py:171")),
    ],
)
def test_a_pools_thread_works_while_its_task_waits(works: bool, lines: tuple[str, ...]) -> None:
    thread = PythonThread(2, "uvloop_0", frames(*lines, f"_worker {POOL}:83"))
    assert works_for_pool(thread) is works


def test_a_thread_of_no_pool_works_for_none() -> None:
    assert not works_for_pool(PythonThread(2, "", frames("judged /home/me/reward.py:8")))
    assert not works_for_pool(PythonThread(2, "", ()))
