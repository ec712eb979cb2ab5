"""The words on jobs that get on, or may: waking up from a time-out is no progress."""

from __future__ import annotations

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor_probes.evidence import EngineLook
from tests.evidence import BETWEEN_S, UNIX_NS, EvidenceBuilder, frames
from tests.verdicts import verdict

LOOP = frames("select /usr/lib/python3.11/selectors.py:468", "play /home/me/agents.py:40")


def ticking(*, share: float = 0.0) -> EvidenceBuilder:
    """All ranks wake five times a second; `share` of a core is what they do then."""
    build = EvidenceBuilder(recorded=False)
    for rank in range(4):
        process = build.elsewhere(rank, LOOP)
        process.still_s, process.wakes, process.cpu_share = 0.1, 6, share
    return build


def test_ranks_that_only_wake_up_are_not_called_healthy() -> None:
    said = verdict(ticking())
    assert (said.state, said.culprits) == ("slow", ())
    assert "they woke now and then and did nothing" in said.summary


def test_to_use_some_of_a_core_is_no_progress() -> None:
    """Who asks again and again, for ever, does so too."""
    assert verdict(ticking(share=0.1)).state == "slow"


def test_ranks_whose_helper_works_get_on() -> None:
    build = ticking()
    build.child(0, "helper", pid=500).works(frames("step /home/me/engine.py:3"))
    assert verdict(build).state == "healthy"


def test_ranks_whose_engine_brings_out_tokens_get_on() -> None:
    build = ticking()
    build.child(0, "server", pid=500).still_s = 0.1
    build.engines = [(_counts(0, 40.0),), (_counts(1, 90.0),)]
    assert verdict(build).state == "healthy"


def _counts(which: int, tokens: float) -> EngineLook:
    at_ns = UNIX_NS + int(which * BETWEEN_S * 10**9)
    values = {"num_requests_running": 3.0, "generation_tokens_total": tokens}
    return EngineLook(500, at_ns, "http://127.0.0.1:8000", values)


def test_a_wait_that_is_long_for_the_job_and_may_end_is_not_called_usual() -> None:
    build = EvidenceBuilder()
    build.waited_s = 40.0
    asks = build.elsewhere(1, frames("sleep_on /home/me/t.py:3", "clip /home/me/train.py:31"))
    asks.still_s, asks.wakes = 0.1, 9
    asks.blocks("sleep")
    said = verdict(build)
    assert said.state == "slow"
    assert "40 s, where 0.1 s was the longest before; it may end" in said.summary


def test_the_words_do_not_depend_on_the_order_of_processes() -> None:
    build = ticking()
    said = diagnose(build.build({100: 3, 101: 1, 102: 2, 103: 0})).verdict.summary
    assert said == verdict(ticking()).summary
