"""What frameworks print, in every form in which people keep it, of runs that are well and ill."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.document import ReportDocument, build_document
from grpo_doctor.errors import TraceError
from grpo_doctor.importers.load import load

Row = dict[str, float]
Form = Callable[[list[Row]], str]
STEPS = 12
VERL = {
    "loss": "actor/pg_loss",
    "reward": "critic/score/mean",
    "kl": "actor/kl_loss",
    "grad_norm": "actor/grad_norm",
    "length": "response_length/mean",
    "own": "agent_loop/own_count",
}
TRL = {"length": "completions/mean_length", "own": "mine/own_count"}
OPENRLHF = {
    "loss": "policy_loss",
    "reward": "rollout/reward_mean",
    "grad_norm": "actor_grad_norm",
    "length": "rollout/response_length_mean",
    "own": "rollout/own_count",
}


def rows(count: int = STEPS) -> list[Row]:
    chance = random.Random(7)
    return [
        {
            "loss": chance.uniform(-0.02, 0.02),
            "reward": chance.uniform(0.4, 0.6),
            "kl": chance.uniform(0.01, 0.02),
            "grad_norm": chance.uniform(0.2, 0.3),
            "length": chance.uniform(190, 210),
            "own": chance.uniform(1, 2),
        }
        for _ in range(count)
    ]


def named(row: Row, names: dict[str, str]) -> Row:
    return {names.get(name, name): value for name, value in row.items()}


def verl(table: list[Row]) -> str:
    pairs = (" - ".join(f"{k}:{v}" for k, v in named(row, VERL).items()) for row in table)
    return "".join(f"(TaskRunner pid=9) step:{n} - {text}\n" for n, text in enumerate(pairs, 1))


def verl_in_lines(table: list[Row]) -> str:
    return verl(table).replace("(TaskRunner pid=9) ", "").replace(" - ", " \n")


def openrlhf(table: list[Row]) -> str:
    lines = (f"Global step {n}: {named(row, OPENRLHF)}" for n, row in enumerate(table, 1))
    return "".join(f"INFO ppo_trainer.py:547] {line}\n" for line in lines)


def trl(table: list[Row]) -> str:
    return "".join(f"{named(row, TRL)}\n" for row in table)


def trl_as_text(table: list[Row]) -> str:
    texts = ({k: f"{v:.6g}" for k, v in named(row, TRL).items()} for row in table)
    return "".join(f" 3%| | 1/9 [00:01<00:09, 1.8it/s]{text}\n" for text in texts)


def swift(table: list[Row]) -> str:
    progress = ({"global_step/max_steps": f"{n}/99"} for n in range(1, len(table) + 1))
    lines = (json.dumps(named(r, TRL) | p) for r, p in zip(table, progress, strict=True))
    return "the log:\n" + "".join(f"{line}\n" for line in lines)


def swift_without_its_brace(table: list[Row]) -> str:
    return swift(table).replace('{"loss"', '"loss"')


def wandb(table: list[Row]) -> str:
    steps = ({f"train/{k}": v for k, v in named(row, TRL).items()} for row in table)
    return "".join(json.dumps({"_step": n, **step}) + "\n" for n, step in enumerate(steps, 1))


def notebook(table: list[Row], between: str = "\t", edge: str = "") -> str:
    names = [TRL.get(k, k).replace("/", " / ").replace("loss", "Training Loss") for k in table[0]]
    cells = [["Step", *names]]
    cells += [[str(n), *(f"{v:.6f}" for v in r.values())] for n, r in enumerate(table, 1)]
    return "".join(f"{edge}{between.join(line)}{edge}\n" for line in cells)


def markdown(table: list[Row]) -> str:
    head, *body = notebook(table, " | ", "|").splitlines()
    return "\n".join(["It prints:", "", head, "|--" * (len(table[0]) + 1) + "|", *body, ""])


def html(table: list[Row]) -> str:
    lines = [line.split("\t") for line in notebook(table).splitlines()]
    made = (
        "\n".join(["<tr>", *(f"  <t{'d' if n else 'h'}>{cell}</td>" for cell in line), "</tr>"])
        for n, line in enumerate(lines)
    )
    return "\n".join(made).replace("</td>", "</td>\n") + "\n"


FORMS: tuple[Form, ...] = (
    verl, verl_in_lines, openrlhf, trl, trl_as_text, swift, swift_without_its_brace, wandb,
    notebook, markdown,
)  # fmt: skip


@pytest.fixture(params=FORMS, ids=lambda form: form.__name__)
def form(request: pytest.FixtureRequest) -> Form:
    made: Form = request.param
    return made


def judged(folder: Path, text: str) -> ReportDocument:
    path = folder / "job.txt"
    path.write_text(text)
    return build_document(load(path))


def test_every_value_is_kept_also_of_metrics_that_nobody_knows(form: Form, tmp_path: Path) -> None:
    path = tmp_path / "job.txt"
    for count in (1, 3, 300):
        path.write_text(form(rows(count)))
        metrics = load(path).metrics
        assert metrics.steps.tolist() == list(range(1, count + 1))
        own = next(v for k, v in metrics.values.items() if k.endswith("own_count"))
        assert own.tolist() == pytest.approx([row["own"] for row in rows(count)], rel=1e-4)


def test_of_a_log_that_is_well_is_said_how_little_was_judged(form: Form, tmp_path: Path) -> None:
    document = judged(tmp_path, form(rows()))
    assert document.findings == []
    assert document.summary.tone == "unjudged"
    assert f"{STEPS} steps logged, without step times. Not enough data" in document.summary.verdict


@pytest.mark.parametrize("key", ["loss", "kl", "grad_norm"])
@pytest.mark.parametrize("first", [1, 5, STEPS - 1])
def test_nan_is_the_headline_with_its_first_step(
    form: Form, key: str, first: int, tmp_path: Path
) -> None:
    table = rows()
    for row in table[first - 1 :]:
        row[key] = math.nan
    document = judged(tmp_path, form(table))
    when = "at every step" if first == 1 else f"from step {first} on"
    assert document.summary.verdict.endswith(f" is NaN {when}.")
    assert [finding.id for finding in document.findings] == ["GD064"]


def test_zero_rewards_and_zero_gradients_are_found(form: Form, tmp_path: Path) -> None:
    rewards = judged(tmp_path, form([row | {"reward": 0.0} for row in rows()]))
    assert "The mean reward is 0 at every step" in rewards.summary.verdict
    gradients = judged(tmp_path, form([row | {"grad_norm": 0.0} for row in rows()]))
    assert "The gradient norm is 0 at all 12 steps" in gradients.summary.verdict


ENDS = (
    "[rank3]:[E1126 x.cpp:632] [Rank 3] Watchdog caught collective operation timeout",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "ray.exceptions.RayTaskError(ValueError): ray::WorkerDict.update_actor()",
    "E1126 api.py:869] failed (exitcode: -9) local_rank: 0 (pid: 77) of binary: python",
    "train.sh: line 9: 4711 Killed                  python train.py",
    'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\nValueError: boom',
    "(W pid=8) Traceback (most recent call last):\n(W pid=8)   File x\n(W pid=8) KeyError: 'a'",
    "Fatal Python error: Segmentation fault",
)


@pytest.mark.parametrize("end", ENDS)
def test_a_line_that_ends_a_job_is_the_headline(form: Form, end: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, form(rows()) + end + "\n").summary.verdict
    assert verdict.startswith(f"The run failed after step {STEPS}. Line ")
    assert verdict.removesuffix(".").split()[-1] in end
    goes_on = judged(tmp_path, form(rows()) + end + "\n" + form(rows(STEPS + 1)))
    assert "failed" not in goes_on.summary.verdict
    assert any("made further steps" in note for note in goes_on.run.notes)


@pytest.mark.parametrize(
    "line",
    [
        "Exception ignored in: <function f>\nTraceback (most recent call last):\nOSError: closed",
        "│ Traceback (most recent call last): ValueError: in a completion │",
        "the model is not killed, and no error was found",
    ],
)
def test_what_ends_no_job_does_not(form: Form, line: str, tmp_path: Path) -> None:
    document = judged(tmp_path, form(rows()) + line + "\n")
    assert document.run.exit.state == "unknown"


def test_an_interrupted_job_did_not_fail(form: Form, tmp_path: Path) -> None:
    end = "Traceback (most recent call last):\n  File x\nKeyboardInterrupt\n"
    verdict = judged(tmp_path, form(rows()) + end).summary.verdict
    assert verdict.endswith(f"The run was interrupted after step {STEPS}.")


def test_a_fatal_line_without_any_step_is_named(tmp_path: Path) -> None:
    path = tmp_path / "job.txt"
    path.write_text(f"loading\n{ENDS[1]}\n")
    with pytest.raises(TraceError, match="Line 2 of the log: OutOfMemoryError: CUDA out of"):
        load(path)


@pytest.mark.parametrize("seed", range(8))
def test_a_log_that_is_cut_anywhere_is_read_or_refused(
    form: Form, seed: int, tmp_path: Path
) -> None:
    text = form(rows())
    cut = text[: random.Random(seed).randrange(len(text))]
    path = tmp_path / "job.txt"
    path.write_text(cut)
    try:
        metrics = load(path).metrics
    except TraceError:
        return
    whole = tmp_path / "whole.txt"
    whole.write_text(text)
    known = load(whole).metrics
    for key, values in metrics.values.items():
        said = values[~np.isnan(values)]
        assert said.tolist() == pytest.approx(known.values[key].tolist()[: len(said)])


def test_a_notebook_keeps_its_table_as_html(tmp_path: Path) -> None:
    source = html(rows()).splitlines(keepends=True)
    cell = {"outputs": [{"data": {"text/html": source}}]}
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps({"cells": [cell]}, indent=1))
    assert load(path).metrics.steps.tolist() == list(range(1, STEPS + 1))


@pytest.mark.parametrize("form", [verl, openrlhf, trl, trl_as_text, swift, wandb])
@given(width=st.integers(min_value=80, max_value=220))
def test_rows_that_a_terminal_broke_are_read_as_whole(form: Form, width: int) -> None:
    text = form(rows()) + ENDS[1] + "\n"
    parts = [
        line[at : at + width] for line in text.splitlines() for at in range(0, len(line), width)
    ]
    with TemporaryDirectory() as folder:
        whole, broken = Path(folder) / "whole.txt", Path(folder) / "broken.txt"
        whole.write_text(text)
        broken.write_text("\n".join(parts) + "\n")
        expected, read = load(whole), load(broken)
    assert read.metrics.steps.tolist() == expected.metrics.steps.tolist()
    assert read.metrics.values.keys() == expected.metrics.values.keys()
    for key, values in expected.metrics.values.items():
        np.testing.assert_array_equal(read.metrics.values[key], values)
    assert bool(read.run.origin and read.run.origin.fatal)
