"""Which flight-recorder variables a job gets, by its torch and by what the user has set."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor_probes.supervisor.flightenv import (
    GLOO_S,
    NCCL_S,
    flight_variables,
    timeout_s,
    torch_version,
)


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ((2, 6), {"TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"}),  # it ignores them
        ((2, 8), {"TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"}),
        ((2, 10), {"TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"}),
        ((2, 11), {"TORCH_FR_DUMP_TEMP_FILE"}),
        (None, {"TORCH_FR_DUMP_TEMP_FILE"}),
    ],
)
def test_each_version_gets_the_names_it_knows(
    tmp_path: Path, version: tuple[int, int] | None, names: set[str]
) -> None:
    added = flight_variables({}, tmp_path, version, gpus=8)
    assert set(added) == names | {"TORCH_NCCL_DUMP_ON_TIMEOUT"}
    files = next(value for name, value in added.items() if name.endswith("TEMP_FILE"))
    assert files == f"{tmp_path}/rank_"


@pytest.mark.parametrize("version", [(2, 6), (2, 9), (2, 15), None])
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("BUFFER_SIZE", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"]),
        ("ON_TIMEOUT", ["TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_ON_TIMEOUT"]),
    ],
)
def test_what_the_user_set_stays_and_what_could_end_a_rank_is_left_alone(
    tmp_path: Path, version: tuple[int, int] | None, kind: str, names: list[str]
) -> None:
    for name in names:
        added = flight_variables({name: "0"}, tmp_path, version, gpus=8)
        assert not any(word in variable for variable in added for word in (kind, "PIPE", "TIMING"))


def test_gloo_of_a_new_torch_needs_nothing(tmp_path: Path) -> None:
    assert flight_variables({}, tmp_path, (2, 13), gpus=0) == {}


@pytest.mark.parametrize("program", ["python", "swift"])
def test_torch_is_found_beside_the_program(tmp_path: Path, program: str) -> None:
    installed = tmp_path / "lib/python3.12/site-packages/torch-2.7.1+cu126.dist-info"
    installed.mkdir(parents=True)
    path = tmp_path / "bin" / program
    path.parent.mkdir()
    path.write_text("")
    path.chmod(0o700)
    assert torch_version(str(path)) == (2, 7)


@pytest.mark.parametrize(
    ("words", "bundled", "gpus", "timeout"),
    [
        ("x --ddp_timeout 7200", False, 8, 7200), ("x --ddp_timeout=7200 -y", False, 8, 7200),
        ("", False, 8, NCCL_S), ("x --ddp_timeout", False, 8, NCCL_S),
        ("x --ddp_timeout soon", False, 0, GLOO_S), ("", True, 8, 1800), ("", False, 0, GLOO_S),
    ],
)  # fmt: skip
def test_the_flag_counts_before_the_backends_own(
    words: str, timeout: float, gpus: int, *, bundled: bool
) -> None:
    assert timeout_s(words.split(), bundled=bundled, gpus=gpus) == timeout
