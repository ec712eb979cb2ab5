"""One treatment: a recorded run, then one change after the other.

The document is all of the state: it is kept after each trial, and a session that begins with one
continues where that ended.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from grpo_doctor import knobs
from grpo_doctor.analysis import analyse
from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.launches import Launch
from grpo_doctor.trace.read import load
from grpo_doctor.treat import decision
from grpo_doctor.treat.agreement import disagreement
from grpo_doctor.treat.candidates import changes_in
from grpo_doctor.treat.edits import CannotEditError, Command, Reader, with_options
from grpo_doctor.treat.paired import ratio
from grpo_doctor.treat.trial import LOG, OUTPUT, Limits, run_trial
from grpo_doctor_probes.record.redact import redact_command
from grpo_doctor_reports.schema.treat import ChangeEntry, TreatDocument, TrialEntry

SURVEY_STEPS = 16
# `compare` judges metrics from 8 common steps on. More steps than the start of a run is long cost
# more than they tell; fewer waste the start. Of steps of 65 ms, 24 left eight pairs 15% apart.
_LEAST, _MOST = 8, 96
_SURVEY_SHARE = 0.25  # of the budget
# A trial may be slower than the latest one by so much before it is ended.
_SLOWER, _SPARE_S = 3.0, 60.0
_TRIALS_TO_DECIDE = 4
# The first start reads from cold disks: of an ms-swift job it took 190 s, the next 30 s.
_TRIALS_PLANNED = 8
_MOST_FAILED = 3
# Without it they log each tenth step.
_LOG_EACH_STEP = {"trl": "--logging_steps 1", "ms-swift": "--logging_steps 1"}
# What would leave the trial's own folder, where the command has it.
_ELSEWHERE = {"push_to_hub": "--push_to_hub false", "logging_dir": "--logging_dir {}"}


class NothingMeasuredError(GrpoDoctorError):
    """No trial of the command as it is was measured; the message says why."""

    exit_code = 8


class _BudgetError(Exception):
    """The next trial would not end within the budget."""


@dataclass(frozen=True)
class Doctor:
    """What a session asks of others: to `read` a launch, for the `refusal` of `check` (None: none),
    to `keep` the document after each trial, and to `say` a line of progress."""

    read: Reader
    refusal: Callable[[Sequence[str]], str | None]
    keep: Callable[[TreatDocument], None]
    say: Callable[[str], None]


@dataclass
class Session:
    """Tries changes of `words` until the budget ends, none is left, or Ctrl-C."""

    folder: Path
    words: Sequence[str]
    launch: Launch
    doctor: Doctor
    document: TreatDocument
    began_s: float = 0.0
    spent_before_s: float = 0.0

    def run(self) -> TreatDocument:
        """Return the document at the end.

        Raises:
            NothingMeasuredError: the command as it is gave no steps to go by.
            KeyboardInterrupt: after the best so far was kept.
        """
        self.began_s, self.spent_before_s = time.monotonic(), self.document.spent_s
        try:
            if not any(trial.state == decision.MEASURED for trial in self.document.trials):
                self._survey()
            while (change := self._next()) is not None:
                self._try(change)
            self._end("ended")
        except _BudgetError:
            self._end("out of budget")
        except NothingMeasuredError as problem:
            self._end("failed", str(problem))
            raise
        except KeyboardInterrupt:
            self._end("interrupted")
            raise
        return self.document

    def plan(self) -> TreatDocument:
        """Return what the first trial would start; nothing is."""
        words = self._for_trial(self._command(), self._place("survey"), SURVEY_STEPS + 1).words
        said = "Nothing was started: this is what a trial would be."
        members = {"state": "dry run", "verdict": said, "result": redact_command(words)}
        return replace(self.document, **members, next_step="start it without --dry-run")

    def script_text(self) -> str:
        """Return the text of the user's script with what was kept; empty where it stays."""
        return self._command().text

    # -- what is done

    def _survey(self) -> None:
        self.doctor.say(f"recording up to {SURVEY_STEPS} steps as they are")
        share_s = _SURVEY_SHARE * self.document.budget_s
        trial = self._trial("survey", None, Limits(SURVEY_STEPS + 1, share_s))
        if trial.state != decision.MEASURED:
            late = f" within {share_s:.0f} s, a quarter of the budget" * (share_s < trial.wall_s)
            raise _nothing(f"nothing could be measured{late}", trial)
        trace = load(Path(trial.folder))
        analysis = analyse(trace)
        steady = analysis.regimes.steady_from
        first = trial.steps[0] if steady is None else int(analysis.steps.numbers[steady])
        warmup = max(1, first - trial.steps[0])
        steps_s = sum(trial.step_seconds)
        start_s, step_s = trial.wall_s - steps_s, max(steps_s / len(trial.steps), 1e-3)
        fitting_s = (self.document.budget_s - trial.wall_s) / _TRIALS_PLANNED - start_s
        steps = min(start_s / step_s, fitting_s / step_s - warmup - 1)
        self._change(
            warmup=warmup,
            steps=min(_MOST, max(_LEAST, round(steps))),
            changes=changes_in(trace, algorithm=self.document.allows_algorithm),
        )

    def _next(self) -> ChangeEntry | None:
        """Return what to try next; refuses what `check` or the command itself refuses."""
        tried = next((c for c in self.document.changes if c.state == "tried"), None)
        if tried is not None:
            return tried
        while change := decision.best(self.document.changes, *self._expected_s()):
            try:
                words = self._command(change).started(self.folder / "scripts")
                refusal = self.doctor.refusal(words)
            except CannotEditError as problem:
                refusal = str(problem)
            if refusal is None:
                return self._set(replace(change, state="tried"))
            self._set(replace(change, state="refused", why=refusal))
        return None

    def _try(self, change: ChangeEntry) -> None:
        """Run trials of a change until it is kept or rolled back."""
        predicted = f", predicted {change.predicted.mid:+.0f}%" if change.predicted else ""
        self.doctor.say(f"trying {change.text}{predicted}")
        while (judged := self._judge(change)).state == "more":
            has_begun = bool(decision.of_change(self.document.trials, change.index))
            expected_s = sum(self._expected_s())
            left_s = self.document.budget_s - (time.monotonic() - self.began_s)
            if left_s < (1 if has_begun else _TRIALS_TO_DECIDE) * expected_s:
                raise _BudgetError
            side = decision.next_side(self.document.trials, change.index)
            steps = self.document.warmup + self.document.steps + 1
            self._trial(side, change, Limits(steps, _SLOWER * expected_s + _SPARE_S))
            failed = [t for t in self.document.trials if t.side == "before" and t.why]
            if len(failed) >= _MOST_FAILED:
                raise _nothing(f"{len(failed)} trials without a change failed", failed[-1])
        self.doctor.say(f"{judged.state}: {change.text}: {judged.why}")
        is_step_time = self.document.goal == "step-time"  # as predictions are
        right = decision.as_predicted(change, judged.measured) if is_step_time else None
        change = next(c for c in self.document.changes if c.index == change.index)
        self._set(replace(change, state=judged.state, why=judged.why, as_predicted=right))
        if judged.state == "kept":
            self._look_again(change)

    def _judge(self, change: ChangeEntry) -> decision.Judged:
        document = self.document
        failed = decision.failures(document.trials, change.index)
        if failed is not None:
            return failed
        pairs = decision.pairs_of(document.trials, change.index)
        sizes: Any = {"skip": document.warmup, "steps": document.steps, "goal": document.goal}
        try:
            judged = decision.judge([ratio(before, after, **sizes) for before, after in pairs])
        except ValueError as problem:
            return decision.Judged("rolled back", None, str(problem))
        if judged.measured:
            self._set(replace(change, pairs=len(pairs), measured=judged.measured))
        if judged.state != "kept":
            return judged
        traces = [(load(Path(a.folder)), load(Path(b.folder))) for a, b in pairs]
        parted = disagreement(traces, change.math)
        return judged._replace(state="rolled back", why=parted) if parted else judged

    def _look_again(self, kept: ChangeEntry) -> None:
        """Replace what is untried by what the last run with the change speaks for."""
        last = decision.pairs_of(self.document.trials, kept.index)[-1][1]
        settled = [c for c in self.document.changes if c.state != "untried"]
        known, first = {c.text for c in settled}, max(c.index for c in self.document.changes) + 1
        algorithm = self.document.allows_algorithm
        fresh = changes_in(load(Path(last.folder)), first=first, algorithm=algorithm)
        self._change(changes=[*settled, *(c for c in fresh if c.text not in known)])

    def _trial(self, side: str, change: ChangeEntry | None, limits: Limits) -> TrialEntry:
        folder = self._place(side)
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = self._command(change if side == "after" else None)
        command = self._for_trial(command, folder, limits.steps)
        number, index = len(self.document.trials), change.index if change else None
        entry = TrialEntry(number=number, side=side, change=index, folder=str(folder))
        trial = run_trial(entry, command.started(self.folder / "scripts"), limits)
        self._change(trials=[*self.document.trials, trial])
        mean_s = sum(trial.step_seconds) / max(1, len(trial.steps))
        measured = f"{mean_s:.3g} s per step, {trial.wall_s:.0f} s in all"
        self.doctor.say(f"  {side}: {f'{trial.state}: {trial.why}' if trial.why else measured}")
        return trial

    def _place(self, side: str) -> Path:
        """Return a new folder for the next trial: one that was ended may have left its own."""
        name = f"{len(self.document.trials):02d}-{side}"
        count = sum(1 for _ in (self.folder / "trials").glob(f"{name}*"))
        return self.folder / "trials" / (f"{name}-{count}" if count else name)

    # -- commands

    def _command(self, change: ChangeEntry | None = None) -> Command:
        """Return the user's command with what was kept, and a change."""
        command = Command.of(self.words)
        kept = [c for c in self.document.changes if c.state == "kept"]
        for each in [*kept, *([change] if change else [])]:
            command = self._with(command, each.text)
        return command

    def _for_trial(self, command: Command, folder: Path, steps: int) -> Command:
        """Return it with a folder of its own, its number of steps, and every step logged."""
        out = str((folder / OUTPUT).absolute())
        of = self.launch.table, self.launch.version
        where = knobs.spell(*of, "checkpoint.directory", out)
        if where is not None:
            command = self._with(command, where)
        extra = [
            knobs.spell(*of, "train.max_steps", steps),
            _LOG_EACH_STEP.get(self.launch.framework),
            *(t.format(out) for name, t in _ELSEWHERE.items() if name in self.launch.options),
        ]
        for text in filter(None, extra):
            with contextlib.suppress(CannotEditError):  # `run --stop-after` ends it
                command = self._with(command, text)
        return command

    def _with(self, command: Command, text: str) -> Command:
        return with_options(command, text, self.doctor.read, self.folder / "scripts")

    # -- the document

    def _expected_s(self) -> tuple[float, float]:
        """Return how long the start of a trial and its steps take, by the latest one."""
        last = [t for t in self.document.trials if t.steps and t.side != "after"][-1]
        steps_s = sum(last.step_seconds)
        count = self.document.warmup + self.document.steps + 1
        return max(0.0, last.wall_s - steps_s), steps_s / len(last.steps) * count

    def _set(self, change: ChangeEntry) -> ChangeEntry:
        changes = [change if c.index == change.index else c for c in self.document.changes]
        self._change(changes=changes)
        return change

    def _change(self, **members: Any) -> None:
        spent_s = self.spent_before_s + time.monotonic() - self.began_s
        self.document = replace(self.document, spent_s=round(spent_s, 1), **members)
        self.doctor.keep(self.document)

    def _end(self, state: str, problem: str = "") -> None:
        command = self._command()
        said = problem or decision.verdict(self.document.changes, self.document.goal)
        self._change(
            state=state,
            verdict=f"{said} The budget ended first." if state == "out of budget" else said,
            next_step=self._next_step(state, command),
            result=redact_command(command.words),
            script=command.script if command.text else "",
            patch=command.patch,
        )

    def _next_step(self, state: str, command: Command) -> str:
        again = f"grpo-doctor treat -o {shlex.quote(str(self.folder))}"
        if state in ("out of budget", "interrupted"):
            return f"continue: {again} -- ..."
        if state == "failed":
            return "read the job's output, then start again"
        if command.text:
            return f"apply the patch: {again} --write -- ..."
        kept = any(change.state == "kept" for change in self.document.changes)
        return "use the command above" if kept else "read what was refused: some of it needs code"


def _nothing(what: str, trial: TrialEntry) -> NothingMeasuredError:
    log = Path(trial.folder) / LOG
    return NothingMeasuredError(f"{what}: {trial.why}. The job's output: {log}")
