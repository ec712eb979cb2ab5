"""A few small arguments of calls on the main thread's stack: which peer, which tag, which key.

py-spy can print every local variable; prompts and keys are among them. So names and values are
let through one by one, and everything else is dropped before anything else sees it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from grpo_doctor_probes.look import pyspy
from grpo_doctor_probes.redact import redact_text

if TYPE_CHECKING:
    from typing import Any

_NUMBERS = frozenset(
    {
        "src",
        "dst",
        "group_src",
        "group_dst",
        "peer",
        "rank",
        "tag",
        "root",
        "world_size",
        "async_op",
    }
)
# Keys of the rendezvous store and names of groups are made by libraries.
_NAMES = frozenset({"key", "keys", "store_key", "group_name", "barrier_name"})
_RANKS = frozenset({"ranks", "global_ranks_in_group"})
# Where libraries have the file of a lock that they try again and again.
_PATHS = frozenset({"canonical_path", "lock_filename", "lock_file", "lock_path"})
_NUMBER = re.compile(r"-?\d{1,9}|None|True|False")
_LIST = re.compile(r"\[\d{1,9}(, \d{1,9})*(, \.\.\.)?\]")  # py-spy cuts long ones off
_PLAIN = dict.fromkeys(_NUMBERS, _NUMBER) | dict.fromkeys(_RANKS, _LIST)
_NAME = re.compile(r"""["']?([A-Za-z0-9_:/.\-]{1,60})["']?""")
_PATH = re.compile(r"""["']?(/[^\s"'\\]{1,200})["']?""")
_AT_MOST_S = 3.0


def arguments(pid: int, functions: frozenset[str]) -> dict[str, dict[str, str]]:
    """`{function: {argument: value}}` of those `functions` that are on the main thread's stack.

    Empty where py-spy cannot tell. Of a function that is on the stack twice, the innermost call.
    """
    try:
        threads = pyspy.dump(pid, "--nonblocking", "--locals", at_most_s=_AT_MOST_S)
    except pyspy.PySpyError:  # `stacks` of the same process has said why
        return {}
    found: dict[str, dict[str, str]] = {}
    for thread in threads:
        if thread.get("os_thread_id") != pid:
            continue
        for one in thread.get("frames") or []:
            name = pyspy.frame(one).function.rpartition(".")[2]  # a method's has its class
            if name in functions and name not in found:
                found[name] = safe_values(one.get("locals") or [])
    return found


def safe_values(variables: list[dict[str, Any]]) -> dict[str, str]:
    """The variables that may be shown, out of those that py-spy lists for a frame."""
    found = {}
    for variable in variables:
        name, value = str(variable.get("name")), str(variable.get("repr"))
        if name in _PLAIN and _PLAIN[name].fullmatch(value):
            found[name] = value
        elif name in _NAMES and (match := _NAME.fullmatch(value)):
            found[name] = redact_text(match[1])
        elif name in _PATHS and (match := _PATH.fullmatch(value)):
            found["path"] = redact_text(match[1])
    return found
