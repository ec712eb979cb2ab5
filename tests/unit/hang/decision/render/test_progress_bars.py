"""What progress bars say is left."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.decision.render.verdicts import FRESH_S, bar_seconds
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor_probes.evidence import LogTail
from tests.evidence import EvidenceBuilder, frames

BAR = "Evaluating:  45%|####5     | 9/20 [00:30<00:37,  3.4s/it]"


@pytest.mark.parametrize(
    ("lines", "left_s"),
    [
        ((BAR,), 37.0),
        (("  1%|  | 10/1000 [00:30<1:02:03,  3.8s/it, loss=0.1]", "saved"), 3723.0),
        (("1/9 [00:01<00:59, 1it/s]", "8/9 [00:30<00:04]"), 4.0),
        (("  0%|          | 0/20 [00:00<?, ?it/s]",), None),
        (("step 9/20 took 3 s",), None),
        ((), None),
    ],
)
def test_the_last_bar_counts(lines: tuple[str, ...], left_s: float | None) -> None:
    assert bar_seconds(lines) == left_s


def _summary(function: str, written_s_ago: float) -> str:
    build = EvidenceBuilder()
    build.elsewhere(0, ()).works(frames(f"{function} /home/me/train.py:30", "main t.py:9"))
    build.logs = [LogTail(100, "out", written_s_ago, (BAR,))]
    return diagnose(build.build()).verdict.summary


def test_slow_work_says_how_long() -> None:
    assert "with about 37 s left" in _summary("evaluate", 1.0)


def test_a_bar_of_half_a_minute_ago_is_the_oldest_that_counts() -> None:
    assert "with about 37 s left" in _summary("evaluate", FRESH_S)


def test_an_old_bar_says_nothing() -> None:
    assert "will take" not in _summary("evaluate", FRESH_S + 1.0)


def test_the_bar_of_the_training_is_not_that_of_a_checkpoint() -> None:
    assert "will take" not in _summary("save_checkpoint", 1.0)
