"""Attacks on what reads a launch: scripts, YAML, JSON and Python."""

from __future__ import annotations

from pathlib import Path

from tests.security.attack import Texts, by_name, in_file

_SWIFT = "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B"
_CHECK = "check --gpus 8xA100-80G --"
_TRL = f"{_CHECK} trl grpo --model_name_or_path Qwen/Qwen2.5-7B --config a.yaml"
_YAML: Texts = {
    "yaml-aliases-of-mappings": (
        25,
        lambda n: "\n".join(
            [
                "a0: &a0 {x: 1}",
                *[f"a{i}: &a{i} {{x: *a{i - 1}, y: *a{i - 1}}}" for i in range(1, n + 1)],
            ]
        ),
    ),
    "yaml-merge-keys": (
        25,
        lambda n: "\n".join(
            [
                "a0: &a0 {x: 1}",
                *[f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}], k{i}: 1}}" for i in range(1, n + 1)],
            ]
        ),
    ),
    "yaml-many-items": (50_000, lambda n: "a:\n" + "- 1\n" * n),
    "yaml-flow-of-empty-lists": (50_000, lambda n: "a: [" + "[]," * n + "]"),
    "yaml-depth": (1000, lambda n: "a: " + "[" * n + "]" * n),
    "yaml-directives": (50_000, lambda n: "? " * n),
    "yaml-recursive": (1000, lambda n: "\n".join(f"a{i}: &a{i} [*a{i}]" for i in range(n))),
    "yaml-aliases-of-lists": (
        8,
        lambda n: (
            "a0: &a0 [x, x]\n"
            + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, n + 1))
            + f"model_name_or_path: *a{n}"
        ),
    ),
}
_SCRIPTS: Texts = {
    "shell-variables-double": (
        20,
        lambda n: "\n".join(
            [
                "A0=xxxxxxxx",
                *[f"A{i}=$A{i - 1}$A{i - 1}" for i in range(1, n + 1)],
                f"{_SWIFT} --x $A{n}",
            ]
        ),
    ),
    "shell-arrays-double": (
        20,
        lambda n: "\n".join(
            [
                "A0=(x x)",
                *[f'A{i}=("${{A{i - 1}[@]}}" "${{A{i - 1}[@]}}")' for i in range(1, n + 1)],
                f'{_SWIFT} "${{A{n}[@]}}"',
            ]
        ),
    ),
    "shell-appends-double": (20, lambda n: "A=x\n" + "A+=$A\n" * n + f"{_SWIFT} --x $A"),
    "shell-replacements-double": (
        20,
        lambda n: "A=xx\n" + "A=${A//x/xx}\n" * n + f"{_SWIFT} --x $A",
    ),
    "shell-arguments-double": (
        20,
        lambda n: "set -- a b\n" + 'set -- "$@" "$@"\n' * n + f'{_SWIFT} "$@"',
    ),
    "shell-options": (4000, lambda n: f"{_SWIFT} " + "".join(f"--option_{i} 1 " for i in range(n))),
    "shell-options-on-lines": (
        4000,
        lambda n: f"{_SWIFT} \\\n" + "".join(f"  --o{i} 1 \\\n" for i in range(n)),
    ),
    "shell-same-option": (4000, lambda n: f"{_SWIFT} " + " ".join(f"--beta {i}" for i in range(n))),
    "hydra-options": (
        4000,
        lambda n: (
            "python3 -m verl.trainer.main_ppo " + "".join(f"a.option_{i}=1 " for i in range(n))
        ),
    ),
    "shell-commands": (4000, lambda n: "echo a\n" * n + _SWIFT),
    "shell-assignments": (
        2000,
        lambda n: "".join(f"V{i}=1\necho $V{i}\n" for i in range(n)) + _SWIFT,
    ),
    "shell-branches": (
        1000,
        lambda n: "".join(f"if foo; then V{i}=1; fi\n" for i in range(n)) + _SWIFT,
    ),
    "heredoc-of-blank-lines": (10_000, lambda n: f"{_SWIFT}\ncat <<EOF\n" + "\n" * n),
    "heredoc-of-blanks": (10_000, lambda n: f"{_SWIFT}\ncat <<EOF\n" + " \t" * n + "x\n"),
    "nested-defaults": (400, lambda n: "X=" + "${A:-" * n + "1" + "}" * n + f"\n{_SWIFT}"),
    "nested-substitutions": (400, lambda n: "X=" + "$(echo " * n + "1" + ")" * n + f"\n{_SWIFT}"),
    "nested-braces": (400, lambda n: "{ " * n + _SWIFT + "; }" * n),
    "nested-conditions": (400, lambda n: "if foo; then\n" * n + _SWIFT + "\nfi" * n),
    "nested-functions": (400, lambda n: "f() {\n" * n + _SWIFT + "\n}" * n + "\nf\n"),
    "nested-loops": (
        8,  # and more: all reach the limit of steps
        lambda n: (
            "".join(f"for i{k} in 1 2 3 4 5 6 7 8; do\n" for k in range(n))
            + "echo $i0\n"
            + "done\n" * n
            + _SWIFT
        ),
    ),
    "functions-that-call": (
        10,
        lambda n: (
            "f0() {\necho a\n}\n"
            + "".join([f"f{i}() {{\n" + f"f{i - 1}\n" * n + "}\n" for i in range(1, 11)])
            + f"f10\n{_SWIFT}"
        ),
    ),
    "scripts-that-start-themselves": (10, lambda n: "bash a.sh\n" * n + _SWIFT),
    "scripts-that-source-themselves": (10, lambda n: "source a.sh\n" * n + _SWIFT),
    "sums-that-square": (50, lambda n: "A=99\n" + "A=$((A*A))\n" * n + f"{_SWIFT} --max_steps $A"),
    "open-quotes": (20_000, lambda n: _SWIFT + "\n" + "$(" * n),
    "open-functions": (20_000, lambda n: _SWIFT + "\n" + "(a" * n),
    "commands-of-dirname": (20_000, lambda n: _SWIFT + '\nX=$(dirname "$0"' + ")/.." * n + "\n"),
    "commands-of-npu": (20_000, lambda n: _SWIFT + "\nX=$(" + "npu || echo " * n + ")\n"),
}
_PYTHON: Texts = {
    "python-parentheses": (150, lambda n: "x = " + "(" * n + ")" * n),
    "python-calls": (400, lambda n: "from trl import GRPOTrainer\nx = a()" + ".a()" * n),
    "python-sums": (
        900,
        lambda n: "from trl import GRPOConfig\nx = 1" + "+1" * n + "\nGRPOConfig(beta=x)\n",
    ),
    "python-statements": (20_000, lambda n: "from trl import GRPOTrainer\n" + "f(a, b=1)\n" * n),
    "python-nested-functions": (
        500,
        lambda n: "from trl import GRPOTrainer\nx = " + "lambda: " * n + "1\n",
    ),
    "python-attributes": (400, lambda n: "from trl import GRPOTrainer\na" + ".b" * n + "()\n"),
}


