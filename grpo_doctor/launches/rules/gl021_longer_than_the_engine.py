"""Prompt and completion are longer than the engine takes.

The engine refuses a prompt that leaves no room, and cuts completions off at max_model_len: they
end without an end token, count as truncated and get no reward.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import NOT_OPENRLHF, Flaw, View

DOMAIN = NOT_OPENRLHF


def check(view: View) -> Flaw | None:
    """Prompt + completion against max_model_len, of the server where there is one."""
    room = view.integer("vllm.max_model_len")
    server = view.launch.server
    if server is not None and server.sets("vllm.max_model_len"):
        room = int(server.value("vllm.max_model_len"))
    if not room:
        return None
    length, completion = view.length, view.completion
    if completion and completion >= room:
        text = f"completions of {completion} tokens, but {room} for prompt and completion together"
    elif length and length > room:
        text = f"prompt and completion have {length} tokens, but the engine takes {room}"
    else:
        return None
    needed = length or (completion or 0) + 1024
    return Flaw(
        severity="medium" if completion and completion >= room else "low",
        headline=text,
        evidence=(f"longest prompt {view.integer('data.max_length')}, completion {completion}",),
        fixes=(view.flag("vllm.max_model_len", needed), *_shorter(view, room - needed)),
        source=view.source("vllm.max_model_len", "rollout.max_completion_length"),
    )


_LEAST = 256  # a shorter completion answers little


def _shorter(view: View, excess: int) -> tuple[str, ...]:
    completion = (view.completion or 0) + excess
    if completion < _LEAST:
        return ()
    return (f"or {view.flag('rollout.max_completion_length', completion)}",)
