"""Metric rows in pasted text are judged by the rules of `report`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from grpo_doctor.diagnose import answer

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB."


def rows(kl: Callable[[int], float]) -> str:
    """Forty rows of TRL's log, as a user pastes them."""
    return "\n".join(
        str({"loss": step % 7 / 100, "grad_norm": 0.5 + step % 3 / 10, "kl": kl(step),
             "reward": 0.4 + step % 5 / 50, "reward_std": 0.2, "epoch": step / 100})
        for step in range(40)
    )  # fmt: skip


def test_rows_that_show_a_problem_have_the_rule_as_cause() -> None:
    found = answer(rows(lambda step: 0.01 * 1.3**step))
    assert found.cause is not None
    assert found.cause.name == "GD055"
    assert found.cause.cls == "quality"
    assert "KL" in found.cause.says
    assert found.cause.fix


def test_what_ended_the_run_comes_first() -> None:
    found = answer(f"{rows(lambda step: 0.01 * 1.3**step)}\n{OOM}")
    assert found.cause is not None
    assert found.cause.cls == "oom"
    assert [each.name for each in found.others] == ["GD055"]


@pytest.mark.parametrize(
    "text",
    [
        rows(lambda step: 0.01 + step % 4 / 1000),
        "what does {'loss': mean in the log?",
        "{'actor_rollout_ref': {'rollout': {'name': 'vllm'}}}\nstep:1 - critic/score/mean:0.4",
    ],
)
def test_rows_that_show_no_problem_have_no_cause(text: str) -> None:
    found = answer(text)
    assert (found.kinds, found.cause) == (["metric rows"], None)


@pytest.mark.parametrize(
    ("text", "next_step"),
    [
        ("GRPO hangs after the first rollout", "while it hangs: the stacks of all ranks"),
        ("训练卡住了", "while it hangs"),
        ("grad_norm is NaN with 4 GPUs, not with one", "around the first bad step"),
        ("one rollout takes 20 minutes, why is it so slow?", "where a step's time goes"),
        ("{'loss': 0.1, 'reward': 0.5}", "more rows, in a file"),
        ("swift rlhf --rlhf_type grpo --model m", "grpo-doctor check -- COMMAND"),
        ("what is a rollout?", "the whole log of the process that failed first"),
    ],
)
def test_what_to_look_at_next_is_what_the_text_asks_for(text: str, next_step: str) -> None:
    found = answer(text)
    assert found.cause is None
    assert next_step in found.next_step
