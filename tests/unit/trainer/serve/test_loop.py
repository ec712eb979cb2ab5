"""The loop that steps one engine for all requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

pytest.importorskip("torch", reason="needs the trainer extra")

from grpo_doctor_trainer.serve import loop as loop_module
from grpo_doctor_trainer.serve.loop import (
    EngineFailedError,
    EngineLoop,
    NewSequence,
    RequestError,
    wait_for,
)
from grpo_doctor_trainer.serve.protocol import (
    Generated,
    GenerateRequest,
    Prompt,
    Sampling,
)
from tests.unit.trainer.serve.served import CountingEngine


def request(*prompts: Prompt, tokens: int = 3, seed: int | None = None) -> GenerateRequest:
    return GenerateRequest("w1", list(prompts), Sampling(tokens, 1.0, 1.0, -1, 1.0, ()), seed)


@contextmanager
def looping(engine: CountingEngine) -> Iterator[EngineLoop]:
    loop = EngineLoop(engine)

    def run() -> None:
        with suppress(EngineFailedError):
            loop.run()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield loop
    finally:
        loop.stop()
        thread.join(10)
        assert not thread.is_alive()


def result(loop: EngineLoop, request: GenerateRequest) -> Generated:
    job = loop.start(request)
    assert job.done.wait(60)
    return job.result()


def test_completions_come_in_the_order_of_prompts_and_copies() -> None:
    with looping(CountingEngine(room=2)) as loop:
        made = result(loop, request(Prompt(2, [5]), Prompt(1, [1, 70]), seed=10))
    assert [each.tokens for each in made.completions] == [[6, 7, 8], [6, 7, 8], [71, 72, 73]]
    assert [each.prompt_tokens for each in made.completions] == [1, 1, 2]
    assert [each.logprobs[0] for each in made.completions] == [-10, -11, -12]  # a seed for each
    statistics = made.statistics
    assert (statistics.running_peak, statistics.waiting_peak, statistics.steps) == (2, 1, 6)
    assert statistics.kv_cache_peak == 1.0
    assert 1 < statistics.running_mean < 2


def test_requests_share_steps() -> None:
    engine = CountingEngine(step_s=0.01)
    with looping(engine) as loop:
        jobs = [loop.start(request(Prompt(4, [start]), tokens=100)) for start in (1, 2, 3)]
        assert all(job.done.wait(60) for job in jobs)
    assert engine.steps < 200
    assert max(job.result().statistics.running_peak for job in jobs) == 12


def test_a_refused_prompt_leaves_nothing_behind() -> None:
    engine = CountingEngine()
    with looping(engine) as loop:
        with pytest.raises(RequestError, match="token 400 is not in the vocabulary"):
            loop.start(request(Prompt(2, [5]), Prompt(1, [400])))
        assert engine.aborted == ["0", "1"]
        assert result(loop, request(Prompt(1, [5]))).completions[0].tokens == [6, 7, 8]


def test_a_cancelled_request_makes_room() -> None:
    engine = CountingEngine(room=1, step_s=0.01)
    with looping(engine) as loop:
        long = loop.start(request(Prompt(1, [1]), tokens=10_000))
        short = loop.start(request(Prompt(1, [2])))
        assert not short.done.wait(0.2)
        loop.cancel(long)
        assert short.done.wait(60)
        with pytest.raises(RequestError, match="cancelled"):
            long.result()
    assert not engine.open


def test_an_engine_that_breaks_tells_everyone() -> None:
    engine = CountingEngine(step_s=0.01)
    engine.breaks_at = 5
    with looping(engine) as loop:
        jobs = [loop.start(request(Prompt(1, [1]), tokens=100)) for _ in range(2)]
        for job in jobs:
            assert job.done.wait(60)
            with pytest.raises(EngineFailedError, match="RuntimeError: a kernel broke"):
                job.result()
        with pytest.raises(EngineFailedError, match="a kernel broke"):
            loop.start(request(Prompt(1, [1])))


def test_a_stopped_loop_leaves_nobody_waiting() -> None:
    with looping(CountingEngine(step_s=0.01)) as loop:
        job = loop.start(request(Prompt(1, [1]), tokens=100_000))
        loop.stop()
        assert job.done.wait(60)
        with pytest.raises(EngineFailedError, match="stopped"):
            job.result()
        with pytest.raises(EngineFailedError, match="stopped"):
            loop.call(lambda: None)


def test_functions_run_between_steps_and_their_errors_come_back() -> None:
    with looping(CountingEngine()) as loop:
        assert loop.call(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            loop.call(lambda: 1 // 0)
        assert loop.snapshot().running == 0


def test_silence_is_told_from_progress() -> None:
    with looping(CountingEngine(step_s=0.4)) as loop:
        job = loop.start(request(Prompt(1, [1]), tokens=3))
        assert not wait_for(job, 0.1)  # comes back for the first step, and not before it
        assert job.tally.steps >= 1
        while not wait_for(job, 0.1):
            pass
        assert job.done.is_set()


def test_each_sequence_of_a_request_has_a_seed_of_its_own() -> None:
    seeds: list[int | None] = []

    class Noting(CountingEngine):
        def add(self, sequence: NewSequence) -> None:
            seeds.append(sequence.seed)
            super().add(sequence)

    with looping(Noting()) as loop:
        result(loop, request(Prompt(2, [5]), Prompt(1, [1, 70]), seed=10))
        result(loop, request(Prompt(2, [5])))
    assert seeds == [10, 11, 12, None, None]


def test_a_function_that_takes_its_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "_IDLE_S", 0.001)
    with looping(CountingEngine()) as loop:
        assert loop.call(lambda: threading.Event().wait(0.05) or "done") == "done"
