"""Answers without a signature: who raised an error, about which settings, packages or files."""

from __future__ import annotations

import pytest

from grpo_doctor.diagnose import answer

SITE = "/x/lib/python3.11/site-packages"


def traceback(*frames: str, error: str) -> str:
    """A traceback of `file:function` frames, the innermost last."""
    rows = "".join(
        f'  File "{file}", line 7, in {function}\n    f()\n'
        for file, function in (frame.rsplit(":", 1) for frame in frames)
    )
    return f"Traceback (most recent call last):\n{rows}{error}\n"


CONFIG = f"{SITE}/trl/trainer/grpo_config.py:__post_init__"
TRAINER = f"{SITE}/transformers/trainer.py:train"


@pytest.mark.parametrize(
    ("text", "name", "certainty", "words"),
    [
        (traceback("t.py:m", CONFIG, error="ValueError: num_iterations must be at most 2"),
         "settings-refused", "likely", "trl refused its settings: num_iterations must be at most"),
        (traceback("t.py:m", CONFIG, error="ValueError: these two cannot be set together"),
         "settings-refused", "possible", "cannot be set together"),
        ("AssertionError: train_batch_size must be at least 2", "settings-refused", "possible", ""),
        ("ValueError: 2 nodes, but the job requires 4", "settings-refused", "possible", "nodes"),
        # A signature comes first, a symptom last.
        ("ValueError: train_batch_size must be 2\nNo available memory for the cache blocks",
         "no-room-for-kv-cache", "proven", ""),
        ("ValueError: train_batch_size must be 2\nEngineCore failed to start",
         "settings-refused", "possible", ""),
        # What a program meets while it runs is no setting.
        ("RuntimeError: batch_size 4 must match target batch_size 8, shape (4, 8)", None, "", ""),
        ("RuntimeError: this operation must be done before", None, "", ""),
        ("RuntimeError: parameter 4 must be ready only once, it was 2 times", None, "", ""),
        (traceback(TRAINER, error="ValueError: it must be larger"), "package-failed", "possible",
         "transformers failed at trainer.py:7, train: ValueError: it must be larger."),
        (traceback("t.py:m", f"{SITE}/torch/x.py:check", error="ValueError: top_k must be 2"),
         "own-code", "possible", "torch raised it in a call at t.py:7, m: ValueError: top_k"),
        (traceback(TRAINER, f"{SITE}/trl/x.py:f", error="TypeError: A.f() got an unexpected "
         "keyword argument 'b'"), "versions-do-not-fit", "possible",
         "A.f() does not know b: trl and transformers are of versions"),
        # A title has no type of its error, or not its end.
        ("用f() got an unexpected keyword argument 'b'", "versions-do-not-fit", "possible", "f()"),
        ("TypeError: f() got an unexpected keyword argument 'b_", "versions-do-not-fit",
         "possible", "f() does not know b_"),
        ("t.py --configs a rm-1b\nKeyError: 'rm-1b'", "value-unknown", "likely", "no entry rm-1b"),
        ("AttributeError: 'list' object has no attribute 'x'", None, "", ""),
        ("TypeError: PPOTrainer.compute_rewards() got an unexpected keyword argument 'b'",
         "versions-do-not-fit", "possible", ""),
        ("    a = b[c].pop()\nIndexError: pop from an empty deque", None, "", ""),
        ("Unpickler error: Unsupported global: GLOBAL a.B was not allowed", None, "", ""),
        ("ds3_gather_for_generation=False vllm_mode='colocate', vllm_server_host=None\n"
         + traceback("/u/r.py:reward", error="KeyError: 'a'"), "own-code", "likely", "r.py:7"),
        # The first error, not the first that a rule can read.
        (traceback(f"{SITE}/vllm/x.py:step", error="RuntimeError: odd state of the table")
         + traceback("t.py:m", error="ValueError: train_batch_size must be at least 2"),
         "package-failed", "possible", "vllm failed at x.py:7, step: RuntimeError: odd"),
        (traceback(f"{SITE}/swift/x.py:f", error="AttributeError: 'S' object has no attribute 'a'")
         .replace("    f()", "    if self.a is None:"), "versions-do-not-fit", "possible",
         "'S' object uses a and nothing has set it: a bug of this version of swift"),
        # A package that imports from itself.
        (("/x/dist-packages/trl/x/__init__.py in <module>\n     26\n---> 27 from ..y import W\n"
         "ImportError: cannot import name 'W' from 'trl.y' (/x)"), "package-version", "likely",
         "trl does not find W in its own code"),
        ("ValueError: value should be one of int, float, str", "kinds-differ", "possible", "kind"),
        (traceback("/u/r.py:reward", error="TypeError: string indices must be integers"),
         "own-code", "likely", "at r.py:7, reward"),
        (traceback(f"{SITE}/verl/a.py:f", f"{SITE}/flash_attn/c.py:g", error="AssertionError: a"),
         "package-failed", "possible", "flash_attn failed at c.py:7, g: AssertionError: a"),
        # A name with a word in it that says who ended a process is no such word.
        ("AssertionError: RAY_WORKER_HOOK is not permitted", "check-failed", "possible", ""),
        ("AssertionError: the worker exited", None, "", ""),
        # What a warning mentions did not end the program, and a driver's frames are not a worker's.
        ("WARNING not reached (AssertionError: a is 2)", None, "", ""),
        (traceback("t.py:m", error="ray.exceptions.RayTaskError(AssertionError): ray::A.f()")
         + traceback(f"{SITE}/verl/a.py:f", error="AssertionError: a is 2"), "package-failed",
         "possible", "verl failed at a.py:7, f"),
        ("AttributeError: 'E' object has no attribute 'x'\nWorkerProc failed to start",
         None, "", ""),
        (traceback(f"{SITE}/vllm/x.py:rpc", error="NotImplementedError"), "not-implemented",
         "possible", "vllm does not implement rpc for this engine"),
        ("x = example[self.k]\nerror: KeyError: 'a", "data-lacks-a-field", "likely", "field a."),
        (traceback(TRAINER, "/u/r.py:reward", error="KeyError: 'a'"), "own-code", "likely",
         "at r.py:7, reward, which transformers calls: KeyError: 'a'"),
        (traceback("/u/r.py:m", TRAINER, error="KeyError"), None, "", ""),
        (traceback(TRAINER, error="TimeoutError: no answer"), None, "", ""),
        ("TRL version: 0.13.0\n" + traceback(f"{SITE}/swift/x.py:f", error="ImportError: cannot "
         "import name 'GRPOConfig' from 'trl'"), "package-version", "likely",
         "The installed trl 0.13.0 has no GRPOConfig, which swift expects"),
        (traceback(f"{SITE}/swift/loss.py:get", error="KeyError: 'grpo'").replace(
         "    f()", "    return LOSSES[args.loss_type]"), "value-unknown", "possible",
         "swift knows no loss_type 'grpo'"),
        ("ValueError: it must be 'a' or 'b', got 'b'", "message-contradicts-itself", "likely", "b"),
        ("[rank1]: RuntimeError: size of tensor a (512) must match the size of tensor b (2048)",
         "sizes-differ", "possible", "512 and 2048 (4 times, as those of all ranks"),
        ("RuntimeError: The size of tensor a (9) must match the size of tensor b (8)",
         "sizes-differ", "possible", "9 and 8; a bug of this version"),
        ("RuntimeError: value tensor of shape [3, 339] cannot be broadcast to a shape of [3, 336]",
         "sizes-differ", "possible", "[3, 339] and [3, 336]; a bug"),
        ("AssertionError: Reward model is not correctly loaded.", "load-failed", "possible", "is"),
        ("AttributeError: 'A' object has no attribute 'unsloth_x'", "versions-do-not-fit",
         "possible", "no unsloth_x, which unsloth adds: it was imported before unsloth"),
        ("MemoryError: Unable to allocate 9.1 GiB", "out-of-memory", "likely", "allocate 9.1 GiB"),
        ("RuntimeError: NPU out of memory. Tried 2 GiB", "out-of-memory", "likely", "Tried 2 GiB"),
        # A warning, a retry and a finalizer ended nothing; the others' time-outs follow from it.
        ("WARNING 05-16 ModuleNotFoundError: No module named 'flash_attn'\n"
         + traceback("/u/r.py:reward", error="IndexError: a"), "own-code", "likely", "r.py:7"),
        (("WARNING -- [Errno 98] Address already in use: port 8265, using 8266\n"
          "x = batch['scores']\nKeyError: 'scores'"), "batch-lacks-a-key", "possible", "no scores"),
        ("WARNING: CUDA out of memory in the capture, retry with a smaller batch", None, "", ""),
        ("Exception ignored in: <function A.__del__>\n" + traceback("a.py:f", error="OSError: b")
         + traceback("/u/r.py:reward", error="IndexError: a"), "own-code", "likely", "reward"),
        (traceback("/u/r.py:reward", error="TypeError: float() argument must be a string or a real "
         "number, not 'NoneType'") + "[Rank 1] Watchdog caught collective operation timeout: "
         "WorkNCCL(SeqNum=880, OpType=_ALLGATHER_BASE, NumelIn=131137536, NumelOut=131137536, "
         "Timeout(ms)=1800000)", "own-code", "likely", "at r.py:7, reward"),
        ("error: externally-managed-environment", None, "", ""),
        ("pcieport 0000:00:03.0: PCIe Bus error: severity=Corrected", None, "", ""),
        ("Connection refused\nNCCL INFO Bootstrap : Using eth0", None, "", ""),
        # An error that the program handled is not the one that ended it.
        (traceback(TRAINER, "/u/my.py:reward", error="KeyError: 'a'")
         + "\nDuring handling of the above exception, another exception occurred:\n"
         + traceback("t.py:m", error="OSError: b"), "own-code", "likely",
         "at t.py:7, m: OSError: b"),
    ],
)  # fmt: skip
def test_what_an_error_shows(text: str, name: str | None, certainty: str, words: str) -> None:
    cause = answer(text).cause
    assert (cause.name if cause else None) == name
    if cause:
        assert cause.certainty == certainty
        assert words in cause.says
