"""vLLM's engine: in a trainer's process, and in a process of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from grpo_doctor.trace.model import Kind
from grpo_doctor_probes.record.rundir import HOOKS_VARIABLE
from grpo_doctor_probes.supervisor.launch import STARTUP, plan
from tests.unit.probes.hooks.hooked_job import recorded, run_job, span_names

CORE = '''
class Scheduler:
    left = 0

    def has_unfinished_requests(self):
        return self.left > 0

    def get_request_counts(self):
        return self.left, 0

    @property
    def kv_cache_manager(self):
        return self

    usage = 0.25

class EngineCore:
    def __init__(self):
        self.scheduler = Scheduler()
        self.step_fn = self.step

    def step(self):
        self.scheduler.left = max(0, self.scheduler.left - 1)
        return {}, True

    def abort_requests(self, ids):
        self.scheduler.left = 0

    def sleep(self, level=1):
        self.pause_scheduler()

    def wake_up(self, tags=None):
        self.resume_scheduler()

    def pause_scheduler(self):
        pass

    def resume_scheduler(self):
        pass

    def collective_rpc(self, method, *args):
        return [method]

class EngineCoreProc(EngineCore):
    @staticmethod
    def run_engine_core(work):
        """Launch it."""
        work(EngineCoreProc())
'''
LLM = """
from vllm.v1.engine.core import EngineCore

class LLM:
    def __init__(self):
        self.core = EngineCore()

    def generate(self, prompts):
        self.core.scheduler.left = 2
        while self.core.scheduler.left:
            self.core.step_fn()
        return prompts

    def sleep(self, level=1):
        self.core.sleep()

    def wake_up(self, tags=None):
        self.core.wake_up()

    def collective_rpc(self, method):
        return self.core.collective_rpc(method)
"""
MODULES = {"vllm.v1.engine.core": CORE, "vllm.entrypoints.llm": LLM}


def test_a_trainers_own_engine_generates_sleeps_and_takes_weights(tmp_path: Path) -> None:
    program = """
    from vllm.entrypoints.llm import LLM
    llm = LLM()
    print(llm.generate(["a"]), llm.collective_rpc("update_weight"), llm.collective_rpc("ping"))
    llm.sleep()
    llm.wake_up()
    """
    result = run_job(tmp_path, program, modules=MODULES)
    assert (result.stdout, result.stderr) == ("['a'] ['update_weight'] ['ping']\n", "")
    trace = recorded(tmp_path)
    assert span_names(trace) == ["rollout/generate", "sync", "offload", "offload"]
    steps = next(series for series in trace.series if series.name == "engine/steps")
    assert (steps.rank, steps.values.tolist()) == (0, [2.0])
    assert [p.role for p in trace.processes] == ["trainer"]


def test_a_core_in_its_own_process_has_one_span_for_each_time_that_it_has_requests(
    tmp_path: Path,
) -> None:
    program = """
    import multiprocessing
    from vllm.v1.engine.core import EngineCoreProc

    def work(core):
        for requests in (3, 2):
            core.scheduler.left = requests
            for _ in range(requests + 1):
                core.step_fn()
        core.scheduler.left = 5
        core.step_fn()
        core.abort_requests([])
        core.pause_scheduler()
        core.collective_rpc("update_weight")
        core.resume_scheduler()
        core.sleep()
        core.wake_up()

    if __name__ == "__main__":
        run = EngineCoreProc.run_engine_core
        process = multiprocessing.get_context("spawn").Process(target=run, args=(work,))
        process.start()
        process.join()
        print(process.exitcode)
    """
    result = run_job(tmp_path, program, modules=MODULES)
    assert (result.stdout, result.stderr) == ("0\n", "")
    trace = recorded(tmp_path)
    assert span_names(trace) == [
        "rollout/generate", "rollout/generate", "rollout/generate", "sync/pause", "sync",
        "offload", "offload",
    ]  # fmt: skip
    assert [p.role for p in trace.processes] == ["engine"]
    pause, sync = (trace.names.index(name) for name in ("sync/pause", "sync"))
    spans = trace.spans
    inner, outer = ((spans.name == name) & (spans.kind == Kind.SPAN) for name in (sync, pause))
    assert spans.end_ns[inner] <= spans.end_ns[outer]


def test_the_bundled_trainers_engine_is_not_hooked_a_second_time(tmp_path: Path) -> None:
    program = """
    import grpo_doctor_trainer
    from vllm.entrypoints.llm import LLM
    print(LLM().generate([]), hasattr(LLM.generate, "__wrapped__"))
    """
    result = run_job(tmp_path, program, modules={**MODULES, "grpo_doctor_trainer.loop": ""})
    assert (result.stdout, result.stderr) == ("[] False\n", "")
    assert not (tmp_path / "run").exists()


def test_a_run_of_the_bundled_trainer_sets_no_hooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv(HOOKS_VARIABLE, "1")  # as within another run
    bundled = plan(["--use_vllm", "true"], tmp_path, ranks=2).environment
    command = plan(["sleep", "1"], tmp_path).environment
    assert bundled.get(HOOKS_VARIABLE) != "1"
    assert command[HOOKS_VARIABLE] == "1"
    assert str(STARTUP) not in bundled.get("PYTHONPATH", "")
    assert str(STARTUP) in command["PYTHONPATH"]
