"""Jobs whose caller can tell whether they are recorded: `python -m tests.security.jobs [NAME...]`.

Each is a line of bash in which `$RUN` stands before the job: nothing, or `grpo-doctor run ... --`.
Compared are the exit code, standard output and error to the byte (without the lines that `run`
says itself), and the files that are left. 0 if all are equal.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SHOW = "$RUN $PY -c 'import sys; print(sys.argv[1:])'"
_STATUS = "$RUN grep -E '^Sig(Blk|Ign)|^NoNewPrivs|^Cpus_allowed:' /proc/self/status"
_TRAPS = "trap 'echo got; exit 9' TERM INT USR1; echo > on; while :; do sleep 0.05; done"
_SENT = f'$RUN sh -c "{_TRAPS}" & until [ -e on ]; do sleep 0.05; done; kill -%s $!; wait $!'
JOBS = {
    # descriptors
    "process-substitution": "$RUN cat <(echo words) <(echo more)",
    "config-by-substitution": "$RUN $PY -c 'import sys; print(open(sys.argv[2]).read())' "
    "--config <(echo 'beta: 0.04')",
    "output-substitution": "$RUN sh -c 'echo words > $0' >(cat > out); wait $!; cat out",
    "descriptor-7": "$RUN sh -c 'cat <&7' 7< in",
    "descriptor-200": "$RUN $PY -c 'import os; print(os.read(200, 9))' 200< in",
    "descriptor-to-write": "$RUN sh -c 'echo more >&9' 9>> in; cat in",
    "list-of-descriptors": "$RUN ls /proc/self/fd 5< in 44> out",
    "half-read-descriptor": "{ $RUN sh -c 'read -r a; echo $a'; cat; } < in",
    "fifo": "mkfifo f; { echo words > f & }; $RUN cat f; wait",
    "fifo-as-script": "mkfifo f.sh; { echo 'echo words' > f.sh & }; $RUN bash f.sh; wait",
    "fifo-as-config": "mkfifo f.yaml; { echo 'a: 1' > f.yaml & }; $RUN tail -n 5 f.yaml; wait",
    "coprocess": "coproc { cat; }; exec 8>&${COPROC[1]} 9<&${COPROC[0]}; "
    "$RUN bash -c 'echo words >&8; head -n 1 <&9'",
    "job-server": "printf 'all:\\n\\t+@$(RUN) $(MAKE) -s -f m2\\n' > m1; "
    "printf 'all: a b\\na b:\\n\\t@echo made\\n' > m2; make -s -j3 -f m1 2>&1",
    # standard streams
    "input-by-pipe": "cat in | $RUN cat",
    "input-by-file": "$RUN wc -c < in",
    "input-by-here-document": "$RUN bash <<'END'\necho words\nexit 4\nEND",
    "input-of-a-megabyte": "head -c 1000000 /dev/zero | $RUN cksum",
    "input-is-the-script": "$RUN $PY - a b < script.py",
    "input-closed": "$RUN sh -c 'cat; echo $?' <&-",
    "output-closed": "$RUN sh -c 'echo words; echo $? >&2' >&-",
    "error-closed": "$RUN sh -c 'echo words >&2; echo $?' 2>&-",
    "every-byte": "$RUN $PY -c 'import sys; sys.stdout.buffer.write(bytes(range(256)))'",
    "ten-megabytes": "$RUN head -c 10000000 /dev/zero | cksum",
    "both-into-one": "$RUN sh -c 'echo a; echo b >&2; echo c' 2>&1",
    "reader-that-leaves": "$RUN yes | head -n 1; echo ${PIPESTATUS[0]}",
    "device-that-is-full": "$RUN sh -c 'echo words > /dev/full'",
    "terminal": "script -qec \"$RUN sh -c 'tty > /dev/null && echo words'\" /dev/null < /dev/null",
    # how it ends
    "exit-42": "$RUN sh -c 'exit 42'",
    "exit-255": "$RUN $PY -c 'raise SystemExit(-1)'",
    "exit-with-a-word": "$RUN $PY -c 'raise SystemExit(\"words\")'",
    "traceback": "$RUN $PY script.py --fail",
    "killed-by-itself": "{ $RUN sh -c 'kill -9 $$'; echo $?; } 2> /dev/null",
    "aborted": "{ $RUN $PY -c 'import os; os.abort()'; echo $?; } 2> /dev/null",
    "child-that-stays": "$RUN sh -c '(sleep 0.4; echo late > late) >&- 2>&- & echo done'; "
    "until [ -s late ]; do sleep 0.05; done; cat late",
    # signals
    "terminated": _SENT % "TERM",
    "told-usr1": _SENT % "USR1",
    "hangup-ignored": f"trap '' HUP; {_STATUS}",
    "others-ignored": f"trap '' USR2 ALRM TTOU CHLD; {_STATUS}",
    "in-the-background": f"{_STATUS} & wait $!",
    "signals-blocked": "$PY -c 'import os, signal, sys; signal.pthread_sigmask(0, {10, 12, 15}); "
    f"os.execvp(sys.argv[1], sys.argv[1:])' {_STATUS} | grep -v SigIgn",
    "within-timeout": "timeout -s INT 60 $RUN sh -c 'kill -INT $$'; echo $?",
    # what it is given
    "arguments": f"{_SHOW} '' ' a' $'b\\nc' -- --json -o $'\\xff' '*' é",
    "a-thousand-arguments": f"{_SHOW} {{1..1000}} | cksum",
    "environment": "A=$'x\\ny' B= PYTHONPATH=/x LD_LIBRARY_PATH=/y C=$'\\xff' $RUN env -u _ | "
    "sed 's#[^=]*hooks/startup:##' | grep -a -v -E '^(RUN|GRPO_DOCTOR|OLDPWD)' | sort",
    "environment-emptied": "$RUN env -i A=1 env",
    "folder": "mkdir d; ln -s d e; cd e; $RUN sh -c 'pwd -L; pwd -P' | sed 's#/[^ ]*/##'",
    "umask-027": "umask 027; $RUN sh -c 'umask; mkdir d; echo > f'; stat -c '%a %n' d f",
    "umask-000": "umask 000; $RUN sh -c 'mkdir d; echo > f'; stat -c '%a %n' d f",
    "limits": "ulimit -c 0 -s 4096 -f 90000; $RUN bash -c 'ulimit -a'",
    "few-descriptors": "ulimit -n 24; $RUN bash -c 'ulimit -n'",
    "niceness": "nice -n 3 $RUN nice",
    "one-processor": f"taskset -c 0 {_STATUS}",
    "group-and-session": "$RUN $PY -c 'import os, sys; print(os.getpgrp() == os.getpgid(int("
    "sys.argv[1])), os.getsid(0) == os.getsid(int(sys.argv[1])))' $$",
    # how it is started
    "shebang": "chmod +x script.py; PATH=${PY%/*}:$PATH $RUN ./script.py a",
    "without-shebang": "echo 'echo words $1' > s; chmod +x s; $RUN ./s a",
    "wrapper": "echo 'X=1 exec \"$@\"' > w; $RUN bash w sh -c 'echo $X'",
    "by-xargs": "echo a b | xargs $RUN echo",
    "name-in-argv-0": "$RUN bash -c 'exec -a other cat /proc/self/comm'",
    # Python
    "warnings-are-errors": "$RUN $PY -W error -X dev -bb script.py a",
    "isolated": "$RUN $PY -I -S -c 'import sys; print(sys.flags, sys.path)'",
    "own-sitecustomize": "echo 'import sys; print(\"mine\", file=sys.stderr)' > sitecustomize.py; "
    "PYTHONPATH=. $RUN $PY script.py 2>&1 | sort -u",
    "state-of-python": "$RUN $PY state.py",
    "spawned": "$RUN $PY spawned.py",
}  # fmt: skip
_FILES = {
    "in": "line 1\nline 2\nline 3\n",
    "script.py": "#!/usr/bin/env python\nimport sys\nprint(sys.argv[1:], __name__)\n"
    "if '--fail' in sys.argv:\n    raise ValueError('words')\n",
    "state.py": "import atexit, faulthandler, gc, random, signal, sys, threading, warnings\n"
    "random.seed(1)\nprint(random.random(), gc.isenabled(), gc.get_threshold(), sys.flags)\n"
    "print(threading.active_count(), faulthandler.is_enabled(), warnings.filters, sys.argv)\n"
    "print([(n, signal.getsignal(n)) for n in (1, 2, 10, 12, 13, 15, 17)], sys.excepthook)\n"
    "print(sys.getswitchinterval(), sys.getrecursionlimit(), sys.gettrace(), sys.getprofile())\n",
    "spawned.py": "import multiprocessing as m\ndef f(x):\n    return x * x\n"
    "if __name__ == '__main__':\n    with m.get_context('spawn').Pool(2) as p:\n"
    "        print(p.map(f, range(4)))\n",
}
_OURS = b"grpo-doctor: "


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the caller of a job sees of it."""

    code: int
    output: bytes
    error: bytes
    files: dict[str, bytes]


