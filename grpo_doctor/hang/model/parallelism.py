"""Where ranks sit in the parallel layout of their job: TP, PP, DP, CP, EP. Pure.

Process groups show it (Megatron describes them, torch's device meshes call them `mesh_tp`), or else
the sizes on the command line with Megatron's order of ranks: TP varies fastest, then CP, DP, PP.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
# An option of any framework: `--name N`, `--name=N`, `a.b.name=N`, with `-` or `_`.
_OPTION = re.compile(r"(?<![\w-])(?:--)?([\w.-]*parallel[\w-]*)[= ](\d{1,6})(?!\S)")
_BY_OPTION = {
    "tensor_model_parallel_size": "TP",
    "tensor_parallel_size": "TP",
    "pipeline_model_parallel_size": "PP",
    "pipeline_parallel_size": "PP",
    "context_parallel_size": "CP",
    "ulysses_sequence_parallel_size": "SP",
    "sequence_parallel_size": "SP",
    "expert_model_parallel_size": "EP",
    "expert_parallel_size": "EP",
    "expert_tensor_parallel_size": "ETP",
    "vllm_tensor_parallel_size": "rollout TP",
    "rollout_tensor_parallel_size": "rollout TP",
}
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


def groups_of(recordings: Recordings) -> tuple[GroupSeen, ...]:
    """The groups that any rank knows: none knows all."""
    return tuple({group: None for recording in recordings.ranks for group in recording.groups})


def sizes(commands: Iterable[str]) -> dict[str, int]:
    """Sizes of axes from command lines; where two differ, as of trainer and server, neither."""
    claimed: defaultdict[str, set[int]] = defaultdict(set)
    for command in commands:
        for name, number in _OPTION.findall(command):
            path, _, last = name.replace("-", "_").rpartition(".")
            axis = _BY_OPTION.get(last)
            if axis == "TP" and "rollout" in path.split("."):
                axis = "rollout TP"
            if axis is not None and int(number) > 0:
                claimed[axis].add(int(number))
    return {axis: numbers.pop() for axis, numbers in claimed.items() if len(numbers) == 1}


def coordinates(
    groups: Iterable[GroupSeen], arguments: Mapping[str, int], world: int
) -> dict[int, Coordinates]:
    """The place of each rank; ranks of which nothing is known are left out.

    Args:
        groups: process groups as ranks know them, of which some may be missing.
        arguments: sizes by axis, as `sizes` reads them. What groups show takes precedence.
        world: how many ranks the job has.
    """
    by_axis = _from_groups(groups, world)
    for axis, places in _from_sizes(arguments, world).items():
        by_axis.setdefault(axis, places)
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


def _from_sizes(arguments: Mapping[str, int], world: int) -> dict[str, Places]:
    """Use Megatron's default order, `tp-cp-ep-dp-pp`. Experts have a layout of their own: ETP
    varies fastest, then EP; ETP is TP unless it is set."""
    size = {axis: arguments.get(axis, 1) for axis in AXES}
    inner = math.prod(size[axis] for axis in ("TP", "CP", "SP"))
    model = inner * size["PP"]
    if not any(arguments.get(axis, 1) > 1 for axis in AXES) or world < 1 or world % model:
        return {}
    data = world // model
    tensor_of_experts = arguments.get("ETP", size["TP"])
    strides = {
        "TP": (1, size["TP"]),
        "CP": (size["TP"], size["CP"]),
        "SP": (size["TP"] * size["CP"], size["SP"]),
        "DP": (inner, data),
        "PP": (inner * data, size["PP"]),
        "EP": (tensor_of_experts, size["EP"]),
        "rollout TP": (1, size["rollout TP"]),
    }
    return {
        axis: {rank: rank // stride % count for rank in range(world)}
        for axis, (stride, count) in strides.items()
        if count > 1 and world % (stride * count) == 0
    }
