"""What several rules share: thresholds, words, and which rule defers to which."""

from __future__ import annotations

# vLLM hands its cache out in blocks and lets a request wait when the next block is not there: from
# nine tenths on the cache, and not the number of slots, holds requests back.
CACHE_FULL_PCT = 90.0
# Ten samples of GPU memory a second miss short peaks: above it a gather's next bucket fails, or
# makes the allocator give memory back and ask again.
SYNC_FULL = 0.90
# Over 10,000 steps, a long run, that is five minutes: less than a profile takes. Tiny models score
# for 3 to 20 ms of steps of 50 to 300.
MIN_SCORING_S = 0.03
OUT_OF_MEMORY = "out of memory"
# How a reader sees what Python does, of a run whose processes may be gone by then.
STACKS = "`grpo-doctor attach` shows every rank's stack while the job runs"
PROFILE = "run `py-spy record --subprocesses -d 30 -o profile.svg --pid PID`"
# Rules of which at least one signal is a counter that of all trainers only the bundled one writes;
# elsewhere `grpo_doctor_probes.counter` has to be fed with it.
BUNDLED_ONLY = ("GD031", "GD071")
# The engine asks these first; a rule reads their findings by `RunView.found`. Each names the same
# cost with the same fix, or a better one. No rule may defer back.
DEFERS_TO: dict[str, tuple[str, ...]] = {
    "GD002": ("GD030",),  # waits in bursts
    "GD024": ("GD023",),  # pauses that wait for a CPU
    "GD032": ("GD002",),  # tokenizing as a part of slow loading
    "GD033": ("GD034", "GD024", "GD036"),  # why scoring is slow
    "GD035": ("GD004",),  # a rank that is slow at what all do
    "GD040": ("GD074",),  # memory that ended the run
}
