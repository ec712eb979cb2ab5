"""What `run` records of vLLM's engine in a job that it did not write: real vLLM, its CPU build."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="needs vLLM, any build")

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


@pytest.mark.parametrize("own_process", [False, True])
def test_the_engine_says_what_it_had_to_do(tmp_path: Path, own_process: bool) -> None:
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "job.py").write_text(JOB)
    engine = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(own_process)), "VLLM_CPU_KVCACHE_SPACE": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "grpo_doctor", "run", "-o", "run", "--no-check", "--"]
    done = subprocess.run(
        [*command, sys.executable, "job.py"],
        env=os.environ | engine, cwd=tmp_path, capture_output=True, text=True, timeout=500,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    trace = load(tmp_path / "run" / "trace.json")
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
