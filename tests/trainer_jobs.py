"""Runs many configurations of the trainer inside one job: one start-up for all of them.

`run_configs` starts the job, forked from a process that has imported torch; run as a script, this
file is what each of its ranks runs. What a configuration leaves behind in a process (transformers'
configuration of DeepSpeed) is undone between two of them, the process group stays.
"""

from __future__ import annotations

import gc
import json
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.recorded.forks import shared

PATIENCE_S = 580
WALL_CLOCK = ("tokens_per_second", "step_time")


@dataclass(frozen=True)
class Outcome:
    """What one configuration did, as rank 0 saw it.

    Attributes:
        metrics: of each logged step, under TRL's names.
        printed: the trainer's log.
        error: the message of a TrainerError, else none.
        defect: the traceback of anything else, else none.
    """

    metrics: list[dict[str, float]]
    printed: str
    error: str | None = None
    defect: str | None = None

    def without_clock(self) -> list[dict[str, float]]:
        """The metrics that do not depend on the machine's speed."""
        return [{k: v for k, v in step.items() if k not in WALL_CLOCK} for step in self.metrics]


def run_configs(
    folder: Path,
    configs: Sequence[Sequence[str]],
    *,
    ranks: int = 2,
    patience_s: float = PATIENCE_S,
) -> list[Outcome]:
    """Trains each list of flags in turn, in `folder`; fails on the first defect."""
    (folder / "configs.json").write_text(json.dumps([list(flags) for flags in configs]))
    server = shared()
    server.start(folder, ranks=ranks, module="tests.trainer_jobs")
    code = server.wait(patience_s)
    log, path = (folder / "job.log").read_text(errors="replace"), folder / "outcomes.json"
    assert path.exists(), log[-4000:]
    outcomes = [Outcome(**row) for row in json.loads(path.read_text())]
    for flags, outcome in zip(configs, outcomes, strict=False):
        assert outcome.defect is None, f"{' '.join(flags)}: {outcome.defect}"
    assert code == 0, log[-4000:]
    assert len(outcomes) == len(configs), log[-4000:]
    return outcomes


def _work() -> None:
    from grpo_doctor_trainer.ranks import join_ranks, leave_ranks

    ranks = join_ranks(200)
    outcomes: list[Outcome] = []
    try:
        for flags in json.loads(Path("configs.json").read_text()):
            outcomes.append(_outcome(flags, ranks))
            if ranks.is_main:
                Path("outcomes.json").write_text(json.dumps([asdict(o) for o in outcomes]))
            if outcomes[-1].defect is not None:
                raise SystemExit(1)
            forget()
            # Later collections pass over the libraries' objects. Each time: vLLM thaws them when an
            # engine ends, and collects ten times as one begins and ends, half of such a run's time.
            gc.freeze()
    finally:
        leave_ranks()


def _outcome(flags: list[str], ranks: Any) -> Outcome:
    import io
    import logging

    from grpo_doctor_trainer import steplog
    from grpo_doctor_trainer.console import LOG
    from grpo_doctor_trainer.errors import TrainerError
    from grpo_doctor_trainer.flags import parse
    from grpo_doctor_trainer.loop import train
    from grpo_doctor_trainer.setup import set_up

    printed = io.StringIO()
    rows: list[dict[str, float]] = []
    original = vars(steplog)["metrics"]
    vars(steplog)["metrics"] = lambda _number, values: rows.append(dict(values))
    LOG.handlers, LOG.propagate = [logging.StreamHandler(printed)], False
    LOG.setLevel(logging.INFO)
    try:
        run = set_up(parse(flags, ranks.world_size), ranks)
        try:
            train(run)
        finally:
            run.close()
    except TrainerError as error:
        return Outcome(rows, printed.getvalue(), error=str(error))
    except Exception:  # noqa: BLE001 - it is what the caller reports
        return Outcome(rows, printed.getvalue(), defect=traceback.format_exc())
    finally:
        vars(steplog)["metrics"] = original
    return Outcome(rows, printed.getvalue())


def forget() -> None:
    """Undoes what one configuration leaves behind in this process."""
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    unset_hf_deepspeed_config()
    gc.collect()


if __name__ == "__main__":
    _work()
