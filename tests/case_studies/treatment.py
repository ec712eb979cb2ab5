"""One case from complaint to cure: recorded, diagnosed, treated as printed, recorded again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.case_studies import case_4
from tests.case_studies.commandline import launch, spelled
from tests.case_studies.followed import Change, Followed, all_followed, joint, worth_following
from tests.case_studies.photographs import write_dataset
from tests.case_studies.recorded import Recorded, record, tool


@dataclass(frozen=True)
class Treated:
    """Both runs, what was followed in between, and what the report had promised of that.

    `promised` is the change that the fixes were predicted to bring together, none where the
    document does not say.
    """

    before: Recorded
    after: Recorded
    fixes: tuple[Followed, ...]
    promised: Change | None

    @property
    def measured_pct(self) -> float:
        """The change of the step time that was measured."""
        return 100 * (self.after.step_s / self.before.step_s - 1)


def treat(out: Path, say: Callable[[str], None]) -> Treated:
    """Case 4, in `out`: about three minutes on two processors.

    Raises:
        CommandFailedError: a command of the tool, or the trainer, failed.
    """
    say("taking photographs ...")
    dataset = write_dataset(out)
    command = launch(case_4.COMMAND).flags
    flags = case_4.small_flags(command, dataset, out / "trained")
    say(f"before: grpo-doctor run -- {' '.join(spelled(flags))}")
    before = record(flags, out / "before")
    fixes = tuple(worth_following(before.document))
    for fix in fixes:
        say(f"{fix.finding} {fix.title}: {fix.spelling}")
    cured = all_followed(flags, fixes)
    say(f"after:  grpo-doctor run -- {' '.join(spelled(cured))}")
    after = record(cured, out / "after")
    treated = Treated(before, after, fixes, joint(before.document, fixes))
    compared = tool(["compare", str(before.folder), str(after.folder)], out)
    (out / "compare.txt").write_text(compared)
    (out / "treated.json").write_text(json.dumps(_as_json(treated), indent=1))
    return treated


def _as_json(treated: Treated) -> dict[str, object]:
    promised = treated.promised
    return {
        "before_s": treated.before.step_s,
        "after_s": treated.after.step_s,
        "measured_pct": treated.measured_pct,
        "promised_pct": promised and [promised.low, promised.mid, promised.high],
        "fixes": [[fix.finding, fix.spelling] for fix in treated.fixes],
    }
