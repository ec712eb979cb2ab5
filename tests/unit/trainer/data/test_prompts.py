"""The order of prompts over rollouts and ranks, and their tokens."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

import pytest
import torch

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.console import set_up_console
from grpo_doctor_trainer.data import prompts
from grpo_doctor_trainer.data.prompts import (
    PromptBatch,
    PromptMaker,
    prompt_limit,
    prompt_loader,
    rollout_keys,
    steps_in,
)
from grpo_doctor_trainer.data.rows import Row
from grpo_doctor_trainer.errors import ConfigError, DatasetError
from grpo_doctor_trainer.model.load import LoadedModel
from grpo_doctor_trainer.model.tiny import tiny_tokenizer
from grpo_doctor_trainer.ranks import Ranks
from grpo_doctor_trainer.rewards.functions import think_then_answer

ROWS = [Row([{"role": "user", "content": "+" * n}], {"number": n}) for n in range(1, 8)]
ALONE = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("cpu"), threads=1)


def rollouts(
    count: int, *, rank: int, ranks: int, per_rank: int, group: int, seed: int = 3
) -> list[list[int]]:
    """Per rollout, the row of each completion of this rank."""
    config = TrainerConfig(per_device_train_batch_size=per_rank, num_generations=group, seed=seed)
    of_rank = dataclasses.replace(ALONE, rank=rank, world_size=ranks)
    keys = itertools.islice(rollout_keys(config, of_rank, 7), count)
    return [[row for row, copies in batch for _ in range(copies)] for batch in keys]


@pytest.mark.parametrize(("ranks", "per_rank", "group"), [(1, 8, 4), (2, 6, 4), (4, 2, 8)])
def test_ranks_share_whole_groups_even_across_their_borders(
    ranks: int, per_rank: int, group: int
) -> None:
    shares = [
        rollouts(6, rank=r, ranks=ranks, per_rank=per_rank, group=group) for r in range(ranks)
    ]
    for number in range(6):
        joined = [row for share in shares for row in share[number]]
        assert len(joined) == ranks * per_rank
        groups = [joined[start : start + group] for start in range(0, len(joined), group)]
        assert all(len(set(members)) == 1 for members in groups)


def test_each_pass_takes_every_row_once_in_another_order() -> None:
    flat = [batch[0] for batch in rollouts(14, rank=0, ranks=1, per_rank=4, group=4)]
    assert sorted(flat[:7]) == sorted(flat[7:]) == list(range(7))
    assert flat[:7] != flat[7:]


def test_order_follows_the_seed() -> None:
    one, same, other = (
        rollouts(8, rank=0, ranks=1, per_rank=4, group=2, seed=seed) for seed in (1, 1, 2)
    )
    assert one == same != other


def batches(workers: int, count: int, **options: int) -> list[PromptBatch]:
    config = dataclasses.replace(
        TrainerConfig(**options),  # type: ignore[arg-type]
        per_device_train_batch_size=6,
        num_generations=3,
        dataloader_num_workers=workers,
    )
    loader = prompt_loader(ROWS, LoadedModel(None, tiny_tokenizer(), None, ()), config, ALONE)
    return list(itertools.islice(loader, count))


def test_batches_are_padded_on_the_left_and_repeat_prompts() -> None:
    tokenizer = tiny_tokenizer()
    for batch in batches(workers=0, count=4):
        assert batch.tokens.shape == batch.mask.shape
        assert len(batch.rows) == len(batch.texts) == len(batch.tokens) == 6
        for text, row, tokens, mask in zip(
            batch.texts, batch.rows, batch.tokens, batch.mask, strict=True
        ):
            assert tokenizer.decode(tokens[mask.bool()]) == text
            assert text == f"<|user|>{'+' * row.columns['number']}<|end|><|assistant|>"
            assert mask.tolist() == sorted(mask.tolist())
            assert set(tokens[~mask.bool()].tolist()) <= {tokenizer.pad_token_id}
        assert batch.texts[0] == batch.texts[2] != batch.texts[3]


def test_workers_change_nothing() -> None:
    alone, helped = batches(workers=0, count=3), batches(workers=1, count=3)
    for left, right in zip(alone, helped, strict=True):
        assert left.texts == right.texts
        assert left.tokens.equal(right.tokens)


def test_a_long_prompt_loses_its_start() -> None:
    prompt = PromptMaker(tiny_tokenizer(), limit=3).make(ROWS[6], copies=2)
    assert prompt.copies == 2
    assert tiny_tokenizer().decode(prompt.tokens) == "+<|end|><|assistant|>"
    assert prompt.cut


def test_prompts_that_lose_their_start_are_counted_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_console(0)
    batches(workers=0, count=8, max_length=5)
    printed = capsys.readouterr().out
    assert printed.count("lost their start") == 1
    assert "of this rollout's prompts are longer than --max_length" in printed


def test_the_completion_has_its_share_of_the_context() -> None:
    config = TrainerConfig(max_length=100, max_completion_length=30)
    assert prompt_limit(config, None) == 100
    assert prompt_limit(config, 200) == 100
    assert prompt_limit(config, 120) == 90
    with pytest.raises(ConfigError, match=r"--max_completion_length 30 .* context of 30 tokens"):
        prompt_limit(config, 30)


@pytest.mark.parametrize(
    ("use_vllm", "own", "context", "limit"),
    [
        (True, 80, 120, 50),
        (True, 80, None, 50),
        (True, 120, 80, 50),
        (False, 80, 120, 90),
        (True, None, 120, 90),
        (True, None, None, 100),
    ],
)
def test_an_engine_may_have_a_smaller_context_than_the_model(
    use_vllm: bool, own: int | None, context: int | None, limit: int
) -> None:
    config = TrainerConfig(
        max_length=100, max_completion_length=30, use_vllm=use_vllm, vllm_max_model_len=own
    )
    assert prompt_limit(config, context) == limit


def test_without_a_chat_template_the_text_is_taken_as_it_is() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    assert PromptMaker(tokenizer, limit=9).make(ROWS[1], 1).text == "++"


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"max_steps": 5}, 5),
        ({}, 25),  # 100 rows, 2 ranks x 8 completions in groups of 4: 4 prompts per rollout
        ({"num_train_epochs": 2.5}, 62),
        ({"steps_per_generation": 2}, 24),
        ({"num_iterations": 3}, 75),
        ({"num_train_epochs": 0.001}, 1),
    ],
)
def test_steps_of_a_run(options: dict[str, float], steps: int) -> None:
    config = TrainerConfig(
        per_device_train_batch_size=8,
        num_generations=4,
        **options,  # type: ignore[arg-type]
    )
    assert steps_in(config, rows=100, ranks=2) == steps


def test_the_work_of_making_a_batch_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    values: dict[str, list[float]] = {}
    monkeypatch.setattr(
        prompts, "counter", lambda name, value: values.setdefault(name, []).append(value)
    )
    batches(workers=0, count=2)
    assert len(values["dataload/tokenize_s"]) == 2
    assert all(seconds > 0 for seconds in values["dataload/tokenize_s"] + values["dataload/join_s"])
    assert values["dataload/read_s"] == values["dataload/images"] == [0, 0]


@pytest.mark.parametrize(
    ("completion", "value"),
    [
        ("a</think><answer>b</answer>", 1.0),
        ("\n</think>\n<answer>b</answer>", 1.0),
        ("<think>a</think><answer>b</answer>", 0.0),
        ("a<answer>b</answer>", 0.0),
    ],
)
def test_format_where_the_prompt_opens_the_thinking(completion: str, value: float) -> None:
    """As the chat template of R1's distilled models does."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"bos_token": "<|begin|>"})
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}{{ '<|user|>' + m['content'] }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|><think>\n' }}{% endif %}"
    )
    row = Row([{"role": "user", "content": "1+1?"}])
    prompt = PromptMaker(tokenizer, 99).make(row, 1)
    assert prompt.text.endswith("<think>\n")
    assert prompt.tokens.count(tokenizer.bos_token_id) == 1  # the template's, and no second one
    assert think_then_answer([completion], [prompt.text], solution=["b"]) == [value]


