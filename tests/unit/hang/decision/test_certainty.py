"""How certain a verdict is: three words, and what each was worth on recorded jobs."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.causes.candidate import Candidate, Liveness, Sink
from grpo_doctor.hang.verdict import WORTH, Verdict, at_most, with_worth
from tests.corpus.verdicts import counted
from tests.evidence import EvidenceBuilder
from tests.verdicts import REWARD, verdict


@pytest.mark.parametrize(
    ("sink", "liveness", "either", "word"),
    [
        (Sink.PROCESS, "never-wakes", False, "proven"),
        (Sink.ORDER, "never-wakes", False, "proven"),
        (Sink.ENDED, "dead", False, "likely"),  # at a job's end ranks exit one after the other
        (Sink.LINE, "unseen", False, "likely"),
        (Sink.HELPER, "computing", False, "likely"),
        (Sink.COUNTERS, "never-wakes", False, "possible"),
        (Sink.NOTHING, "unseen", False, "possible"),
        (Sink.KILLED, "unseen", False, "possible"),  # a rank that was not seen
        (Sink.PROCESS, "dead", True, "possible"),  # one of several
    ],
)
def test_the_end_of_the_waits_decides(
    sink: Sink, liveness: Liveness, either: bool, word: str
) -> None:
    candidate = Candidate("x", "waits", (), sink, liveness, either=either)
    assert candidate.certainty == word


def test_a_verdict_without_a_cause_has_no_certainty() -> None:
    build = EvidenceBuilder(recorded=False)
    for rank in range(build.world):
        build.rank(rank).works(REWARD)
    outcome = verdict(build)
    assert (outcome.state, outcome.certainty, outcome.confidence) == ("healthy", "", 0.0)


def test_the_number_is_the_share_that_was_right() -> None:
    build = EvidenceBuilder(recorded=False)
    build.elsewhere(2, REWARD).state = "T"
    outcome = verdict(build)
    assert outcome.certainty == "proven"
    assert outcome.confidence == round(WORTH["proven"].right / WORTH["proven"].verdicts, 3)


def test_a_verdict_is_lowered_and_never_raised() -> None:
    for word in WORTH:
        lowered = at_most(with_worth(Verdict(state="stuck", cause="x"), word), "possible")
        assert lowered.certainty == "possible"
        assert at_most(with_worth(Verdict(), word), "proven").certainty == word


@pytest.mark.slow
@pytest.mark.heavy
def test_what_the_words_are_worth_on_recorded_jobs() -> None:
    assert counted() == WORTH
