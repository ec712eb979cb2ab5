"""Where the parallelism is: the place of the guilty ranks on the axes of the job."""

from __future__ import annotations

import re

import msgspec

from grpo_doctor.hang.model.parallelism import Coordinates, coordinates, groups_of, sizes
from grpo_doctor.hang.model.scene import Scene
from grpo_doctor.hang.verdict import Item, Verdict

_MOST = 4  # culprits whose places are said


def layout_of(scene: Scene) -> dict[int, Coordinates]:
    """The place of each rank, by its process groups and the job's command lines."""
    commands = (member.command for member in scene.evidence.job.members)
    return coordinates(groups_of(scene.recordings), sizes(commands), len(scene.world))


def with_layout(scene: Scene, verdict: Verdict) -> Verdict:
    """The verdict with the culprits' places; unchanged where the job has no axes."""
    if not verdict.culprits:
        return verdict
    layout = layout_of(scene)
    known = [layout[rank] for rank in verdict.culprits[:_MOST] if rank in layout]
    placed = [place for place in known if place.places]
    if not placed:
        return verdict
    items = tuple(Item("layout", place.rank, place.text) for place in placed)
    return msgspec.structs.replace(
        verdict,
        summary=_said(verdict.summary, placed[0])
        if len(verdict.culprits) == 1
        else verdict.summary,
        evidence=(*verdict.evidence, *items),
    )


def _said(summary: str, place: Coordinates) -> str:
    """`Rank 9 (TP 1, PP 0) is stopped ...`: the only culprit where it is first named."""
    axes = place.text.partition(" = ")[2]
    return re.sub(rf"\b([Rr]ank {place.rank})\b", rf"\1 ({axes})", summary, count=1)
