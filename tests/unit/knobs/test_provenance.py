"""Where a setting comes from, and when it has no effect: over all settings and frameworks."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from grpo_doctor import knobs
from grpo_doctor.knobs import KNOBS, TABLES
from grpo_doctor.knobs.model import Needs
from grpo_doctor.knobs.provenance import Provenance, Setting, Settings
from grpo_doctor.knobs.tables import NEEDS

NAMES = [knob.name for knob in KNOBS]
CHILDREN = [
    (need, name)
    for need in NEEDS
    for name in NAMES
    if any(fnmatchcase(name, glob) for glob in need.settings)
]


@pytest.mark.parametrize("framework", TABLES)
@pytest.mark.parametrize("provenance", [Provenance.GIVEN, Provenance.READ])
def test_nothing_that_was_not_said_is_a_fact(framework: str, provenance: Provenance) -> None:
    settings = Settings(framework, None, {}, provenance)
    assert settings.facts == {}
    for name in NAMES:
        setting = settings[name]
        assert (setting.provenance, setting.fact) == (Provenance.DEFAULT, None)
        assert setting.value == knobs.default(framework, None, name)


@pytest.mark.parametrize("framework", TABLES)
@pytest.mark.parametrize("name", NAMES)
def test_what_was_given_is_a_fact_where_nothing_else_is_known(framework: str, name: str) -> None:
    settings = Settings(framework, None, {name: "x"}, Provenance.GIVEN)
    assert settings[name] == Setting("x", Provenance.GIVEN)
    assert settings.facts == {name: "x"}


@pytest.mark.parametrize(("need", "name"), CHILDREN, ids=lambda part: str(part)[:40])
def test_a_setting_is_no_fact_while_what_it_needs_is_off(need: Needs, name: str) -> None:
    for value in need.off or ("elsewhere",):
        off = {**dict.fromkeys(need.parents, value), name: "x"}
        setting = Settings("unknown", None, off, Provenance.READ)[name]
        assert (setting.value, setting.fact, setting.active) == ("x", None, False)
    on = {**dict.fromkeys(need.parents, need.on[-1] if need.on else "elsewhere"), name: "x"}
    assert Settings("unknown", None, on, Provenance.READ)[name].fact == "x"


def test_every_need_names_known_settings_and_none_needs_itself() -> None:
    reached = {id(need) for need, _ in CHILDREN}
    for need in NEEDS:
        assert id(need) in reached, need
        assert set(need.parents) <= set(NAMES)
    assert not [(need, name) for need, name in CHILDREN if name in need.parents]
    for family in ("vllm.", "train.lora_"):
        members = {name for name in NAMES if name.startswith(family)} - {"vllm.use"}
        assert members <= {name for _, name in CHILDREN}


@pytest.mark.parametrize(
    ("framework", "said", "inactive"),
    [
        ("trl", {"deepspeed.offload_param": True}, {"deepspeed.offload_param"}),
        ("trl", {"deepspeed.stage": 3, "deepspeed.offload_param": True}, set()),
        ("openrlhf", {"deepspeed.offload_optimizer": True}, set()),
        ("bundled", {"train.type": "full", "train.lora_rank": 8}, {"train.lora_rank"}),
        ("bundled", {"train.lora_rank": 8}, set()),
        ("trl", {"train.lora_rank": 8}, {"train.lora_rank"}),
        ("verl", {"vllm.tensor_parallel_size": 2}, set()),
        ("trl", {"vllm.tensor_parallel_size": 2}, {"vllm.tensor_parallel_size"}),
    ],
)
def test_a_job_that_says_everything_also_says_what_is_off(
    framework: str, said: dict[str, object], inactive: set[str]
) -> None:
    read = Settings(framework, None, said, Provenance.READ)
    assert set(said) - set(read.facts) == inactive
    given = Settings(framework, None, {k: said[k] for k in inactive}, Provenance.GIVEN)
    assert "train.type" in said or given.facts.keys() == inactive
