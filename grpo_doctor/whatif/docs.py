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

A setting changes the work of some spans by a local model, below. Several changes are replayed
together, so what two of them save twice counts once. Where a run has not measured what a model
needs, the answer is *unknown*, with the reason.

An interval holds 90% of what a run of as many steps after the change would show next to
this one, if the model holds: steps are drawn again, in blocks of neighbours as long as their
correlation asks for, and four errors, each at 90%, are added in squares: the model's own,
as a share of the change; what a fit to this run's data leaves open; how far the unchanged replay
is off (above {tolerance:.0f}% nothing is predicted at all); and {run:.0f}% of the step, by which
two runs of the same settings on the same machine are taken to differ beyond what their steps
show. Alternatives that one run can't tell apart are ends from which all that is counted. Where
work is only taken away the interval ends at no change. The models' errors and the {run:.0f}% are
guesses, fitted to no runs. How often intervals hold: [accuracy.md](accuracy.md).
"""


def page() -> str:
    """Return the whole page."""
    head = _HEAD.format(
        model=_body(step_model),
        tolerance=100 * prediction.TOLERANCE,
        run=100 * prediction.RUN_ERROR,
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
