"""Holds the table of knobs against every framework version at the border of a range.

`python -m tests.wheels [--check]` compares; `--check` fails without an index too.
`python -m tests.wheels --history verl 'trainer\\..*'` prints how options came, changed and went.
`python -m tests.wheels --hooks [--check] [--vllm DIR]` looks up each hooked function; a lost one
fails.
`python -m tests.wheels --options` writes `grpo_doctor/knobs/options/`.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tests.wheels.compare import mismatches
from tests.wheels.definitions import UNKNOWN, Option, options_of
from tests.wheels.fetch import VERSIONS, NoWheelError, wheel
from tests.wheels.hooked import lost_hooks
from tests.wheels.listed import write


def compare(check: bool) -> int:
    """Prints each mismatch; 1 where there is one."""
    problems: list[str] = []
    read = 0
    for framework, versions in VERSIONS.items():
        for version in versions:
            try:
                options = options_of(framework, wheel(framework, version))
            except NoWheelError as problem:
                sys.stdout.write(f"{problem}\n")
                problems += [str(problem)] * check
                continue
            read += 1
            problems += mismatches(framework, version, options)
    text = "\n".join(problems) or f"{read} wheels hold what the table of knobs says"
    sys.stdout.write(f"{text}\n")
    return 1 if problems else 0


def hooks(check: bool, vllm: str | None) -> int:
    """Prints each hook whose function a version lacks; 1 where there is one."""
    wrong, read, missing = lost_hooks(check, Path(vllm) if vllm else None)
    sys.stdout.write("".join(f"{line}\n" for line in [*wrong, *missing]))
    sys.stdout.write(f"{read} wheels read, {len(wrong)} hooks lost\n")
    return 1 if wrong else 0


def history(framework: str, pattern: str) -> int:
    """Prints the versions at which options that match were seen to change."""
    states: dict[str, list[str]] = {}
    last: dict[str, str] = {}
    for version in VERSIONS[framework]:
        options = options_of(framework, wheel(framework, version))
        for name in sorted({*last, *options}):
            now = _said(options.get(name))
            if re.fullmatch(pattern, name) and last.get(name, "gone") != now:
                states.setdefault(name, []).append(f"{version} {now}")
            last[name] = now
    for name, changes in sorted(states.items()):
        sys.stdout.write(f"{name}: {'; '.join(changes)}\n")
    return 0


def _said(option: Option | None) -> str:
    if option is None:
        return "gone"
    default = "made at start" if option.default is UNKNOWN else repr(option.default)
    return f"{default} {option.takes}{' switch' * option.switch}".strip()


def main() -> int:
    """Runs one of the two."""
    parser = argparse.ArgumentParser(prog="tests.wheels", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where a wheel can't be had")
    parser.add_argument("--history", nargs=2, metavar=("FRAMEWORK", "PATTERN"))
    parser.add_argument("--hooks", action="store_true", help="look up each hooked function")
    parser.add_argument("--options", action="store_true", help="write the lists of all options")
    parser.add_argument("--vllm", metavar="DIR", help="an installed vLLM; for hooks also a wheel")
    parser.add_argument("--transformers", metavar="WHEEL", help="a wheel of transformers 4")
    parser.add_argument("--sglang", metavar="WHEEL", help="SGLang's wheel, for its list")
    arguments = parser.parse_args()
    if arguments.options:
        return write(arguments.vllm, arguments.sglang, arguments.transformers)
    if arguments.hooks:
        return hooks(arguments.check, arguments.vllm)
    return history(*arguments.history) if arguments.history else compare(arguments.check)


if __name__ == "__main__":
    sys.exit(main())
