"""Prompts are computed once per completion in training."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.findings import signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.signals import any_of, logged, sampled
from grpo_doctor.findings.view import RunView, integer, timed_rule
from grpo_doctor.whatif import Edit, Replay, Settings

_PROMPTS, _COMPLETIONS = "rollout/prompt_tokens", "rollout/tokens"
_LENGTHS = ("prompt_length/mean", "response_length/mean")
RULE = timed_rule(
    "training",
    signals.SETTINGS,
    any_of(
        f"tokens of prompts and of completions: counters `{_PROMPTS}` and `{_COMPLETIONS}` per "
        "rollout (the bundled trainer records both; a prompt counts once per completion), or "
        f"metrics `{_LENGTHS[0]}` and `{_LENGTHS[1]}` (verl logs both)",
        sampled(_PROMPTS, ""),
        logged(*_LENGTHS),
    ),
    uses=(_COMPLETIONS,),
)
# A third of all tokens: below it the attention that is left, and the masks, eat what is saved.
MIN_REPEATED = 0.33
# What the fix is sure to give back, as a share of the step; two equal runs differ by 2%.
MIN_SHARE = 0.05
_SHARED, _GROUP, _MICRO = "train.share_prompts", "rollout.num_generations", "train.micro_batch"
_PHASES = ("train", "logprob")


@dataclass(frozen=True, slots=True)
class _Tokens:
    """Of a rollout or of one completion; `copies` of a prompt meet in a pass."""

    prompts: float
    completions: float
    copies: int
    source: str

    @property
    def repeated(self) -> float:
        """The share of all tokens that are a prompt's second copy or a later one."""
        every = self.prompts + self.completions
        return self.prompts * (1 - 1 / self.copies) / every if every else 0.0


def check(view: RunView) -> Answer:
    """Compare the repeated tokens with all, and the passes with the step."""
    if view.now(_SHARED) is True:
        return NotApplicable("a prompt is computed once for its completions in a pass")
    tokens = _tokens(view)
    if tokens is None:
        unknown = "their tokens" if integer(view.knob(_GROUP)) else "completions per prompt"
        return NotApplicable(f"{unknown} are unknown")
    if tokens.copies < 2:
        return NotApplicable("no pass holds two completions of one prompt")
    phases = tuple(phase for phase in _PHASES if view.share(phase))
    cost = tokens.repeated * sum(view.share(phase) for phase in phases)
    if tokens.repeated < MIN_REPEATED or cost < MIN_SHARE:
        return Passed(
            f"{percent(tokens.repeated)} of what the passes compute repeats a prompt: "
            f"{percent(cost, 1)} of the step"
        )
    return Finding(
        confidence=0.7,
        cost=cost,
        phases=phases,
        evidence=(
            Evidence("prompt tokens, once per completion", tokens.prompts, "", tokens.source),
            Evidence("completion tokens", tokens.completions, "", tokens.source),
            Evidence("completions of a prompt in one pass", tokens.copies, "", "settings"),
            Evidence("repeated, share of all tokens", 100 * tokens.repeated, "%", tokens.source),
            *view.phase_evidence(*phases),
        ),
        cause=f"{percent(tokens.repeated)} of the tokens that go through {' and '.join(phases)} "
        f"repeat a prompt that {tokens.copies} completions share.",
        fixes=(_fix(view, tokens),),
    )


def _tokens(view: RunView) -> _Tokens | None:
    group = integer(view.knob(_GROUP))
    if group is None or group < 1:
        return None
    copies = max(1, min(group, integer(view.knob(_MICRO)) or group))
    prompts, completions = view.counted_mean(_PROMPTS), view.counted_mean(_COMPLETIONS)
    if prompts is not None and completions is not None:
        return _Tokens(prompts, completions, copies, f"{_PROMPTS} and {_COMPLETIONS}")
    prompt, completion = (view.metric_mean(key) for key in _LENGTHS)
    if prompt is None or completion is None:
        return None
    return _Tokens(prompt, completion, copies, " and ".join(_LENGTHS))


def _fix(view: RunView, tokens: _Tokens) -> Fix:
    scenario = "with each prompt computed once in a pass (cautious end: half of that helps)"
    own = Replay((Edit(_PHASES, 1 - tokens.repeated),), scenario, half=True)
    change = Settings(((_SHARED, True),), own)
    if view.spell(_SHARED, True) is not None:
        risk = "The same gradients up to rounding; needs attention with custom masks."
        return view.setting(_SHARED, True, change, safety="changes-numerics", risk=risk)
    text = "use a forward pass that computes the prompt of a group once, for all its completions"
    risk = "This version of the framework has no setting for it."
    return view.advice(text, change, safety="needs-code", risk=risk)
