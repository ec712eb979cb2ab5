"""Writes `docs/whatif.md` from the models: `python -m grpo_doctor.whatif.docs [FILE]`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from grpo_doctor.markdown import wrapped
from grpo_doctor.whatif import models, prediction, step_model
from grpo_doctor.whatif.models.cost_model import CostModel

PAGE = "docs/whatif.md"
_HEAD = """\
# What-if: how a step after a change is predicted

<!-- Made by `python -m grpo_doctor.whatif.docs`; edit the models' files instead. -->

`grpo-doctor whatif RECORDING --set NAME=VALUE` and the gains in a report replay the run's own
steps.

{model}

A setting changes the work of some spans, by one of the local models below. Several changes are
replayed together, so time that two of them save is counted once. If the run has no data that a
model needs, the answer is *unknown*, with the reason.

If the model is right, an interval is a 90% prediction interval: for the difference between this run
and a run of as many steps after the change. Steps are resampled in blocks of neighbors, because
they are correlated. Four errors, each at 90%, are added in quadrature:

- the model's own error, as a share of the change
- the uncertainty of a fit to this run's data
- the error of the unchanged replay (above {tolerance:.0f}% nothing is predicted)
- {run:.0f}% of the step, the assumed difference between two identical runs on one machine

If one run can't distinguish two alternatives, the interval covers both. If work is only removed,
the interval ends at no change. If two runs of the same settings may differ by more than
{apart:.0f}%, nothing is predicted. The models' errors and the {run:.0f}% are guesses, not fitted to
runs. How often intervals hold: [accuracy.md](accuracy.md).
"""


def page() -> str:
    """Return the whole page."""
    head = _HEAD.format(
        model=_body(step_model),
        tolerance=100 * prediction.TOLERANCE,
        run=100 * prediction.RUN_ERROR,
        apart=100 * prediction.MOST_APART,
    )
    return wrapped(head + "".join(_family(module) for module in _families()))


def _families() -> list[ModuleType]:
    modules = [inspect.getmodule(cost_model.effect) for cost_model in models.MODELS]
    return list(dict.fromkeys(module for module in modules if module is not None))


def _family(module: ModuleType) -> str:
    own: Sequence[CostModel] = module.MODELS
    errors = [f"{100 * value:.0f}%" for name, value in vars(module).items() if _is_error(name)]
    error = " or ".join(dict.fromkeys(errors)) or "no number is given"
    settings = ", ".join(f"`{knob}`" for cost_model in own for knob in cost_model.knobs)
    title = inspect.cleandoc(module.__doc__ or "").partition("\n")[0].rstrip(".")
    body = f"\n{text}\n" if (text := _body(module)) else ""
    return f"\n## {title}\n\nSettings: {settings}. Error of the model: {error}.\n{body}"


def _is_error(name: str) -> bool:
    return name.startswith("_") and name.endswith("_ERROR")


def _body(module: ModuleType) -> str:
    return inspect.cleandoc(module.__doc__ or "").partition("\n")[2].strip().replace("::", ":")


def main(arguments: Sequence[str]) -> int:
    """Write the page."""
    Path(arguments[0] if arguments else PAGE).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
