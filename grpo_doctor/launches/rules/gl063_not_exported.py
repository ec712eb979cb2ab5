"""Variables are set, but not exported.

`NPROC_PER_NODE=8` on a line of its own sets a variable of the shell, which the command on the next
line does not see: ms-swift starts one process then. The line lacks `export`, or a backslash at its
end that makes it part of the command. A variable that the script itself uses (`$NPROC_PER_NODE`)
is not meant.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import EVERY_COMMAND, Flaw, View

DOMAIN = EVERY_COMMAND


def check(view: View) -> Flaw | None:
    """What a job reads from its environment, set in its script for the shell alone."""
    sources = view.launch.not_exported
    if not sources:
        return None
    names = " and ".join([*filter(None, [", ".join([*sources][:-1])]), [*sources][-1]])
    plural = len(sources) > 1
    return Flaw(
        severity="medium",
        headline=f"{names} {'are' if plural else 'is'} set, but not exported",
        evidence=(f"the command does not see {'them' if plural else 'it'}",),
        fixes=(
            f"export {' '.join(sources)}",
            "or end each of these lines with a backslash, so that it is part of the command",
        ),
        source=next(iter(sources.values())),
    )
