"""Every fault, in every version and format: the right ranks and the right class."""

from __future__ import annotations

import pytest

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


def test_sentences_name_the_rank_the_call_and_the_line() -> None:
    (fact, *_) = ruled(BY_NAME["other size"]).evidence
    assert fact.text == (
        "Rank 2 called all_reduce of [2048] Float at train.py:10 in step as number 37 of the nccl "
        "group 0 (default_pg), where ranks 0, 1, 3-7 called all_reduce of [4096] Float "
        "at train.py:10 in step, as in earlier rounds."
    )


def test_ranks_that_wait_for_each_other_without_a_culprit_are_no_healthy_job() -> None:
    """Two columns first, two rows first: each rank waits, and no recording is unlike the others."""
    evidence = sampled.evidence("gloo-unforeseen-ranks.xz/rows-first-or-columns-first/dumps alone")
    verdict = of_dumps(evidence.dumps, 4)
    assert (verdict.state, verdict.cause, verdict.culprits) == ("stuck", "unknown", ())
    assert verdict.victims == (0, 1, 2, 3)
