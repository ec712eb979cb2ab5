"""Versions that exclude each other.

Each release works with a range of the packages below it. Outside of it an import fails, or a
signature: ms-swift 4.6 with TRL 1.0 and later or transformers 5.20 and later; TRL 1.16 with a
vLLM above 0.31; verl 0.9.1 with a vLLM other than 0.24.
"""

from __future__ import annotations

from grpo_doctor.knobs.model import Version, version_of
from grpo_doctor.launches.rule import EVERY_COMMAND, Flaw, View, fatal_flaw

DOMAIN = EVERY_COMMAND
# framework, its versions from and before, package, versions of it that work: from, before.
_PAIRS = (
    ("ms-swift", "4.6.0", "9", "trl", "0.26.0", "1.0.0"),
    ("ms-swift", "4.6.0", "9", "transformers", "0", "5.20.0"),
    ("ms-swift", "4.0.0", "4.1.0", "trl", "0.20.0", "0.29.0"),
    ("ms-swift", "4.0.0", "4.1.0", "transformers", "0", "5.3.0"),
    ("ms-swift", "3.12.0", "4.0.0", "trl", "0.17.0", "0.25.0"),
    ("ms-swift", "3.8.0", "3.9.0", "trl", "0.17.0", "0.21.0"),
    ("ms-swift", "3.5.0", "3.6.0", "trl", "0.13.0", "0.20.0"),
    ("trl", "1.16.0", "1.17.0", "vllm", "0.22.0", "0.31.1"),
    ("verl", "0.9.1", "0.9.2", "vllm", "0.24.0", "0.25.0"),
    ("verl", "0.9.1", "0.9.2", "transformers", "5.5.3", "5.11.0"),
)


def check(view: View) -> Flaw | None:
    """The versions that are known, pair by pair."""
    own = version_of(view.launch.version)
    if own is None or view.launch.framework not in view.launch.versions:
        return None
    for framework, since, until, package, lowest, below in _PAIRS:
        beside = view.package(package)
        if framework != view.launch.framework or beside is None:
            continue
        concerned = _version(since) <= own < _version(until)
        if not concerned or _version(lowest) <= beside < _version(below):
            continue
        has = view.launch.versions[package]
        return fatal_flaw(
            headline=f"{framework} {view.launch.version} does not work with {package} {has}",
            evidence=(f"it needs {package} from {lowest} on, before {below}",),
            fixes=(f"pip install '{package}>={lowest},<{below}'",),
        )
    return None


def _version(text: str) -> Version:
    return version_of(text) or ()
