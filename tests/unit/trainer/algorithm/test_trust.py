"""An engine that samples from other weights than the trained ones is found out."""

from __future__ import annotations

import pytest

from grpo_doctor_trainer.algorithm.loss import LARGEST_MEAN_GAP, check_gap
from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.flags import parse

GAP = "sampling/sampling_logp_difference/mean"


def check(gap: float, *flags: str) -> None:
    check_gap(parse(["--use_vllm", "true", *flags], 2), {GAP: gap})


def test_a_gap_that_no_rounding_makes_is_an_error_with_its_number() -> None:
    with pytest.raises(RolloutError, match=r"by 0\.54 nats .* out/vllm.*--use_vllm false"):
        check(0.54, "--output_dir", "out")


def test_the_message_names_the_server() -> None:
    with pytest.raises(RolloutError, match=r"server at 127\.0\.0\.1:8123"):
        check(3.0, "--vllm_mode", "server", "--vllm_server_port", "8123")


def test_rounding_is_none() -> None:
    check(LARGEST_MEAN_GAP)
    check(0.04)


@pytest.mark.parametrize(
    "flags", [("--top_p", "0.9"), ("--top_k", "20"), ("--repetition_penalty", "1.1")]
)
def test_nothing_is_compared_where_the_sampled_distribution_is_another(
    flags: tuple[str, ...],
) -> None:
    check(2.0, *flags)


def test_nothing_is_compared_without_log_probs_of_an_engine() -> None:
    check_gap(parse([], 2), {"loss": 1.0})
