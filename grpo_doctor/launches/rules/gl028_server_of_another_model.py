"""The server has another model.

The trainer sends its weights by name to the server at every step. Where that has another model,
names or shapes differ, and the first transfer fails; a different folder of the same model is
fine.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import TRAINS, Flaw, View

DOMAIN = TRAINS


def check(view: View) -> Flaw | None:
    """The models' names, as far as they are comparable."""
    server = view.launch.server
    if server is None or not server.model or not view.launch.model:
        return None
    theirs, ours = (
        str(name).rstrip("/").rpartition("/")[2] for name in (server.model, view.launch.model)
    )
    if theirs.lower() == ours.lower():
        return None
    return Flaw(
        severity="medium",
        headline=f"the trainer has {ours}, the server has {theirs}",
        evidence=("weights go to the server by their names",),
        fixes=(f"--model {view.launch.model} at the server",),
        source=server.sources.get("model.name"),
    )
