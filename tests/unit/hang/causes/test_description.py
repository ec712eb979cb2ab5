from __future__ import annotations

from tests.evidence import EvidenceBuilder, frames
from tests.verdicts import verdict

TIMED = frames(
    "check /home/me/rewards.py:31",
    "call /usr/lib/python3.11/site-packages/grpo_doctor_probes/decorate.py:35",
    "_calculate_rewards /usr/lib/python3.11/site-packages/trl/trainer/grpo_trainer.py:1606",
)


def test_a_stack_in_evidence_has_none_of_the_frames_that_time_the_job() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(2, TIMED)
    process.blocks("lock")
    process.stack = TIMED
    stacks = [item.text for item in verdict(build).evidence if item.source == "stack"]
    (text,) = [stack for stack in stacks if "rewards.py:31" in stack]
    assert "decorate.py" not in text
    assert "grpo_trainer.py:1606" in text
