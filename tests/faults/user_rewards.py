"""Reward functions of a user of the bundled trainer; the bench's faults happen in them.

Where: `--reward_funcs user_rewards.py:score_answers`. What: the spec that `SPEC` names.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

SPEC = "REWARD_SPEC"
_calls = 0


@cache
def _spec() -> Any:
    from tests.faults.rank import Spec

    return Spec.from_json(Path(os.environ[SPEC]).read_text())


def score_answers(completions: list[str], **_columns: Any) -> list[float]:
    """Longer answers score higher; at the due call, in the due rank, something happens."""
    global _calls  # noqa: PLW0603 - the trainer gives a function no state of its own
    from tests.faults.events import tell
    from tests.faults.registry import Scene, load

    _calls += 1
    spec, rank = _spec(), int(os.environ["RANK"])
    folder = Path(spec.folder)
    if _calls == spec.step:
        tell(folder, "healthy", rank)
    fault = load().get(spec.fault)
    if _calls == spec.step + 1 and fault is not None and fault.inside and rank == spec.culprit:
        fault.inside(Scene(rank, spec.world_size, rank, folder, spec.facts))
    return [float(len(completion)) for completion in completions]
