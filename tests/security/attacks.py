"""Hostile inputs by kind: each writes its files for a size, and gives the arguments for it."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_SWIFT = "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B"
_TRL = "trl grpo --model_name_or_path Qwen/Qwen2.5-7B"
_CHECK = ("check", "--gpus", "8xA100-80G", "--")
_VERL_STEP = "step:1 - actor/loss:0.1 - critic/score/mean:0.2 - timing_s/step:10.0\n"


@dataclass(frozen=True, slots=True)
class Attack:
    """One kind of input; `size` is the smallest of three that double."""

    name: str
    size: int
    write: Callable[[Path, int], list[str]]


ATTACKS: list[Attack] = []


def _attack(size: int) -> Callable[[Callable[[Path, int], list[str]]], None]:
    def register(write: Callable[[Path, int], list[str]]) -> None:
        ATTACKS.append(Attack(write.__name__.strip("_").replace("_", "-"), size, write))

    return register


def _script(folder: Path, text: str) -> list[str]:
    (folder / "a.sh").write_text(text)
    return [*_CHECK, "a.sh"]


def _yaml(folder: Path, text: str) -> list[str]:
    (folder / "a.yaml").write_text(text)
    return [*_CHECK, *_TRL.split(), "--config", "a.yaml"]


def _python(folder: Path, text: str) -> list[str]:
    (folder / "a.py").write_text(text)
    return [*_CHECK, "accelerate", "launch", "a.py"]


def _log(folder: Path, text: str) -> list[str]:
    (folder / "a.log").write_text(text)
    return ["report", "a.log", "--format", "text"]


# -- launches: YAML, JSON


@_attack(25)
def _yaml_aliases_of_mappings(folder: Path, size: int) -> list[str]:
    rows = [f"a{i}: &a{i} {{x: *a{i - 1}, y: *a{i - 1}}}" for i in range(1, size + 1)]
    return _yaml(folder, "\n".join(["a0: &a0 {x: 1}", *rows]))


@_attack(8)
def _yaml_aliases_of_lists(folder: Path, size: int) -> list[str]:
    nine = [", ".join([f"*a{i - 1}"] * 9) for i in range(1, size + 1)]
    rows = [f"a{i}: &a{i} [{items}]" for i, items in enumerate(nine, 1)]
    model = f"model_name_or_path: *a{size}"
    return _yaml(folder, "\n".join(["a0: &a0 [x, x]", *rows, model]))


@_attack(25)
def _yaml_merge_keys(folder: Path, size: int) -> list[str]:
    rows = [f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}], k{i}: 1}}" for i in range(1, size + 1)]
    return _yaml(folder, "\n".join(["a0: &a0 {x: 1}", *rows]))


@_attack(50_000)
def _yaml_many_items(folder: Path, size: int) -> list[str]:
    return _yaml(folder, "a:\n" + "- 1\n" * size)


@_attack(50_000)
def _yaml_flow_of_empty_lists(folder: Path, size: int) -> list[str]:
    return _yaml(folder, "a: [" + "[]," * size + "]")


@_attack(1000)
def _yaml_depth(folder: Path, size: int) -> list[str]:
    return _yaml(folder, "a: " + "[" * size + "]" * size)


@_attack(50_000)
def _yaml_directives(folder: Path, size: int) -> list[str]:
    return _yaml(folder, "? " * size)


@_attack(1000)
def _yaml_recursive(folder: Path, size: int) -> list[str]:
    return _yaml(folder, "\n".join(f"a{i}: &a{i} [*a{i}]" for i in range(size)))


@_attack(2000)
def _json_depth(folder: Path, size: int) -> list[str]:
    (folder / "d.json").write_text('{"a":' + "[" * size)
    return [*_CHECK, *_SWIFT.split(), "--config", "d.json"]


@_attack(2000)
def _json_depth_on_the_line(folder: Path, size: int) -> list[str]:
    del folder
    return [*_CHECK, *_SWIFT.split(), "--model_kwargs", '{"a":' * size + "1" + "}" * size]


@_attack(2000)
def _deepspeed_depth(folder: Path, size: int) -> list[str]:
    (folder / "ds.json").write_text('{"a":' * size + "1" + "}" * size)
    return [*_CHECK, *_SWIFT.split(), "--deepspeed", "ds.json"]


@_attack(2000)
def _model_config_depth(folder: Path, size: int) -> list[str]:
    (folder / "m").mkdir()
    (folder / "m" / "config.json").write_text('{"a":' * size + "1" + "}" * size)
    return [*_CHECK, *_SWIFT.replace("Qwen/Qwen2.5-7B", "./m").split()]


# -- launches: shell


@_attack(20)
def _shell_variables_double(folder: Path, size: int) -> list[str]:
    rows = [f"A{i}=$A{i - 1}$A{i - 1}" for i in range(1, size + 1)]
    return _script(folder, "\n".join(["A0=xxxxxxxx", *rows, f"{_SWIFT} --x $A{size}"]))


@_attack(20)
def _shell_arrays_double(folder: Path, size: int) -> list[str]:
    rows = [f'A{i}=("${{A{i - 1}[@]}}" "${{A{i - 1}[@]}}")' for i in range(1, size + 1)]
    return _script(folder, "\n".join(["A0=(x x)", *rows, f'{_SWIFT} "${{A{size}[@]}}"']))


@_attack(20)
def _shell_appends_double(folder: Path, size: int) -> list[str]:
    return _script(folder, "A=x\n" + "A+=$A\n" * size + f"{_SWIFT} --x $A")


@_attack(20)
def _shell_replacements_double(folder: Path, size: int) -> list[str]:
    return _script(folder, "A=xx\n" + "A=${A//x/xx}\n" * size + f"{_SWIFT} --x $A")


@_attack(20)
def _shell_arguments_double(folder: Path, size: int) -> list[str]:
    return _script(folder, "set -- a b\n" + 'set -- "$@" "$@"\n' * size + f'{_SWIFT} "$@"')


@_attack(4000)
def _shell_options(folder: Path, size: int) -> list[str]:
    options = " ".join(f"--option_{i} 1" for i in range(size))
    return _script(folder, f"{_SWIFT} {options}\n")


@_attack(4000)
def _shell_options_on_lines(folder: Path, size: int) -> list[str]:
    return _script(folder, f"{_SWIFT} \\\n" + "".join(f"  --o{i} 1 \\\n" for i in range(size)))


@_attack(4000)
def _shell_same_option(folder: Path, size: int) -> list[str]:
    return _script(folder, f"{_SWIFT} " + " ".join(f"--beta {i}" for i in range(size)))


@_attack(4000)
def _arguments(folder: Path, size: int) -> list[str]:
    del folder
    return [*_CHECK, *_SWIFT.split(), *(f"--option_{i}" for i in range(size))]


@_attack(4000)
def _hydra_options(folder: Path, size: int) -> list[str]:
    options = " ".join(f"a.option_{i}=1" for i in range(size))
    return _script(folder, f"python3 -m verl.trainer.main_ppo {options}\n")


@_attack(4000)
def _shell_commands(folder: Path, size: int) -> list[str]:
    return _script(folder, "echo a\n" * size + _SWIFT)


@_attack(2000)
def _shell_assignments(folder: Path, size: int) -> list[str]:
    return _script(folder, "".join(f"V{i}=1\necho $V{i}\n" for i in range(size)) + _SWIFT)


@_attack(1000)
def _shell_branches(folder: Path, size: int) -> list[str]:
    return _script(folder, "".join(f"if foo; then V{i}=1; fi\n" for i in range(size)) + _SWIFT)


@_attack(10_000)
def _heredoc_of_blank_lines(folder: Path, size: int) -> list[str]:
    return _script(folder, f"{_SWIFT}\ncat <<EOF\n" + "\n" * size)


@_attack(10_000)
def _heredoc_of_blanks(folder: Path, size: int) -> list[str]:
    return _script(folder, f"{_SWIFT}\ncat <<EOF\n" + " \t" * size + "x\n")


@_attack(400)
def _nested_defaults(folder: Path, size: int) -> list[str]:
    return _script(folder, "X=" + "${A:-" * size + "1" + "}" * size + f"\n{_SWIFT}")


@_attack(400)
def _nested_substitutions(folder: Path, size: int) -> list[str]:
    return _script(folder, "X=" + "$(echo " * size + "1" + ")" * size + f"\n{_SWIFT}")


@_attack(400)
def _nested_braces(folder: Path, size: int) -> list[str]:
    return _script(folder, "{ " * size + _SWIFT + "; }" * size)


@_attack(400)
def _nested_conditions(folder: Path, size: int) -> list[str]:
    return _script(folder, "if foo; then\n" * size + _SWIFT + "\nfi" * size)


@_attack(400)
def _nested_functions(folder: Path, size: int) -> list[str]:
    return _script(folder, "f() {\n" * size + _SWIFT + "\n}" * size + "\nf\n")


@_attack(4)
def _nested_loops(folder: Path, size: int) -> list[str]:
    loops = "".join(f"for i{n} in 1 2 3 4 5 6 7 8; do\n" for n in range(size))
    return _script(folder, loops + "echo $i0\n" + "done\n" * size + _SWIFT)


@_attack(10)
def _functions_that_call(folder: Path, size: int) -> list[str]:
    rows = [f"f{i}() {{\n" + f"f{i - 1}\n" * size + "}\n" for i in range(1, 11)]
    return _script(folder, "f0() {\necho a\n}\n" + "".join(rows) + f"f10\n{_SWIFT}")


@_attack(10)
def _scripts_that_start_themselves(folder: Path, size: int) -> list[str]:
    return _script(folder, "bash a.sh\n" * size + _SWIFT)


@_attack(10)
def _scripts_that_source_themselves(folder: Path, size: int) -> list[str]:
    return _script(folder, "source a.sh\n" * size + _SWIFT)


@_attack(50)
def _sums_that_square(folder: Path, size: int) -> list[str]:
    return _script(folder, "A=99\n" + "A=$((A*A))\n" * size + f"{_SWIFT} --max_steps $A")


@_attack(20_000)
def _open_quotes(folder: Path, size: int) -> list[str]:
    return _script(folder, _SWIFT + "\n" + "$(" * size)


@_attack(20_000)
def _open_functions(folder: Path, size: int) -> list[str]:
    return _script(folder, _SWIFT + "\n" + "(a" * size)


@_attack(20_000)
def _commands_of_dirname(folder: Path, size: int) -> list[str]:
    return _script(folder, _SWIFT + '\nX=$(dirname "$0"' + ")/.." * size + "\n")


@_attack(20_000)
def _commands_of_npu(folder: Path, size: int) -> list[str]:
    return _script(folder, _SWIFT + "\nX=$(" + "npu || echo " * size + ")\n")


# -- launches: Python


@_attack(150)
def _python_parentheses(folder: Path, size: int) -> list[str]:
    return _python(folder, "x = " + "(" * size + ")" * size)


@_attack(400)
def _python_calls(folder: Path, size: int) -> list[str]:
    return _python(folder, "from trl import GRPOTrainer\nx = a()" + ".a()" * size)


@_attack(900)
def _python_sums(folder: Path, size: int) -> list[str]:
    text = "from trl import GRPOConfig\nx = 1" + "+1" * size + "\nGRPOConfig(beta=x)\n"
    return _python(folder, text)


@_attack(20_000)
def _python_statements(folder: Path, size: int) -> list[str]:
    text = "from trl import GRPOTrainer\n" + "f(a, b=1)\n" * size
    return _python(folder, text)


@_attack(500)
def _python_nested_functions(folder: Path, size: int) -> list[str]:
    text = "from trl import GRPOTrainer\nx = " + "lambda: " * size + "1\n"
    return _python(folder, text)


@_attack(400)
def _python_attributes(folder: Path, size: int) -> list[str]:
    return _python(folder, "from trl import GRPOTrainer\na" + ".b" * size + "()\n")


# -- recordings


@_attack(50_000)
def _log_of_actors(folder: Path, size: int) -> list[str]:
    return _log(folder, f"{_VERL_STEP}(a{'pid=1' * size}")


@_attack(50_000)
def _log_of_actors_with_blanks(folder: Path, size: int) -> list[str]:
    return _log(folder, _VERL_STEP + " " * size + "(a" + "(pid=1" * size)


@_attack(50_000)
def _log_of_verl_pairs(folder: Path, size: int) -> list[str]:
    return _log(folder, _VERL_STEP + "step:2 - a/b:1 - " + "a" * size + ":a" * size)


@_attack(50_000)
def _log_of_step_marks(folder: Path, size: int) -> list[str]:
    return _log(folder, _VERL_STEP + "step:1 - aa" * size)


@_attack(50_000)
def _log_of_numbers(folder: Path, size: int) -> list[str]:
    return _log(folder, _VERL_STEP + "step:3 - a/b:" + "a." * size + "\n" + "-" * size)


@_attack(50_000)
def _log_of_quotes(folder: Path, size: int) -> list[str]:
    return _log(folder, "Global step 1: {'a': 1, " + "'" * size + "}\n")


@_attack(2000)
def _log_of_nested_rows(folder: Path, size: int) -> list[str]:
    return _log(folder, "{'loss': 0.1, 'reward': 0.5, 'x': " + "[" * size + "]" * size + "}\n")


@_attack(50_000)
def _log_of_open_rows(folder: Path, size: int) -> list[str]:
    return _log(folder, "{'loss': 0.1, 'reward': 0.5}\n" + "{'a': " * size + "\n")


@_attack(50_000)
def _log_of_tables(folder: Path, size: int) -> list[str]:
    return _log(folder, "{'loss': 0.1, 'reward': 0.5}\n" + "| " * size + "\n" + "|-" * size)


@_attack(50_000)
def _log_of_progress_bars(folder: Path, size: int) -> list[str]:
    return _log(folder, "{'loss': 0.1, 'reward': 0.5}\n" + "1%|1/" * size + "\n")


@_attack(50_000)
def _log_of_colours(folder: Path, size: int) -> list[str]:
    return _log(folder, _VERL_STEP + "\x1b[0" * size)


@_attack(20_000)
def _log_of_secrets(folder: Path, size: int) -> list[str]:
    command = "+ python3 -m verl.trainer.main_ppo a=" + "-eyJ" * size
    return _log(folder, f"{command}\n{_VERL_STEP}")


@_attack(20_000)
def _log_of_long_commands(folder: Path, size: int) -> list[str]:
    return _log(folder, f"+ python3 -m verl.trainer.main_ppo {'a=1 ' * size}\n{_VERL_STEP}")


@_attack(2000)
def _log_of_verl_steps(folder: Path, size: int) -> list[str]:
    return _log(folder, "".join(f"step:{i} - a/l:0.1 - timing_s/step:1.0\n" for i in range(size)))


@_attack(10_000)
def _log_of_verl_configuration(folder: Path, size: int) -> list[str]:
    return _log(folder, f"{_VERL_STEP}{{'actor_rollout_ref'\n" + "a}\n" * size)


@_attack(50_000)
def _log_of_blanks_after_steps(folder: Path, size: int) -> list[str]:
    return _log(folder, _VERL_STEP.replace("critic/score", "c") + "step:1" + "\n" * size)


@_attack(50_000)
def _log_of_open_cells(folder: Path, size: int) -> list[str]:
    return _log(folder, "{'loss': 0.1, 'reward': 0.5}\n" + "<td>" * size + " " * size + "\n")


@_attack(50_000)
def _log_of_blanks(folder: Path, size: int) -> list[str]:
    blanks = " " * size
    rows = (
        f"a{blanks}b\n{blanks}%|x\nexitcode{blanks}x\n<td>{blanks}</td></tr>\nstep:1 -{blanks}x\n"
    )
    return _log(folder, "{'loss': 0.1, 'reward': 0.5}\n" + rows)


@_attack(50_000)
def _log_of_digits(folder: Path, size: int) -> list[str]:
    digits = "1" * size
    rows = f"{digits}%|x\n{{'loss': 0.1, 'reward': {digits}x}}\nGlobal step 2: {{'a': {digits}x}}\n"
    return _log(folder, "{'loss': 0.1, 'reward': 0.5}\n" + rows)


def _pack(path: Path, head: bytes, piece: bytes, times: int) -> None:
    """A small file that unpacks to `times` pieces."""
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(head)
        for _ in range(times):
            file.write(piece)


@_attack(20)
def _gzip_without_line_ends(folder: Path, size: int) -> list[str]:
    _pack(folder / "a.log.gz", _VERL_STEP.encode(), b"a" * (1 << 20), size)
    return ["report", "a.log.gz", "--format", "text"]


@_attack(20)
def _trace_without_line_ends(folder: Path, size: int) -> list[str]:
    head = b'{"grpoDoctor": {"schema": 1},\n"traceEvents": [\n'
    _pack(folder / "trace.json.gz", head, b" " * (1 << 20), size)
    return ["report", "trace.json.gz", "--format", "text"]


@_attack(20)
def _kineto_without_events(folder: Path, size: int) -> list[str]:
    head = b'{"schemaVersion": 1, "traceEvents": ['
    _pack(folder / "k.pt.trace.json.gz", head, b'{"a":' * 200_000, size)
    return ["report", "k.pt.trace.json.gz", "--format", "text"]


@_attack(2000)
def _trainer_state_depth(folder: Path, size: int) -> list[str]:
    (folder / "trainer_state.json").write_text('{"log_history": ' + "[" * size)
    return ["report", "trainer_state.json", "--format", "text"]


@_attack(2000)
def _run_depth(folder: Path, size: int) -> list[str]:
    (folder / "run").mkdir()
    (folder / "run" / "run.json").write_text('{"a":' * size)
    (folder / "run" / "job.json").write_text("[" * size)
    return ["report", "run", "--format", "text"]


@_attack(50_000)
def _spans_without_length(folder: Path, size: int) -> list[str]:
    run = folder / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    (run / "metrics.jsonl").write_text('{"step": 1}\n' * size)
    return ["report", "run", "--format", "text"]


# -- bundles


def _tar(folder: Path, content: bytes) -> list[str]:
    (folder / "b.tar.gz").write_bytes(gzip.compress(content))
    return ["attach", "--replay", "b.tar.gz"]


@_attack(1 << 20)
def _tar_with_giant_header(folder: Path, size: int) -> list[str]:
    info = tarfile.TarInfo("x")
    info.pax_headers = {"comment": "x" * size}
    return _tar(folder, info.tobuf(tarfile.PAX_FORMAT))


@_attack(1 << 20)
def _tar_with_pax_of_digits(folder: Path, size: int) -> list[str]:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, size
    return _tar(folder, info.tobuf(tarfile.USTAR_FORMAT) + b"1" * size)


@_attack(1 << 20)
def _tar_with_long_name(folder: Path, size: int) -> list[str]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("x/" * (size // 2)))
    return _tar(folder, buffer.getvalue())


@_attack(20_000)
def _tar_with_many_entries(folder: Path, size: int) -> list[str]:
    return _tar(folder, tarfile.TarInfo("x").tobuf() * size)


@_attack(20_000)
def _tar_with_many_long_names(folder: Path, size: int) -> list[str]:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1
    return _tar(folder, (info.tobuf(tarfile.USTAR_FORMAT) + b"a" * 512) * size)


@_attack(20)
def _evidence_that_unpacks(folder: Path, size: int) -> list[str]:
    _pack(folder / "evidence.json.gz", b"", b" " * (1 << 20), size)
    return ["attach", "--replay", "evidence.json.gz"]


@_attack(2000)
def _evidence_depth(folder: Path, size: int) -> list[str]:
    (folder / "evidence.json.gz").write_bytes(gzip.compress(b'{"schema": 1, "a": ' + b"[" * size))
    return ["attach", "--replay", "evidence.json.gz"]


@_attack(20_000)
def _dumps_of_nested_lists(folder: Path, size: int) -> list[str]:
    (folder / "d").mkdir()
    (folder / "d" / "nccl_trace_rank_0").write_bytes(b"\x80\x02" + b"]" * size + b"a" * size + b".")
    (folder / "d" / "nccl_trace_rank_1").write_text(json.dumps({"version": "2.10"}) + "[" * size)
    return ["attach", "--dumps", "d"]
