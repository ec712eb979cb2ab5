"""When the backend gives up on a collective and kills the ranks, and with them the evidence."""

from __future__ import annotations

from collections.abc import Sequence

# torch's own: kProcessGroupNCCLDefaultTimeout and default_pg_timeout.
NCCL_S, GLOO_S = 600.0, 1800.0
# transformers, and so TRL and ms-swift, and the bundled trainer.
_FLAGS = ("--ddp_timeout", "--ddp-timeout")
_TRAINERS_S = 1800.0


def timeout_s(arguments: Sequence[str], *, bundled: bool, gpus: int) -> float:
    """The timeout in seconds that the command's words tell, else the default.

    Args:
        arguments: the command, or the bundled trainer's flags.
        bundled: whether it is the bundled trainer, which has a default of its own.
        gpus: visible GPUs; without any the backend is gloo.
    """
    for index, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in _FLAGS:
            text = value if equals else "".join(arguments[index + 1 : index + 2])
            if text.isdecimal() and int(text):
                return float(text)
    if bundled:
        return _TRAINERS_S
    return NCCL_S if gpus else GLOO_S
