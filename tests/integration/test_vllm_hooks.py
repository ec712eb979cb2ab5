"""What `run` records of vLLM's engine in a job that it did not write: real vLLM, its CPU build."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("vllm", reason="needs vLLM, any build")

from grpo_doctor.trace.model import Trace
from grpo_doctor.trace.read import load
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]
GROUP, PROMPTS, PROMPT_TOKENS, TOKENS, AT_ONCE, ROLLOUTS = 8, 3, 20, 24, 8, 2
JOB = f"""
from vllm import LLM, SamplingParams
from grpo_doctor_probes import phase, step

if __name__ == "__main__":
    llm = LLM("model", dtype="float32", max_model_len=128, max_num_seqs={AT_ONCE},
              enforce_eager=True, num_gpu_blocks_override=40)
    asked = [{{"prompt_token_ids": list(range(5, {5 + PROMPT_TOKENS}))}}] * {PROMPTS}
    sampling = SamplingParams(n={GROUP}, max_tokens={TOKENS}, ignore_eos=True)
    for number in range({ROLLOUTS}):
        with step(number), phase("rollout"):
            llm.generate(asked, sampling)
"""

# One place in the engine: each request waits for those before it. The last one is aborted.
ASKING = """
import asyncio, json, time
from vllm import AsyncEngineArgs, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from grpo_doctor_probes.record import trajectories as record

async def ask(engine, number, tokens):
    one = record.begin()
    record.CURRENT.set(one)
    one.note(sample=number)
    sampling = SamplingParams(max_tokens=tokens, ignore_eos=True)
    prompt = {"prompt_token_ids": list(range(5, 25))}
    asked, first = time.monotonic(), None
    with one.part(record.GENERATE):
        async for answer in engine.generate(prompt, sampling, f"request-{number}"):
            first = first or time.monotonic()
    one.end()
    stats = answer.metrics
    return asked, first, time.monotonic(), stats and [stats.queued_ts, stats.scheduled_ts,
                                                      stats.first_token_ts, stats.last_token_ts]

async def main():
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(
        "model", dtype="float32", max_model_len=512, max_num_seqs=1, enforce_eager=True,
        num_gpu_blocks_override=80, disable_log_stats=WITHOUT_STATS))
    await ask(engine, 0, 8)
    asked = [asyncio.create_task(ask(engine, number, 64)) for number in range(1, 5)]
    last = asyncio.create_task(ask(engine, 5, 400))
    answers = await asyncio.gather(*asked)
    await asyncio.sleep(0.2)
    await engine.abort("request-5")
    json.dump([*answers, await last], open("answers.json", "w"))

if __name__ == "__main__":
    asyncio.run(main())
"""


def recorded(folder: Path, job: str, **engine: str) -> Trace:
    """What `run` records of a job with a tiny model."""
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    (folder / "job.py").write_text(job)
    command = [sys.executable, "-m", "grpo_doctor", "run", "-o", "run", "--no-check", "--"]
    done = subprocess.run(
        [*command, sys.executable, "job.py"],
        env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"} | engine, cwd=folder,
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return load(folder / "run" / "trace.json")


@pytest.mark.parametrize("own_process", [False, True])
def test_the_engine_says_what_it_had_to_do(tmp_path: Path, own_process: bool) -> None:
    trace = recorded(tmp_path, JOB, VLLM_ENABLE_V1_MULTIPROCESSING=str(int(own_process)))
    values = {
        series.name.removeprefix("engine/"): series.values.tolist()
        for series in trace.series
        if series.name.startswith("engine/")
    }
    completions = PROMPTS * GROUP
    assert values["prompt_tokens"] == [completions * PROMPT_TOKENS] * ROLLOUTS
    assert values["generated_tokens"] == [completions * TOKENS] * ROLLOUTS
    assert values["completions_of_17_to_32_tokens"] == [completions] * ROLLOUTS
    assert values["running_requests_peak"] == [AT_ONCE] * ROLLOUTS
    assert max(values["waiting_requests_peak"]) == completions - AT_ONCE
    assert values["preemptions"] == [0.0] * ROLLOUTS
    waves = completions / AT_ONCE
    assert all(waves * TOKENS <= steps < 2 * waves * TOKENS for steps in values["steps"])
    blocks = 39  # of 16 tokens; one is nobody's
    most = 100 * AT_ONCE * -(-(PROMPT_TOKENS + TOKENS) // 16) / blocks
    assert all(0 < peak <= most + 1 for peak in values["kv_cache_peak_pct"])
    roles = [process.role for process in trace.processes]
    assert roles == (["trainer", "engine"] if own_process else ["trainer"])


@pytest.mark.parametrize("without_stats", [False, True])
def test_a_request_waits_for_its_turn_in_the_engine(tmp_path: Path, without_stats: bool) -> None:
    found = recorded(tmp_path, ASKING.replace("WITHOUT_STATS", str(without_stats))).trajectories
    assert found is not None
    assert found.aborted_requests == 1
    answers = json.loads((tmp_path / "answers.json").read_text())
    ones = {one.numbers["sample"]: one for one in found.shown}
    for number, (asked, first, end, stats) in enumerate(answers, start=1):
        states = ones[number].states
        assert sum(states.values()) == pytest.approx(ones[number].seconds, rel=0.01)
        engine = [states[state] for state in ("engine queue", "prefill", "decode")]
        # By the client's stopwatch, which has the way there and back: its first token, its last.
        assert sum(engine[:2]) == pytest.approx(first - asked, rel=0.05, abs=0.1)
        assert engine[2] == pytest.approx(end - first, rel=0.05, abs=0.1)
        if number > 1:  # its turn comes when the one before it has ended
            before = answers[number - 2][2]
            assert engine[0] == pytest.approx(before - asked, rel=0.05, abs=0.1)
        if stats and number < len(answers):  # vLLM's own of one that was aborted end early
            assert engine == pytest.approx(np.diff(stats), rel=0.05, abs=0.002)
