"""A job of torchrun's for `test_vllm_colocate.py`: engines in its ranks, one after another.

    torchrun vllm_colocate_job.py RESULT CASES.json

It builds a run for each case as the trainer does, in the same processes, and does what the case
says with it: see `KINDS`. Each rank writes what it found to RESULT.<rank>.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.trainer_jobs import forget

ROUNDS = 2


def main() -> int:
    from grpo_doctor_trainer.errors import TrainerError
    from grpo_doctor_trainer.flags import parse
    from grpo_doctor_trainer.ranks import join_ranks, leave_ranks
    from grpo_doctor_trainer.setup import set_up

    ranks = join_ranks(120)
    result, cases = sys.argv[1:]
    results: list[Any] = []
    for kind, flags in json.loads(Path(cases).read_text()):
        started = time.monotonic()
        try:
            run = set_up(parse(flags, ranks.world_size), ranks)
            try:
                results.append(KINDS[kind](run))
            finally:
                run.close()
        except TrainerError as error:
            results.append(str(error))
        forget()
        sys.stderr.write(f"{kind} {flags}: {time.monotonic() - started:.1f} s\n")
        Path(f"{result}.{ranks.rank}").write_text(json.dumps(results), encoding="utf-8")
    leave_ranks()
    return 0


def rounds(run: Any) -> list[dict[str, Any]]:
    """Compares what the engine samples with the trainer's own log-probs, and what it makes greedily
    (top_k 1) with what transformers makes of the same weights; then takes a step of training.
    """
    return [one_round(run) for _ in range(ROUNDS)]


def wrong_weights(run: Any) -> None:
    """Trains with other weights than those that the engine was given."""
    import torch

    from grpo_doctor_trainer.loop import train as train_run

    sync = run.rollout.sync

    def sync_and_go_away() -> None:
        sync()
        with torch.no_grad():
            for weight in run.engine.module.parameters():
                weight.mul_(3)

    run.rollout.sync = sync_and_go_away
    train_run(run)


def never(_run: Any) -> str:
    """Says that a run has started that should not have."""
    return "started"


KINDS = {"rounds": rounds, "wrong weights": wrong_weights, "never": never}


def one_round(run: Any) -> dict[str, Any]:
    import torch

    from grpo_doctor_trainer.rollout.transformers import TransformersRollout

    # With a vision-language model, those that have images.
    prompts = next(p for p in run.prompts if p.images is None or any(p.images.counts))
    before = fingerprint(run.engine)
    run.rollout.sync()
    rng_state = torch.random.get_rng_state()
    with run.offload.during_rollout(), run.rollout.awake():
        batch = run.rollout.generate(prompts)
        greedy = dataclasses.replace(run.config, top_k=1)
        run.rollout._config, sampling = greedy, run.rollout._config
        greedily = run.rollout.generate(prompts)
        run.rollout._config = sampling
    result: dict[str, Any] = {"untouched": before == fingerprint(run.engine)}
    result["draws"] = bool((rng_state != torch.random.get_rng_state()).any())
    result["tokens"] = batch.tokens.completion_tokens.tolist()

    mine = own_logprobs(run, batch.tokens)
    mask = batch.tokens.completion_mask.bool()
    gap = (mine - batch.logprobs)[mask].abs()
    result["gap_max"], result["gap_mean"] = float(gap.max()), float(gap.mean())

    reference = TransformersRollout(run.engine, run.rollout._loaded, greedy).generate(prompts)
    result["equal"] = same(greedily.tokens, reference.tokens)
    result["greedy"] = len({tuple(row) for row in greedily.tokens.completion_tokens.tolist()})
    train(run, batch.tokens)
    result["trained"] = before != fingerprint(run.engine)
    return result


def own_logprobs(run: Any, tokens: Any) -> Any:
    """The trainer's log-probs, among the tokens that may be sampled: of a vision-language model
    placeholders of images may not, and a random one gives them 2 of 265 parts.
    """
    import torch

    from grpo_doctor_trainer.algorithm.logprobs import completion_logits, logprobs_in_parts

    vision = run.rollout._loaded.vision
    if vision is None:
        return logprobs_in_parts(run.engine.model, tokens, run.config.temperature, 64)
    with torch.no_grad():
        logits = completion_logits(run.engine.model, tokens, run.config.temperature)
    logits[..., list(vision.placeholders)] = -torch.inf
    chosen = tokens.completion_tokens.unsqueeze(-1)
    return logits.log_softmax(-1).gather(-1, chosen).squeeze(-1)


def same(left: Any, right: Any) -> float:
    """The share of completions that are equal, padding included where there is."""
    import torch

    wide = max(left.completion_tokens.size(1), right.completion_tokens.size(1))
    rows = []
    for batch in (left, right):
        tokens = batch.completion_tokens * batch.completion_mask
        rows.append(torch.nn.functional.pad(tokens, (0, wide - tokens.size(1))))
    return float((rows[0] == rows[1]).all(dim=1).double().mean())


def fingerprint(engine: Any) -> list[str]:
    from hashlib import sha256

    weights = [getattr(w, "ds_tensor", w) for w in engine.module.parameters()]
    return [sha256(w.detach().numpy().tobytes()).hexdigest() for w in weights]


def train(run: Any, tokens: Any) -> None:
    """Takes a step that changes weights and answers."""
    from grpo_doctor_trainer.algorithm.logprobs import completion_logits

    with run.engine.micro_batch(last=True):
        logits = completion_logits(run.engine.model, tokens, 1.0)
        targets = (tokens.completion_tokens + tokens.prompt_tokens[:, -6:-5]) % 256
        logprobs = logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1))
        run.engine.backward(-logprobs.mean())
    run.engine.step(1e-2)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
