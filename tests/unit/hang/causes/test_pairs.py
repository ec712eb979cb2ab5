"""Sends and receives without a partner, by their stacks."""

from __future__ import annotations

from grpo_doctor_probes.evidence import CallArguments
from tests.evidence import EvidenceBuilder, collective
from tests.verdicts import expect


def test_a_receive_that_nobody_sends() -> None:
    build = EvidenceBuilder()
    build.elsewhere(2, collective("recv"))
    build.arguments = [CallArguments(102, "recv", {"src": "3"})]
    expect(build, "p2p-unmatched", 2)
