"""What is set about DeepSpeed before its engine is made."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

pytest.importorskip("deepspeed", reason="needs the trainer extra")

from grpo_doctor_trainer.ranks import accelerator

_MUON = "deepspeed.runtime.zero.muon.original_muon"


def test_muon_is_imported_without_the_compiler_that_others_get(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = import_module("deepspeed.runtime.compiler")
    compiles = compiler.compile
    monkeypatch.delitem(sys.modules, _MUON, raising=False)
    accelerator._import_muon_uncompiled()
    assert not hasattr(sys.modules[_MUON].muon_update, "_torchdynamo_orig_callable")
    assert compiler.compile is compiles


def test_a_deepspeed_without_muon_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = import_module("deepspeed.runtime.compiler")
    compiles = compiler.compile
    monkeypatch.setitem(sys.modules, _MUON, None)
    accelerator._import_muon_uncompiled()
    assert compiler.compile is compiles
