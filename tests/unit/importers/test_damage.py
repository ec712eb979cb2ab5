"""Whatever happened to a file: a trace or one clear error, never anything else."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document import build_document
from grpo_doctor.errors import TraceError
from grpo_doctor.importers.load import load
from grpo_doctor.trace.model import Trace
from tests.unit.importers import (
    test_nemo_rl_log,
    test_openrlhf_log,
    test_trackers,
    test_verl_log,
    trainer_rows,
)
from tests.unit.importers.kineto_files import rank_events, text_of

STEPS = range(1, 8)
_TEXTS: dict[str, str] = {
    "verl.log": "\n".join([test_verl_log.COMMAND, *map(test_verl_log.step_line, STEPS)]) + "\n",
    "openrlhf.log": "\n".join(map(test_openrlhf_log.step_line, STEPS)) + "\n",
    "logging.jsonl": "".join(json.dumps(trainer_rows.swift_row(n, 7.5 * n)) + "\n" for n in STEPS),
    "trainer_state.json": trainer_rows.state_text(
        *(trainer_rows.trl_row(n, step_time=3.0) for n in STEPS)
    ),
    "console.log": "".join(trainer_rows.printed(step_time=n, kl=0.5) + "\n" for n in STEPS),
    "rank0.pt.trace.json": text_of(rank_events(steps=6)),
    "compact.pt.trace.json": text_of(rank_events(steps=6), indent=None),
    "nemo.log": "".join(map(test_nemo_rl_log.step_text, STEPS)),
}
FILES = {name: text.encode() for name, text in _TEXTS.items()} | {
    "run-abc.wandb": test_trackers.wandb_rows(STEPS),
    "events.out.tfevents.1": test_trackers.events_file(STEPS),
}


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def flipped(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.randrange(1, 20)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def numbers_replaced(content: bytes, chance: random.Random) -> bytes:
    strange = chance.choice([b"NaN", b"-1e999", b"null", b'"x"', b"[[]]", b"99999999999999999999"])
    digits = [i for i, byte in enumerate(content) if chr(byte).isdigit()]
    at = chance.choice(digits)
    return content[:at] + strange + content[at + 1 :]


def repeated(content: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(content))
    return content + content[begin:]


def loaded(path: Path) -> Trace | None:
    try:
        return load(path)
    except TraceError as problem:
        if str(path) not in str(problem):
            raise
        return None


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [cut, flipped, numbers_replaced, repeated])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_damage_gives_a_trace_or_a_reason(
    tmp_path: Path, name: str, damage: Callable[[bytes, random.Random], bytes], packed: bool
) -> None:
    sound = FILES[name]
    path = tmp_path / (f"{name}.gz" if packed else name)
    for seed in range(25):
        chance = random.Random(f"{name} {damage.__name__} {seed}")
        if packed and damage in (cut, flipped):
            path.write_bytes(damage(gzip.compress(sound), chance))
        else:
            content = damage(sound, chance)
            path.write_bytes(gzip.compress(content) if packed else content)
        trace = loaded(path)
        if trace is None:
            continue
        analyse(trace)
        if seed < 1:
            assert not build_document(trace).rule_errors


def test_each_file_is_whole_to_begin_with(tmp_path: Path) -> None:
    for name, content in FILES.items():
        path = tmp_path / name
        path.write_bytes(content)
        trace = load(path)
        assert not trace.loss.any, name
        assert trace.run.origin is not None
