"""What a rollout engine counts, compared between two answers of its /metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor_probes.evidence import EngineLook


@dataclass(frozen=True, slots=True)
class Counted:
    """What /metrics says: the last answer, and what grew since the first, `seconds` before.

    `made`, `preempted`: tokens made and requests thrown out of the cache meanwhile; `made` is None
    where the engine does not count its tokens. `cache`: the share of its cache in use.
    """

    seconds: float
    made: float | None
    preempted: float
    running: float
    queued: float
    cache: float | None = None
    asleep: bool = False
    filled: bool = False  # other cache in use than at the first answer

    @property
    def asked(self) -> bool:
        """Whether it has anything to do."""
        return self.running + self.queued > 0

    @property
    def counts_tokens(self) -> bool:
        """Whether it is certain that no token came out where none was seen."""
        return self.made is not None

    @property
    def makes_progress(self) -> bool:
        """Whether tokens came out, as far as that can be seen."""
        return self.filled if self.made is None else self.made > 0

    def text(self) -> str:
        """`0 tokens in 1.6 s, 1 request runs, 3 wait, cache 98% full`."""
        made = "" if self.made is None else f"{self.made:.0f} tokens in {self.seconds:.1f} s, "
        thrown = f", {self.preempted:.0f} preempted meanwhile" if self.preempted else ""
        full = "" if self.cache is None else f", cache {self.cache:.0%} full"
        return f"{made}{self.running:.0f} requests run, {self.queued:.0f} wait{full}{thrown}"


def counted(looks: Sequence[EngineLook]) -> Counted | None:
    """Compares the first and last answers of an engine's fronts; None without two of any.

    They are asked by several threads, and an engine that is busy may answer the first one last.
    """
    fronts: dict[tuple[int, str], list[tuple[int, dict[str, float]]]] = defaultdict(list)
    for look in sorted(looks, key=lambda look: look.at_ns):
        values = _by_name(look.values or {})
        if "num_requests_running" in values:
            fronts[look.pid, look.url].append((look.at_ns, values))
    pairs = [(answers[0], answers[-1]) for answers in fronts.values() if len(answers) > 1]
    if not pairs:
        return None
    first = _sum([answer for (_, answer), _ in pairs])
    last = _sum([answer for _, (_, answer) in pairs])
    tokens, thrown, cache = "generation_tokens_total", "num_preemptions_total", "kv_cache_usage"
    return Counted(
        seconds=max(ended_ns - began_ns for (began_ns, _), (ended_ns, _) in pairs) / 1e9,
        made=last[tokens] - first.get(tokens, 0) if tokens in last else None,
        preempted=last.get(thrown, 0) - first.get(thrown, 0),
        running=last["num_requests_running"],
        queued=last.get("num_requests_waiting", 0),
        cache=max((answer[cache] for _, (_, answer) in pairs if cache in answer), default=None),
        asleep=last.get("asleep", 0) > 0,
        filled=last.get(cache) != first.get(cache),
    )


def _sum(answers: Sequence[dict[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for values in answers:
        for name, value in values.items():
            sums[name] += value
    return dict(sums)


def _by_name(values: dict[str, float]) -> dict[str, float]:
    """Without an engine's prefix and labels."""
    return {key.partition("{")[0].rpartition(":")[2]: value for key, value in values.items()}
