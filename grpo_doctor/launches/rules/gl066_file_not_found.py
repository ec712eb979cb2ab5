"""A file that the launch names is not there.

Data, plugins, reward functions and models that are given as paths are looked up where the launch
would be started. With --gpus the launch may be for another machine: then a missing file is reported
and not counted as an error. Names of a hub and addresses are not checked.
"""

from __future__ import annotations

from grpo_doctor.launches.local_files import local_files
from grpo_doctor.launches.rule import SAMPLES, Flaw, View

DOMAIN = SAMPLES


def check(view: View) -> Flaw | None:
    """Every path that an option gives."""
    missing = [file for file in local_files(view.launch) if not file.path.exists()]
    if not missing:
        return None
    here = view.host.is_here
    state = "does not exist" if here else "is not on this machine"
    sentences = [f"{file.text} ({file.option}) {state}" for file in missing]
    return Flaw(
        severity="high" if here else "medium",
        headline=sentences[0],
        evidence=tuple(sentences[1:]),
        fixes=("correct the path", "or run check in the folder that the job starts in"),
        source=missing[0].source,
        ends=here,
        unverified=not here,
    )
