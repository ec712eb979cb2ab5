"""The faults, what is true of each, and in which job they are tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.frameworks.jobs import CODE

FATAL, ALIVE = ("stuck", "dead"), ("healthy", "slow")
REWARD = ("reward-blocked",)
ENGINE = ("rollout-engine-dead", "rollout-engine-stalled")
YOUNG_S = 20.0  # before that a fault may still be called slow


@dataclass(frozen=True)
class Case:
    """`act` is an order that the job obeys, or `stop`/`kill` of the processes named `target`.

    `line` is the user's file in which the act's mark is; `culprits` None where any or none may be
    named, as with an engine: a rank may wait for it. `ages_s` are when to attach after the fault
    began; `seconds` of one call of a judge.
    """

    name: str
    act: str
    classes: tuple[str, ...] = REWARD
    states: tuple[str, ...] = FATAL
    line: str = "reward.py"
    target: str = ""
    actor: str = ""
    rank: int | None = None
    culprits: tuple[int, ...] | None = ()
    seconds: float = 0.0
    ages_s: tuple[float, ...] = (6.0, 30.0, 75.0)

    @property
    def location(self) -> str:
        """`reward.py:31` of the user's line, empty where there is none."""
        return place_of(self.line, self.act)


@dataclass(frozen=True)
class Round:
    """One job with its faults, one after the other: all but the last can be ended."""

    framework: str
    cases: tuple[Case, ...]
    healthy: int = 0
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    piped: bool = False


def place_of(file: str, act: str) -> str:
    path = CODE / file
    if not file or not path.exists():
        return ""
    lines = path.read_text(encoding="utf-8").splitlines()
    hits = [n for n, text in enumerate(lines, 1) if text.endswith(f"# act: {act}")]
    return f"{Path(file).name}:{hits[0]}" if hits else ""


def _judges(*, act: str = "judge", actor: str = "") -> tuple[Case, ...]:
    ages = (3.0, 9.0, 16.0)
    return tuple(
        Case(f"{act} {s:.0f} s", act, (), ALIVE, actor=actor, seconds=s, culprits=None, ages_s=ages)
        for s in (12.0, 20.0, 40.0)
    )


_ALSO = {"child": ("child-stuck",), "fifo": ("storage-blocked",)}


def _reward(act: str, actor: str, culprits: tuple[int, ...] | None = ()) -> Case:
    classes = (*REWARD, *_ALSO.get(act, ()))
    return Case(f"reward: {act}", act, classes, actor=actor, culprits=culprits)


_VERL = "RewardLoopWorker"
_ASYNC = ("reward.custom_reward_function.name=compute_score_async",)
_VERL_ROLLOUT = Case(
    "rollout stopped", "stop", ENGINE, line="", target=r"ray::RolloutServer",
    actor="RolloutServer",
)  # fmt: skip
_OPENRLHF = "RolloutRayActor"
_STOPPED_RANK = ("rank-stopped",)


def _rank_of(title: str) -> Case:
    return Case("rank stopped", "stop", _STOPPED_RANK, line="", target=title, culprits=None)


ROUNDS: tuple[Round, ...] = (
    Round("verl", (*_judges(actor=_VERL), _reward("socket", _VERL)), healthy=12),
    Round("verl", (
        _VERL_ROLLOUT,
        Case("reward worker stopped", "stop", (*REWARD, "worker-stopped", "user-code-blocked"),
             line="", target=f"ray::{_VERL}", actor=_VERL),
        _reward("fifo", _VERL), _reward("child", _VERL), _rank_of(r"ray::\w*WorkerDict"),
    )),
    Round("verl", (_reward("sleep", _VERL),)),
    Round("verl", (_reward("lock", _VERL),)),
    Round("verl", (_reward("future", _VERL),), options=_ASYNC),
    Round("verl", (
        *_judges(act="async-judge", actor=_VERL), _reward("async-socket", _VERL)
    ), options=_ASYNC),
    Round("verl", (Case("rollout killed", "kill", ENGINE, line="",
                        target="ray::RolloutServer", actor="RolloutServer"),)),
    Round("verl", (_reward("answer", _VERL),)),
    Round("openrlhf", (*_judges(actor=_OPENRLHF), _reward("socket", _OPENRLHF)), healthy=12),
    Round("openrlhf", (
        Case("engine stopped", "stop", ENGINE, line="", target="VLLM::EngineCore",
             culprits=None),
        Case("rollout actor stopped", "stop", ENGINE, line="", target=f"ray::{_OPENRLHF}",
             actor=_OPENRLHF),
        _reward("fifo", _OPENRLHF), _reward("child", _OPENRLHF),
        _rank_of(r"ray::PolicyModelActor"),
    )),
    Round("openrlhf", (_reward("sleep", _OPENRLHF),)),
    Round("openrlhf", (_reward("event", _OPENRLHF),)),
    Round("openrlhf", (_reward("lock", _OPENRLHF),)),
    Round("openrlhf", (Case("engine killed", "kill", ENGINE, line="", culprits=None,
                            target="VLLM::EngineCore"),)),
    Round("openrlhf", (_reward("answer", _OPENRLHF),)),
    Round("swift", (*_judges(), Case("reward: socket on one rank", "socket", rank=1,
                                     culprits=(1,))), healthy=12),
    Round("swift", (Case("reward: sleep on one rank", "sleep", rank=1, culprits=(1,)),)),
    Round("swift", (
        Case("rank stopped", "stop", _STOPPED_RANK, line="", target=r"swift/cli/rlhf\.py",
             culprits=(1,)),
        Case("reader of stdout stopped", "print", (*REWARD, "user-code-blocked", "child-stuck"),
             rank=1, culprits=(1,)),
        Case("reward: sleep on rank 0", "sleep", rank=0, culprits=(0,)),
    ), piped=True),
    Round("trl", (*_judges(), Case("reward: socket on one rank", "socket", rank=1,
                                   culprits=(1,))), healthy=12),
    Round("trl", (*_judges(act="async-judge"),
                  Case("reward: async socket", "async-socket", rank=1, culprits=(1,))),
          options=("async",)),
    Round("trl", (Case("reward: future", "future", rank=1, culprits=(1,)),), options=("async",)),
    Round("trl", (Case("reward: lock on one rank", "lock", rank=1, culprits=(1,)),)),
    Round("trl", (Case("reward: child", "child", culprits=None),)),
    Round("trl", (Case("dataset blocked", "data", ("dataload-blocked",), line="trl_train.py",
                       rank=1, culprits=(1,)),)),
    Round("trl", (Case("branch of rank 0", "branch",
                       ("collective-mismatch", "collective-skipped"), line="trl_train.py",
                       culprits=(0,)),)),
    Round("trl", (
        Case("dataset reads an empty FIFO", "data-fifo", ("dataload-blocked", "storage-blocked"),
             line="trl_train.py", rank=1, culprits=(1,)),
        Case("judge is dead", "refused", rank=1, culprits=(1,)),
        Case("reader of stdout stopped", "print", (*REWARD, "user-code-blocked"), rank=1,
             culprits=(1,)),
        Case("branch of rank 0", "branch", ("collective-mismatch", "collective-skipped"),
             line="trl_train.py", culprits=(0,)),
    ), piped=True),
)  # fmt: skip
