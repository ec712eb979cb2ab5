"""Recorded jobs that tell most of this folder's subject."""

from __future__ import annotations

from tests.unit.hang.recorded import replay_of

test_recorded_jobs = replay_of("*-chains", "gloo-threads", "*-locks", "*-waiting", "verl*")
