"""Recorded jobs that tell most of this folder's subject."""

from __future__ import annotations

from tests.unit.hang.recorded import replay_of

test_recorded_jobs = replay_of("gloo-slow", "gloo-unforeseen-[bde]*", "NCCL-rules*", "ms-*")
