"""The lists of options, and what is said of one that a version lacks."""

from __future__ import annotations

import pytest

from grpo_doctor.knobs.option_lists import FOLDER, option_list
from grpo_doctor.knobs.tables import RENAMED, TABLES
from tests.wheels.definitions import sources
from tests.wheels.fetch import VERSIONS, NoWheelError, wheel
from tests.wheels.listed import READERS


def test_every_list_can_be_read() -> None:
    names = [path.stem for path in FOLDER.glob("*.txt")]
    assert len(names) >= 12
    for name in names:
        listed = option_list(name)
        assert listed is not None
        assert len(listed.ranges) > 10
        assert listed.takes(next(iter(listed.ranges)), None) in (True, False)


def test_when_an_option_came_and_went() -> None:
    listed = option_list("ms-swift")
    assert listed is not None
    assert listed.takes("vllm_device", "3.5.0")
    assert not listed.takes("vllm_device", "3.6.0")
    assert listed.removed_in("vllm_device", "4.6.0") == "3.6.0"
    assert listed.added_in("vllm_enable_lora", "3.5.0") == "3.10.0"
    assert listed.nearest("num_generatons", "4.6.0") == "num_generations"
    assert listed.nearest("entirely_else", "4.6.0") is None


@pytest.mark.parametrize("owner", [name for name in RENAMED if RENAMED[name]])
def test_new_names_are_known(owner: str) -> None:
    listed = option_list(owner.replace(" ", "-"))
    assert listed is not None
    assert [new for new in RENAMED[owner].values() if not listed.ever(new)] == []


@pytest.mark.parametrize("table", [name for name in TABLES if option_list(name.replace(" ", "-"))])
def test_a_name_of_a_setting_is_an_option_of_its_own_command(table: str) -> None:
    assert option_list("slime") is None
    listed = option_list(table.replace(" ", "-"))
    assert listed is not None
    for row in (row for row in TABLES[table] if not row.new):
        has = [version for version in listed.read if row.covers(listed.version(version))]
        assert all(listed.takes(row.key, version) for version in has[:1]), row.key
        assert row.until or listed.takes(row.key, None), row.key


@pytest.mark.parametrize("name", sorted(set(READERS) - {"trl-server"}))
def test_a_list_is_what_the_newest_wheel_takes(name: str) -> None:
    package, reader = READERS[name]
    version = VERSIONS[package][-1]
    try:
        names = set(reader(sources(wheel(package, version))))
    except NoWheelError as problem:
        pytest.skip(str(problem))
    listed = option_list(name)
    assert listed is not None
    assert names == {option for option in listed.ranges if listed.takes(option, version)}
