"""What the code takes for granted of torch, against what its wheels say.

`python -m tests.torch_contract VERSION --write` reads a further wheel into the table.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from grpo_doctor_probes.flight import dump_locations, recorders, ring
from grpo_doctor_probes.supervisor.flightenv import flight_variables
from tests.torch_contract.promises import TABLE, body_of

TORCHES: dict[str, Any] = json.loads(TABLE.read_text())
OWN_RANK_BYTES = 8  # 2.15 knows its rank too: behind all that is read


@pytest.fixture(params=TORCHES)
def torch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def version_of(torch: str) -> tuple[int, int]:
    major, minor, _ = torch.partition(" ")[0].split(".")
    return int(major), int(minor)


def test_the_code_leads_to_each_recorder(torch: str) -> None:
    promised = TORCHES[torch]
    assert promised["lost"] == []
    backends = {backend for backend, _, name in recorders.ANCHORS if name in promised["anchors"]}
    for_cpus_alone = promised["machine"] == "aarch64" and version_of(torch) == (2, 8)
    assert backends == ({"fr"} if for_cpus_alone else {"fr", "nccl"})


def test_every_version_from_2_8_on_was_read_for_x86_64() -> None:
    read = {version_of(torch) for torch in TORCHES if torch.endswith("x86_64")}
    assert read == {(2, minor) for minor in range(8, 16)}


def test_its_layout_is_one_that_is_read(torch: str) -> None:
    promised = TORCHES[torch]
    has_epochs = "reset_epoch_" in promised["members"]
    assert has_epochs == (version_of(torch) >= (2, 10))
    layout = ring.LAYOUTS[promised["machine"]][0 if has_epochs else 1]
    own_rank = OWN_RANK_BYTES if "rank_" in promised["members"] else 0
    assert layout.recorder_bytes + own_rank == promised["recorder_bytes"]
    left_out = {"capture_cpp_stack_", "rank_"}  # the first shares its bytes with `enabled_`
    renamed = {"nccl_version_": "comm_lib_version_"}
    members = [renamed.get(name, name) for name in promised["members"] if name not in left_out]
    assert list(layout.recorder) == members
    assert list(layout.entry) == promised["entry_members"]


def test_the_settings_that_are_set_and_read_exist(torch: str) -> None:
    settings = set(TORCHES[torch]["settings"])
    if "2.8.0 aarch64" in torch:
        pytest.skip("a wheel for CPUs, in which NCCL's settings are not")
    assert {dump_locations.PREFIX_VARIABLES[0], "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"} <= settings
    assert set(flight_variables({}, TABLE.parent, version_of(torch), gpus=8)) <= settings


def test_bodies_are_cut_out_whole() -> None:
    assert body_of("f(); void f(int) { if (x) { y(); } } g {}", "void f(") == "{ if (x) { y(); } }"
    with pytest.raises(ValueError, match="no end"):
        body_of("f() {", "f(")
