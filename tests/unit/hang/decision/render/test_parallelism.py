"""Where ranks sit: from real groups and from meshes."""

from __future__ import annotations

import itertools

import pytest

from grpo_doctor.hang.decision.render.document import coordinates, known_groups
from grpo_doctor.hang.dumps import GroupSeen, read
from tests.dumps import real_nccl

# TP, PP, DP and EP sizes of the four real jobs of 16 ranks, by how many members their groups have.
REAL = {
    "gpu_error_1st": (2, 4, 2, 4),
    "gpu_error_2nd": (4, 2, 2, 8),
    "lock_gil_1st": (4, 2, 2, 8),
    "lock_gil_2nd": (2, 4, 2, 4),
}


@pytest.mark.parametrize("recorded", real_nccl.recordings(), ids=lambda recording: recording.name)
def test_real_megatron_jobs(recorded: real_nccl.Recorded) -> None:
    tp, pp, dp, ep = REAL[recorded.name]
    places = coordinates(known_groups(read(recorded.files)), 16)
    for rank in range(16):
        assert places[rank] == {
            "TP": rank % tp,
            "DP": rank // tp % dp,
            "PP": rank // (tp * dp) % pp,
            "EP": rank % ep,
        }


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.parametrize("recorded", real_nccl.recordings(), ids=lambda recording: recording.name)
def test_missing_files_of_real_jobs_change_nothing(recorded: real_nccl.Recorded) -> None:
    places = coordinates(known_groups(read(recorded.files)), 16)
    for left_out in itertools.combinations(range(16), 2):
        part = read(recorded.without(left_out))
        assert coordinates(known_groups(part), 16) == places
    assert coordinates(known_groups(read(recorded.without(range(1, 16)))), 16) == places


def mesh(name: str, *groups: tuple[int, ...]) -> list[GroupSeen]:
    return [GroupSeen(str(i), f"mesh_{name}", ranks) for i, ranks in enumerate(groups)]


def test_a_device_mesh() -> None:
    groups = [*mesh("tp", (0, 1), (2, 3)), *mesh("fsdp", (0, 2), (1, 3))]
    places = coordinates(groups, 4)
    assert [places[rank] for rank in range(4)] == [
        {"TP": tp, "DP": dp} for dp in (0, 1) for tp in (0, 1)
    ]


def test_context_parallel_ranks_share_a_place_of_data_parallel_ones() -> None:
    joint = GroupSeen("1", "DATA_PARALLEL_GROUP_WITH_CP", (0, 1, 2, 3))
    context = [GroupSeen("2", "CONTEXT_PARALLEL_GROUP", ranks) for ranks in ((0, 1), (2, 3))]
    assert coordinates([joint, *context], 4)[3] == {"DP": 1, "CP": 1}
    # Without data parallelism the joint group holds nothing but CP.
    alone = GroupSeen("1", "DATA_PARALLEL_GROUP_WITH_CP", (0, 1))
    assert coordinates([alone, context[0]], 2)[1] == {"CP": 1}


def test_two_meshes_of_one_name_that_differ_tell_nothing() -> None:
    assert coordinates(mesh("dp", (0, 1, 2, 3), (1, 0)), 4) == {}


def test_groups_that_are_not_regular_are_taken_as_they_are() -> None:
    assert coordinates(mesh("tp", (0, 1), (2, 3)), 8)[7] == {"TP": 1}  # by the others' stride
    places = coordinates(mesh("tp", (0, 3), (1, 7)), 8)
    assert places == {0: {"TP": 0}, 3: {"TP": 1}, 1: {"TP": 0}, 7: {"TP": 1}}


def test_a_group_that_is_not_whole_gives_ranks_in_no_file_no_place() -> None:
    known = [GroupSeen("1", "mesh_tp", (0, 1, 2)), GroupSeen("2", "mesh_tp", (3, 4))]
    assert set(coordinates(known, 6)) == {0, 1, 2, 3, 4}