def outcome(line: str, *, recorded: bool) -> Outcome:
    """What comes of the line in a folder of its own, bare or recorded."""
    with tempfile.TemporaryDirectory(prefix="job") as name:
        folder = Path(name) / "job"
        folder.mkdir()
        for file, text in _FILES.items():
            (folder / file).write_text(text)
        run = f"{sys.executable} -m grpo_doctor run --no-report -o {name}/run --"
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=folder,
            env={**os.environ, "RUN": run if recorded else "", "PY": sys.executable},
            stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }
    output, error = (_without_ours(part, name) for part in (done.stdout, done.stderr))
    return Outcome(done.returncode, output, error, files)


def _without_ours(text: bytes, folder: str) -> bytes:
    lines = text.replace(folder.encode(), b"FOLDER").splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(_OURS))


def differences(name: str) -> list[str]:
    """What differs between the job bare and recorded, each as one line."""
    bare, recorded = (outcome(JOBS[name], recorded=recorded) for recorded in (False, True))
    return [
        f"{part}: {getattr(bare, part)!r} became {getattr(recorded, part)!r}"
        for part in Outcome.__slots__
        if getattr(bare, part) != getattr(recorded, part)
    ]


def main(names: Sequence[str]) -> int:
    """0 if all jobs are the same."""
    found = {name: differences(name) for name in names or JOBS}
    for name, lines in found.items():
        sys.stdout.write("".join(f"{name}: {line}\n" for line in lines))
    same = sum(not lines for lines in found.values())
    sys.stdout.write(f"{same} of {len(found)} jobs are the same bare and recorded\n")
    return same != len(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
