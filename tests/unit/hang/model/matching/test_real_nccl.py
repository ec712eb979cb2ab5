"""Recordings of real NCCL jobs: the injected ranks and nobody else, whatever is missing."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from grpo_doctor.hang import dumps
from grpo_doctor.hang.model.matching.match import match
from grpo_doctor_probes.evidence import FlightDump
from tests.dumps.real_nccl import Recorded, recordings
from tests.verdicts import of_dumps

SAMPLE = 6
# Each of the two hung ranks is alone with one of these in its tensor group. Without both, nothing
# on record tells a hung GPU from a peer that never came.
BOTH_WITNESSES = {"gpu_error_1st": {13, 15}}


def blamed(files: Sequence[FlightDump]) -> frozenset[int]:
    return frozenset(of_dumps(files, 16).culprits)


@pytest.mark.parametrize("recorded", recordings(), ids=lambda recording: recording.name)
def test_the_injected_ranks_are_named_in_every_order_of_files(recorded: Recorded) -> None:
    files = list(recorded.files)
    for seed in range(3):
        random.Random(seed).shuffle(files)
        assert blamed(files) == recorded.culprits


@pytest.mark.parametrize("recorded", recordings(), ids=lambda recording: recording.name)
def test_files_of_two_healthy_ranks_may_be_missing(recorded: Recorded) -> None:
    healthy = sorted(set(range(16)) - recorded.culprits)
    pairs = [
        pair
        for pair in itertools.combinations(healthy, 2)
        if set(pair) != BOTH_WITNESSES.get(recorded.name)
    ]
    for pair in random.Random(recorded.name).sample(pairs, SAMPLE):
        assert blamed(recorded.without(pair)) == recorded.culprits, pair


@pytest.mark.parametrize("recorded", recordings(), ids=lambda recording: recording.name)
def test_nothing_is_called_a_ring_of_groups(recorded: Recorded) -> None:
    matched = match(dumps.read(recorded.files), 16)
    assert matched.cycles == ()
    assert {blame.reason for blame in matched.blame} <= {"device-hung", "not-arrived"}


def test_a_stalled_host_is_idle_and_a_hung_device_is_not() -> None:
    by_name = {recording.name: recording for recording in recordings()}
    stalled = match(dumps.read(by_name["lock_gil_1st"].files), 16)
    hung = match(dumps.read(by_name["gpu_error_2nd"].files), 16)
    assert (stalled.idle, hung.idle) == (frozenset((9, 14)), frozenset())
