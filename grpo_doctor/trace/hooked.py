"""What the hooks in the ranks' frameworks say: phases that a version does not show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from grpo_doctor.phases import PHASES
from grpo_doctor.trace.jsonfile import mapping, texts

# The packages of each framework: in a process of one another may be imported and train nothing.
_FRAMEWORKS = {
    "trl": ("trl",),
    "ms-swift": ("ms-swift", "trl"),
    "verl": ("verl",),
    "openrlhf": ("openrlhf",),
}


def hook_notes(
    rank_files: Iterable[Mapping[str, Any]], names: Iterable[str], framework: str = "unknown"
) -> list[str]:
    """Return one sentence per phase that a framework in this version has no known function for.

    Args:
        rank_files: what each recorded process reported of itself.
        names: of all spans. A phase that was recorded is not missing: rewards have spans under
            their own names where a version has no function around them.
        framework: the run's; of the others nothing is missed.
    """
    foreign = _FRAMEWORKS.keys() - _FRAMEWORKS.get(framework, _FRAMEWORKS.keys())
    recorded = {name.partition("/")[0] for name in names}
    notes: dict[str, None] = {}
    for file in rank_files:
        hooks = mapping(file.get("hooks"))
        packages = {name: mapping(facts) for name, facts in mapping(hooks.get("packages")).items()}
        hooked = {
            span.partition("/")[0]
            for facts in packages.values()
            for span in texts(facts.get("spans"))
        }
        visible = recorded | hooked
        for name, facts in packages.items():
            if name in foreign:
                continue
            absent = [p for p in PHASES if p in texts(facts.get("absent")) and p not in visible]
            notes.update(dict.fromkeys(_sentence(name, facts, phase) for phase in absent))
        notes.update(
            (f"a hook failed, so a phase may be missing: {problem}", None)
            for problem in texts(hooks.get("problems"))
        )
    return list(notes)


def _sentence(name: str, facts: Mapping[str, Any], phase: str) -> str:
    version = f" {facts['version']}" if facts.get("version") else ""
    return (
        f"phase `{phase}` is not seen in this version of {name}{version}: its functions have "
        "other names. Its time is in the enclosing phase, or unattributed"
    )
