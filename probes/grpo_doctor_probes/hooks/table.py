"""What an adapter says: which functions of a framework are which phase."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

Around = Callable[[Callable[..., Any]], Callable[..., Any]]
# An attribute of functions that were replaced, and of what is wrapped around them later.
HOOKED = "__grpo_doctor_hooked__"


class Hook(NamedTuple):
    """One function of a framework that is a phase, or a part of one.

    Args:
        module: where the function is defined.
        qualname: `Class.method` or `function`. Only what the class itself defines is wrapped.
        span: a phase (`rollout`) or a sub-span (`rollout/generate`).
        versions: the framework's versions that have it: `0.16-0.26`, `0.27-` for "and newer".
        unless: spans within which a call is part of something else: the forward pass that gives
            log-probs also serves the loss.
        span_of: gives the span of one call from its arguments, or None for no span at all; `span`
            is then what these have in common.
        shared: coroutines of one thread call it side by side; their span is one, as long as any
            of them is in it.
        state: what the current trajectory is in meanwhile; see `record.trajectories`.
    """

    module: str
    qualname: str
    span: str
    versions: str
    unless: tuple[str, ...] = ()
    span_of: Callable[..., str | None] | None = None
    shared: bool = False
    state: str = ""


class Adapter(NamedTuple):
    """What is hooked of one package.

    Args:
        distribution: the package's name on the package index, for its version.
        hooks: functions that become spans.
        patches: by module and name, what is made of a function for what is more than a span, once
            after the import. It may raise; that is noted and the job continues.
    """

    distribution: str
    hooks: tuple[Hook, ...]
    patches: Mapping[str, Mapping[str, Around]] = MappingProxyType({})

    def modules(self) -> set[str]:
        """Return the modules after whose import there is something to do."""
        return {hook.module for hook in self.hooks} | set(self.patches)
