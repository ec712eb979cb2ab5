"""What a helper does, by its command line."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.supervisor.members import role_of


@pytest.mark.parametrize(
    ("command", "words", "serves"),
    [
        ("VLLM::EngineCore", "the rollout engine", True),
        ("VLLM::Worker_TP0", "a rollout worker", True),
        ("/opt/bin/python /opt/bin/trl vllm-serve --model x", "the rollout server", True),
        (
            "/usr/bin/python -c from grpo_doctor_trainer.rewards.worker import",
            "a reward process",
            True,
        ),
        ("/usr/bin/gcc -O2 x.c", "a helper (gcc)", False),
        ("", "a helper", False),
    ],
)
def test_roles(command: str, words: str, serves: bool) -> None:
    role = role_of(command)
    assert (role.words, role.serves) == (words, serves)