def test_a_prompt_that_just_fits_is_whole() -> None:
    uncut = PromptMaker(tiny_tokenizer(), limit=99).make(ROWS[1], copies=1)
    fits = PromptMaker(tiny_tokenizer(), limit=len(uncut.tokens)).make(ROWS[1], copies=1)
    assert (fits.tokens, fits.cut) == (uncut.tokens, False)


def test_images_need_a_model_that_takes_them_and_it_is_named() -> None:
    row = dataclasses.replace(ROWS[0], images=(Path("a.png"),), location="rows.jsonl, line 1")
    loaded = LoadedModel(None, tiny_tokenizer(), None, ())
    for model, name in ((None, "(embedded)"), ("org/model", "org/model")):
        with pytest.raises(
            DatasetError, match=re.escape(f"line 1 has an image, and --model {name}")
        ):
            prompt_loader([row], loaded, TrainerConfig(model=model), ALONE)


def test_rollouts_that_had_their_prompts_are_skipped() -> None:
    config = TrainerConfig(
        per_device_train_batch_size=6, num_generations=3, dataloader_num_workers=0
    )
    loaded = LoadedModel(None, tiny_tokenizer(), None, ())
    later = prompt_loader(ROWS, loaded, config, ALONE, skip=2)
    assert next(later).texts == batches(workers=0, count=3)[2].texts
