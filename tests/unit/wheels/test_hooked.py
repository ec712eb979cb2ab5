from __future__ import annotations

import pytest

from grpo_doctor_probes.hooks.table import Adapter, Hook
from tests.wheels.hooked import functions_of, mismatches, within


@pytest.mark.parametrize(
    ("version", "versions", "inside"),
    [
        ("0.26.2", "0.16-0.26", True),
        ("0.27.0", "0.16-0.26", False),
        ("0.15.2", "0.16-0.26", False),
        ("9.9", "4.4-", True),
        ("3.11.3", "3.11", True),
        ("3.12.0", "3.11", False),
    ],
)
def test_which_versions_a_range_has(version: str, versions: str, inside: bool) -> None:
    assert within(version, versions) is inside


FILES = {
    "trl/trainer.py": "class T:\n    async def a(self): ...\n    if x:\n        def b(self): ...\n",
    "trl/sub/__init__.py": "def f(): ...\n",
}


def test_functions_of_modules_and_packages() -> None:
    assert functions_of(FILES, "trl.trainer") == {"T.a", "T.b"}
    assert functions_of(FILES, "trl.sub") == {"f"}
    assert functions_of(FILES, "trl.gone") == set()


def test_a_lost_function_is_told_with_its_phase_and_what_still_shows_it() -> None:
    hooks = (
        Hook("trl.trainer", "T.a", "reward", "1.0-"),
        Hook("trl.trainer", "T.gone", "reward", "1.0-"),
        Hook("trl.trainer", "T.old", "sync", "0.1-0.9"),
    )
    assert list(mismatches(Adapter("trl", hooks), "1.2.0", FILES)) == [
        "trl 1.2.0: no trl.trainer:T.gone; lost: reward (still hooked: T.a)"
    ]
