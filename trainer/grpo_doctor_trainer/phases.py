"""The phases of the loop: the recorder's spans, which here also remember where memory ran out."""

from __future__ import annotations

import grpo_doctor_probes

_NOTE = "grpo_doctor_phase"


class phase(grpo_doctor_probes.phase):  # noqa: N801 - reads like the recorder's
    """The recorder's `phase`, which notes its name on an error that leaves through it."""

    __slots__ = ("_name",)

    def __init__(self, name: str, /, **args: object) -> None:
        self._name = name
        super().__init__(name, **args)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            vars(error).setdefault(_NOTE, self._name.partition("/")[0])
        super().__exit__(kind, error, traceback)


def phase_of(error: BaseException) -> str | None:
    """Return the innermost phase that an error left."""
    name: str | None = vars(error).get(_NOTE)
    return name
