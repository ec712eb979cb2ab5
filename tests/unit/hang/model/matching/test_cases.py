"""Every fault, in every version and format: the right ranks and the right class."""

from __future__ import annotations

import pytest

from grpo_doctor.hang import dumps
from grpo_doctor.hang.model.matching.match import match
from grpo_doctor.hang.verdict import Verdict
from tests.dumps.cases import BY_NAME, CASES, Case
from tests.dumps.formats import VERSIONS
from tests.dumps.formats import dumps as dumps_of
from tests.unit.hang import sampled
from tests.verdicts import of_dumps

NAMES = [case.name for case in CASES]
WITHOUT_TYPES = ("2.2 list", "1.4")


def ruled(
    case: Case, version: str = "2.10", backend: str = "nccl", form: str = "pickle"
) -> Verdict:
    files = dumps_of(case.build(), version, backend, form=form, after_s=case.after_s)
    return of_dumps(files)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_culprit_and_the_class_with_lines_of_code(case: Case) -> None:
    ruling = ruled(case)
    assert (frozenset(ruling.culprits), ruling.cause) == (case.culprits, case.causes[0])


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_culprit_without_lines_of_code(case: Case) -> None:
    ruling = ruled(case, form="json")
    assert frozenset(ruling.culprits) == case.culprits
    assert ruling.cause in case.causes


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.causes != ("p2p-unmatched",)],
    ids=lambda case: case.name,
)
def test_the_culprit_from_gloo_which_lists_no_members(case: Case, form: str) -> None:
    assert frozenset(ruled(case, backend="gloo", form=form).culprits) == case.culprits


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["missing rank", "skipped", "other type", "send left out"])
def test_the_culprit_in_every_version(name: str, version: str) -> None:
    case = BY_NAME[name]
    if name == "other type" and version in WITHOUT_TYPES:
        pytest.skip("these versions record no types")
    assert frozenset(ruled(case, version).culprits) == case.culprits


@pytest.mark.parametrize("ring", [4, 9, 20])
@pytest.mark.parametrize(
    "name", ["missing rank", "other operation", "skipped", "groups in another order"]
)
def test_a_ring_that_has_lost_the_beginning_is_enough(name: str, ring: int) -> None:
    case = BY_NAME[name]
    files = dumps_of(case.build(), ring=ring)
    ruling = of_dumps(files)
    assert frozenset(ruling.culprits) == case.culprits


def test_a_rank_without_a_dump_is_named_when_everyone_else_came() -> None:
    files = dumps_of(BY_NAME["missing rank"].build(), without=[5])
    (blame,) = match(dumps.read(files), 8).blame
    assert (blame.rank, blame.reason) == (5, "not-recorded")


def test_dumps_of_several_versions_are_read_together() -> None:
    built = BY_NAME["missing rank"].build()
    files = [dumps_of(built, "2.4")[r] if r % 2 else dumps_of(built, "2.10")[r] for r in range(8)]
    assert of_dumps(files).culprits == (5,)


@pytest.mark.parametrize("seconds", [0.01, 1.0, 4.0])
def test_a_wait_that_is_short_for_the_job_is_no_fault(seconds: float) -> None:
    files = dumps_of(BY_NAME["missing rank"].build(), after_s=seconds)
    ruling = of_dumps(files)
    assert (ruling.state, ruling.cause, ruling.culprits) == ("healthy", "", ())


def test_copied_files_have_no_time_to_go_by() -> None:
    files = dumps_of(BY_NAME["missing rank"].build(), after_s=3e6)
    ruling = of_dumps(files)
    assert (ruling.state, ruling.culprits) == ("stuck", (5,))


def test_sentences_name_the_rank_the_call_and_the_line() -> None:
    (fact, *_) = ruled(BY_NAME["other size"]).evidence
    assert fact.text == (
        "Rank 2 called all_reduce of [2048] Float at train.py:10 in step as number 37 of the nccl "
        "group 0 (default_pg), where ranks 0, 1, 3-7 called all_reduce of [4096] Float "
        "at train.py:10 in step, as in earlier rounds."
    )


def test_who_came_is_not_alone_because_the_others_left_no_dump() -> None:
    """Two of eight wait; of the rest only the one that is missing is on record."""
    files = dumps_of(BY_NAME["missing rank"].build(), without=[1, 2, 3, 6, 7])
    (heaviest, *_) = match(dumps.read(files), 8).blame
    assert (heaviest.rank, heaviest.reason) == (5, "not-arrived")


def test_ranks_that_wait_for_each_other_without_a_culprit_are_no_healthy_job() -> None:
    """Two columns first, two rows first: each rank waits, and no recording is unlike the others."""
    evidence = sampled.evidence("gloo-unforeseen-ranks.xz/rows-first-or-columns-first/dumps alone")
    verdict = of_dumps(evidence.dumps, 4)
    assert (verdict.state, verdict.cause, verdict.culprits) == ("stuck", "unknown", ())
    assert verdict.victims == (0, 1, 2, 3)
