"""Where ranks are in the parallel layout of their job: TP, PP, DP, CP, EP. Pure.

Recorded process groups show it: Megatron describes them, torch's device meshes call them `mesh_tp`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grpo_doctor.hang.dumps.model import GroupSeen, Recordings

# In the order in which they are said.
AXES = ("TP", "PP", "DP", "CP", "SP", "EP", "ETP", "rollout TP")
_WITH_CP = "DP with CP"
# Megatron's parallel_state.py, and the dimensions of device meshes in FSDP2, verl, torchtitan, TRL.
_BY_DESCRIPTION = {
    "TENSOR_MODEL_PARALLEL_GROUP": "TP",
    "PIPELINE_MODEL_PARALLEL_GROUP": "PP",
    "DATA_PARALLEL_GROUP": "DP",
    "DATA_PARALLEL_GROUP_WITH_CP": _WITH_CP,
    "CONTEXT_PARALLEL_GROUP": "CP",
    "EXPERT_MODEL_PARALLEL_GROUP": "EP",
    "EXPERT_TENSOR_PARALLEL_GROUP": "ETP",
}
_BY_DIMENSION = {
    "tp": "TP",
    "tensor_parallel": "TP",
    "pp": "PP",
    "pipeline": "PP",
    "dp": "DP",
    "ddp": "DP",
    "data_parallel": "DP",
    "fsdp": "DP",
    "dp_shard": "DP",
    "dp_shard_cp": _WITH_CP,
    "cp": "CP",
    "sp": "SP",
    "sequence_parallel": "SP",
    "ep": "EP",
    "infer_tp": "rollout TP",
}
_MESH = re.compile(r"(?:device_)?mesh_(\w+)")
Places = dict[int, int]


@dataclass(frozen=True, slots=True)
class Coordinates:
    """The place of a rank on each axis of more than one rank: `(("TP", 1), ("PP", 0))`."""

    rank: int
    places: tuple[tuple[str, int], ...]

    @property
    def text(self) -> str:
        """As in "rank 9 = TP 1, PP 0, EP 2"; the rank alone where the job has no axes."""
        if not self.places:
            return f"rank {self.rank}"
        return f"rank {self.rank} = " + ", ".join(f"{axis} {at}" for axis, at in self.places)


def known_groups(recordings: Recordings) -> tuple[GroupSeen, ...]:
    """The groups that any rank knows: none knows all."""
    return tuple({group: None for recording in recordings.ranks for group in recording.groups})


def coordinates(groups: Iterable[GroupSeen], world: int) -> dict[int, Coordinates]:
    """Return the place of each rank; ranks of which nothing is known are left out.

    Args:
        groups: process groups as ranks know them, of which some may be missing.
        world: how many ranks the job has.
    """
    by_axis = _from_groups(groups, world)
    ranks = sorted({rank for places in by_axis.values() for rank in places})
    return {
        rank: Coordinates(
            rank,
            tuple((axis, by_axis[axis][rank]) for axis in AXES if rank in by_axis.get(axis, ())),
        )
        for rank in ranks
    }


def _axis_or_joint(description: str) -> str | None:
    if description in _BY_DESCRIPTION:
        return _BY_DESCRIPTION[description]
    mesh = _MESH.fullmatch(description)
    return _BY_DIMENSION.get((mesh[1] if mesh else description).lower())


def _from_groups(groups: Iterable[GroupSeen], world: int) -> dict[str, Places]:
    lists: defaultdict[str, dict[tuple[int, ...], None]] = defaultdict(dict)
    for group in groups:
        axis = _axis_or_joint(group.description)
        if axis is not None and len(group.ranks) > 1:
            lists[axis][group.ranks] = None
    axes = {axis: _places(list(members), world) for axis, members in lists.items()}
    # Within a group over both, CP varies faster than DP.
    joint = axes.pop(_WITH_CP, None)
    if joint is not None and "DP" not in axes:
        cp_size = max((len(members) for members in lists.get("CP", ())), default=1)
        places = {rank: at // cp_size for rank, at in joint.items()}
        if any(places.values()):
            axes["DP"] = places
    return {axis: places for axis, places in axes.items() if places}


def _places(groups: Sequence[tuple[int, ...]], world: int) -> Places:
    """Return the place of each rank in its group. Of groups in no file, by the others' stride.

    Nothing where a rank is at two places, as where two meshes have a dimension of the same name.
    """
    places: Places = {}
    for members in groups:
        for at, rank in enumerate(members):
            if places.setdefault(rank, at) != at:
                return {}
    size = len(groups[0])
    if len(places) < world and all(len(members) == size for members in groups):
        stride = groups[0][1] - groups[0][0]
        regular = stride > 0 and all(rank // stride % size == at for rank, at in places.items())
        if regular and world % (stride * size) == 0:
            return {rank: rank // stride % size for rank in range(world)}
    return places
