"""Any bytes give an answer or a sentence, in bounded time: `make fuzz` draws for as long as asked.

What is drawn are real files with pieces changed, left out, repeated and moved: bytes without
any form would be refused at their first one.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.document import build_document
from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.hang import dumps
from grpo_doctor.hang.collection import bundle
from grpo_doctor.hang.collection.bundle import packed
from grpo_doctor.importers.load import load
from grpo_doctor.launches import read
from grpo_doctor_probes.evidence import Evidence, FlightDump, Job, Look, Member, ProcessLook
from tests.dumps import formats, spoiled
from tests.recording import write_recording

_ROOT = Path(__file__).parents[1]
_MOST_S = 20.0
_COMMAND = "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B --num_generations 8"
_SHELL = f"""\
set -e
export NPROC_PER_NODE=${{N:-8}}
ARGS=(--beta 0.04 "${{EXTRA[@]}}")
for i in 1 2 3; do A+=" $i"; done
if [ "$1" = gpu ]; then B=$((N * 2)); else B=`echo 1`; fi
case $B in 1|2) C=${{A//1/2}};; *) C=${{A##* }};; esac
f() {{ {_COMMAND} "$@"; }}
cat <<EOF > c.yaml
beta: $C
EOF
while [[ $B -lt 4 && -n $A ]]; do f "${{ARGS[@]}}" --x '$A' \\
  --y "${{A:-$B}}"; B=$((B+1)); done
"""
_PYTHON = """\
from trl import GRPOConfig, GRPOTrainer
SIZE = 8
config = GRPOConfig(output_dir="x", num_generations=SIZE, beta=-0.04, **{"a": [1, (2, 3)]})
trainer = GRPOTrainer(model="Qwen/Qwen2.5-0.5B", args=config, reward_funcs=lambda c: [1.0])
trainer.train()
"""
_YAML = """\
model_name_or_path: &m Qwen/Qwen2.5-7B
list: [1, 2.5, {a: *m, b: "x"}]
deepspeed: {zero_optimization: {stage: 3}}
date: 2026-01-01
text: |
  a
<<: {beta: 0.04}
"""
_VERL = "+ python3 -m verl.trainer.main_ppo data.train_batch_size=8\n" + "".join(
    f"\x1b[36m(TaskRunner pid=1)\x1b[0m step:{i} - actor/loss:0.1 - "
    "critic/score/mean:np.float64(0.2) - timing_s/step:10.0 - timing_s/gen:5.0\n"
    for i in range(4)
)
_OPENRLHF = "".join(
    f"Global step {i}: {{'policy_loss': 0.1, 'timing/generation': 5.0, 'timing/step_total': 9e0}}\n"
    for i in range(4)
)
_TRL = " 1%|a| 1/8 [00:01<00:09, 1s/it]\n" + "".join(
    f"{{'loss': '0.1', 'reward': {i}.5, 'completions/mean_length': 3, 'step_time': 2.0}}\n"
    for i in range(4)
)
_TABLE = "| Step | Training Loss | reward |\n|---|---|---|\n| 1 | 0.1 | 0.5 |\n| 2 | 0.2 | 0.6 |\n"
_STATE = json.dumps({"log_history": [{"step": i, "loss": 0.1, "reward": 1} for i in range(4)]})
_KINETO = """{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "H100"}],
  "baseTimeNanoseconds": 1, "distributedInfo": {"rank": 0, "world_size": 1},
  "traceEvents": [
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 1.0,
   "dur": 9.0, "args": {"a": 1}
  },
  {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 2.0, "dur": 1, "args": {}
  }
  ]
}"""


def _report(name: str) -> Callable[[Path, bytes], None]:
    def reads(folder: Path, content: bytes) -> None:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        build_document(load(folder if name.endswith(".spans") else path))

    return reads


def _launch(name: str, *command: str) -> Callable[[Path, bytes], None]:
    def reads(folder: Path, content: bytes) -> None:
        (folder / name).write_bytes(content)
        read(command or (name,), cwd=folder)

    return reads


def _bundle(folder: Path, content: bytes) -> None:
    (folder / "evidence.json.gz").write_bytes(gzip.compress(content, 1))
    bundle.read(folder)


def _dump(_: Path, content: bytes) -> None:
    dumps.read([FlightDump("file:/d", 0, data=content)])


def _evidence() -> bytes:
    job = Job("node-7", (Member(4_700, 1, 10, "rank", "python", "python train.py", rank=0),), 2)
    looks = tuple(Look(at, (ProcessLook(4_700, at, "S"),)) for at in (10, 20))
    dump = FlightDump("ptrace", 0, 4_700, "fr", 5, b'{"entries": []}')
    evidence = Evidence(job, 1_795_000_000_000_000_000, looks=looks, dumps=(dump,))
    return gzip.decompress(packed(evidence))


def _spans() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        rows = [("step", 10**9, 2 * 10**9), ("rollout", 11 * 10**8, 12 * 10**8)]
        return write_recording(Path(name), 0, rows, opened=[("step", 3 * 10**9)]).read_bytes()


_RING = formats.document(spoiled.steps(2), 0)
_READERS: dict[str, tuple[bytes, Callable[[Path, bytes], None]]] = {
    "shell script": (_SHELL.encode(), _launch("a.sh")),
    "Python script": (_PYTHON.encode(), _launch("a.py", "accelerate", "launch", "a.py")),
    "YAML": (_YAML.encode(), _launch("a.yaml", "trl", "grpo", "--config", "a.yaml")),
    "JSON": (
        b'{"beta": 0.04, "a": [1, {"b": null}]}',
        _launch("a.json", *_COMMAND.split(), "--config", "a.json"),
    ),
    "trace": ((_ROOT / "golden" / "trace_v1.json").read_bytes(), _report("trace.json")),
    "Kineto trace": (_KINETO.encode(), _report("a.pt.trace.json")),
    "verl's log": (_VERL.encode(), _report("verl.log")),
    "OpenRLHF's log": (_OPENRLHF.encode(), _report("openrlhf.log")),
    "TRL's log": (_TRL.encode(), _report("trl.log")),
    "table": (_TABLE.encode(), _report("table.md")),
    "span file": (_spans(), _report("ranks/00000.spans")),
    "bundle": (_evidence(), _bundle),
    "dump as a pickle": (pickle.dumps(_RING, protocol=2), _dump),
    "dump as JSON": (json.dumps(_RING).encode(), _dump),
    "trainer_state.json": (_STATE.encode(), _report("trainer_state.json")),
}
_PIECES = (
    b"\0", b"\n", b"\r\n", b"\xff", b"\x1b[31m", b"{", b"}", b"[", b"]", b"(", b")", b'"', b"'",
    b"`", b"$(", b"${", b"<<", b"&a ", b"*a", b":", b",", b"-", b"|", b"%", b"NaN", b"-1", b"1e999",
    b"9" * 30, b"null", b"true", b"\xe2\x80\xae", b"\x80\x02", b"\xff\xff\xff\xff", b" " * 50,
)  # fmt: skip
_Edit = tuple[int, int, int, bytes, int]


def _edited(seed: bytes, edits: list[_Edit]) -> bytes:
    """Pieces are replaced by others, or by what stands elsewhere, some of it many times."""
    content = seed
    for at, length, source, piece, times in edits:
        begin = at % (len(content) + 1)
        other = piece or content[source % (len(content) + 1) :][:length]
        content = content[:begin] + other * times + content[begin + length :]
        content = content[:200_000]
    return content


_places = st.integers(0, 1 << 16)
_edits = st.lists(
    st.tuples(
        _places,
        st.one_of(st.integers(0, 8), st.integers(0, 400)),
        _places,
        st.one_of(st.sampled_from(_PIECES), st.binary(max_size=8)),
        st.sampled_from([0, 1, 1, 1, 2, 100]),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("reader", _READERS)
@given(edits=_edits)
def test_any_bytes_give_an_answer_or_a_sentence(reader: str, edits: list[_Edit]) -> None:
    seed, reads = _READERS[reader]
    content = _edited(seed, edits)
    begin = time.thread_time()
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(GrpoDoctorError):
        reads(Path(folder), content)
    assert time.thread_time() - begin < _MOST_S