def _json_depth(folder: Path, size: int) -> list[str]:
    (folder / "d.json").write_text('{"a":' + "[" * size)
    return [*_CHECK.split(), *_SWIFT.split(), "--config", "d.json"]


def _json_depth_on_the_line(folder: Path, size: int) -> list[str]:
    del folder
    return [*_CHECK.split(), *_SWIFT.split(), "--model_kwargs", '{"a":' * size + "1" + "}" * size]


def _deepspeed_depth(folder: Path, size: int) -> list[str]:
    (folder / "ds.json").write_text('{"a":' * size + "1" + "}" * size)
    return [*_CHECK.split(), *_SWIFT.split(), "--deepspeed", "ds.json"]


def _model_config_depth(folder: Path, size: int) -> list[str]:
    (folder / "m").mkdir()
    (folder / "m" / "config.json").write_text('{"a":' * size + "1" + "}" * size)
    return [*_CHECK.split(), *_SWIFT.replace("Qwen/Qwen2.5-7B", "./m").split()]


def _arguments(folder: Path, size: int) -> list[str]:
    del folder
    return [*_CHECK.split(), *_SWIFT.split(), *(f"--option_{i}" for i in range(size))]


LAUNCHES = [
    *in_file("a.yaml", _TRL, _YAML),
    *in_file("a.sh", f"{_CHECK} a.sh", _SCRIPTS),
    *in_file("a.py", f"{_CHECK} accelerate launch a.py", _PYTHON),
    *by_name(
        {
            _json_depth: 2000,
            _json_depth_on_the_line: 2000,
            _deepspeed_depth: 2000,
            _model_config_depth: 2000,
            _arguments: 4000,
        }
    ),
]
