"""When the backend gives up, told from the command."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.supervisor.flightenv import GLOO_S, NCCL_S, timeout_s


@pytest.mark.parametrize(
    "words", [["swift", "rlhf", "--ddp_timeout", "7200"], ["x", "--ddp_timeout=7200", "-y"]]
)
def test_the_flag_counts(words: list[str]) -> None:
    assert timeout_s(words, bundled=False, gpus=8) == 7200


@pytest.mark.parametrize("words", [[], ["--ddp_timeout"], ["--ddp_timeout", "soon"]])
def test_without_a_number_the_backends_own_holds(words: list[str]) -> None:
    assert timeout_s(words, bundled=False, gpus=8) == NCCL_S
    assert timeout_s(words, bundled=False, gpus=0) == GLOO_S
    assert timeout_s(words, bundled=True, gpus=8) == 1800
