"""How an engine samples and what it answers, inside a rank and on a server; imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.serve.protocol import Completion, Sampling

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.model.load import LoadedModel

_NEVER = -100.0  # added to a logit


def sampling_of(config: TrainerConfig, loaded: LoadedModel) -> Sampling:
    """Gives the sampling options as the server takes them."""
    return Sampling(
        max_tokens=config.max_completion_length,
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        repetition_penalty=config.repetition_penalty,
        stop_tokens=loaded.end_tokens,
        never_tokens=() if loaded.vision is None else tuple(loaded.vision.placeholders),
    )


def sampling_options(sampling: Sampling, seed: int | None = None) -> dict[str, Any]:
    """Names the sampling options as vLLM's `SamplingParams` does.

    Args:
        sampling: how to sample.
        seed: of this completion; none: the engine's own randomness.
    """
    return {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": max(sampling.top_k, 0),
        "repetition_penalty": sampling.repetition_penalty,
        # vLLM would take the tokenizer's end token alone; these are all of the trainer's.
        "ignore_eos": True,
        "stop_token_ids": list(sampling.stop_tokens),
        # Outside a prompt they stand for nothing; vLLM has no list of tokens to leave out.
        "logit_bias": dict.fromkeys(sampling.never_tokens, _NEVER) or None,
        "seed": seed,
        "logprobs": 0,  # of the sampled token, and of no others
        "detokenize": False,
    }


def sampling_parameters(sampling: Sampling, seed: int | None = None) -> Any:
    """Gives vLLM's `SamplingParams` for one request: it completes them in place.

    Args:
        sampling: how to sample.
        seed: of this completion; none: the engine's own randomness.
    """
    from vllm import SamplingParams  # noqa: PLC0415 - has been imported with the engine
    from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415

    options = sampling_options(sampling, seed)
    return SamplingParams(**options, output_kind=RequestOutputKind.FINAL_ONLY)


def read_output(output: Any) -> Completion:
    """Takes what matters of vLLM's `RequestOutput`.

    Raises:
        RolloutError: the engine gave the request up.
    """
    completion = output.outputs[0]
    if completion.finish_reason not in {"stop", "length"}:
        raise RolloutError(
            f"vLLM gave up a completion after {len(completion.token_ids)} tokens "
            f"({completion.finish_reason}); its log says why"
        )
    return completion_of(output)


def completion_of(output: Any) -> Completion:
    """Takes the completion out of vLLM's `RequestOutput`, however it ended."""
    completion = output.outputs[0]
    tokens = list(completion.token_ids)
    logprobs = [
        float(at[token].logprob) for token, at in zip(tokens, completion.logprobs, strict=True)
    ]
    return Completion(tokens, logprobs, len(output.prompt_token_ids))
