"""Functions of the job's that are replaced: which, by what, and what stays as it was."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Generator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.hooks.spans import _OPEN
from grpo_doctor_probes.hooks.table import HOOKED, Hook
from grpo_doctor_probes.hooks.wrapping import (
    after,
    before,
    each,
    on_result,
    replace,
    spanned,
    with_gpu_times,
    without_span,
    wrap_hook,
)
from grpo_doctor_probes.record import layout, recorder
from tests.unit.probes.conftest import Recorded

CODE = '''
def free(x):
    """Free."""
    return ("free", x)

class Base:
    number = 7

    def inherited(self, x):
        return ("inherited", x)

class Kind(Base):
    def method(self, x):
        return ("method", x)

    @staticmethod
    def static(x):
        return ("static", x)

    @classmethod
    def of_class(cls, x):
        return (cls.__name__, x)

    class Inner:
        def deep(self, x):
            return ("deep", x)
'''


@pytest.fixture
def module() -> Any:
    """A module as a framework has one."""
    made = ModuleType("framework")
    exec(CODE, vars(made))
    return made


def doubled(function: Any) -> Any:
    """What `replace` is given: here it calls twice."""
    inner = getattr(function, "__func__", function)

    def call(*args: Any, **kwargs: Any) -> Any:
        return [inner(*args, **kwargs), inner(*args, **kwargs)]

    return call if inner is function else type(function)(call)


def test_a_replaced_function_keeps_its_name_its_words_and_is_marked(module: Any) -> None:
    replace(module, "free", doubled)
    assert (module.free.__name__, module.free.__doc__) == ("free", "Free.")
    assert list(inspect.signature(module.free).parameters) == ["x"]
    assert getattr(module.free, HOOKED)
    assert not hasattr(module.Kind.method, HOOKED)


def hook(**more: Any) -> Hook:
    return Hook("framework", "free", "train", "1.0-", **more)


class Pause:
    def __await__(self) -> Generator[None, None, None]:
        yield


@pytest.mark.parametrize("shared", [True, False])
def test_the_span_of_a_shared_hook_lasts_as_long_as_any_of_those_side_by_side(
    recording: Recorded, module: Any, shared: bool
) -> None:
    async def free(x: int) -> int:
        await Pause()
        return x

    module.free = free
    wrap_hook(module, hook(shared=shared))
    first, last = module.free(1), module.free(2)
    for coroutine in (first, last):
        coroutine.send(None)
    for coroutine, still_open in ((first, shared), (last, False)):
        with pytest.raises(StopIteration):
            coroutine.send(None)
        assert _OPEN.names == (["train"] if still_open else [])
    assert recording.names == ["train"]


@pytest.mark.parametrize(
    ("span_of", "recorded", "errors"),
    [
        (lambda x: f"train/{x}", ["train/1"], 0),
        (lambda x: None, [], 0),
        (lambda: "never", [], 1),  # it does not understand the call
    ],
)
def test_a_span_by_the_arguments_of_the_call(
    recording: Recorded, module: Any, span_of: Any, recorded: list[str], errors: int
) -> None:
    assert wrap_hook(module, hook(span_of=span_of))
    assert not wrap_hook(module, Hook("framework", "gone", "train", "1.0-"))
    assert module.free(1) == ("free", 1)
    assert recording.names == recorded
    assert recording.header.errors == errors


def test_one_function_has_one_span_however_often_it_is_asked_for(
    recording: Recorded, module: Any
) -> None:
    plain = module.free
    once = spanned(plain, "reward/free")
    assert spanned(once, "reward/other") is once
    assert without_span(once) is plain
    assert without_span(plain) is plain
    assert once(3) == ("free", 3)
    assert recording.names == ["reward/free"]


@pytest.mark.parametrize(
    ("starts", "asks", "errors"),
    [("recorded", 2, 0), ("asked for", 2, 0), ("fails", 2, 2), ("", 0, 0)],
)
def test_what_works_on_the_gpu_looks_whether_cuda_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: str, asks: int, errors: int
) -> None:
    calls: list[int] = []

    def is_initialized() -> bool:
        calls.append(1)
        if starts == "fails":
            raise ValueError("a torch from tomorrow")
        return False

    cuda = SimpleNamespace(is_initialized=is_initialized)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    if starts:
        monkeypatch.setenv("GRPO_DOCTOR_RUN_DIR", str(tmp_path))
    if starts in ("recorded", "fails"):
        assert recorder.start()
    triple = with_gpu_times(lambda value: 3 * value)
    assert (triple(2), triple(3), len(calls)) == (6, 9, asks)
    assert (recorder.ACTIVE.file.state[layout.STATE_ERRORS] if recorder.ACTIVE else 0) == errors


def test_notes_of_a_coroutine_are_made_around_what_it_awaits(recording: Recorded) -> None:
    calls: list[Any] = []

    async def function(x: int) -> int:
        await asyncio.sleep(0)
        calls.append("call")
        return x

    note = each(
        before(calls.append), after(calls.append), on_result(lambda *all: calls.append(all))
    )
    assert inspect.iscoroutinefunction(note(function))
    assert asyncio.run(note(function)(3)) == 3
    assert calls == [3, "call", 3, (3, 3)]
