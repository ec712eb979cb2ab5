"""Where the server's output goes: vLLM's to a log file, our few lines to the terminal as well."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from grpo_doctor_trainer.errors import ConfigError
from grpo_doctor_trainer.logs.console import LOG

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def output_in(log: Path) -> Iterator[None]:
    """Sends stdout and stderr of this process and those it starts to a file.

    The descriptors themselves are moved, because vLLM's workers and compilers write to them
    directly. The trainer's logger goes on to the terminal, and to the file.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    except OSError as error:
        raise ConfigError(
            f"--output_dir: the log {log} cannot be written ({error.strerror}); give another folder"
        ) from error
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    handlers = LOG.handlers
    with os.fdopen(os.dup(kept[0]), "w", encoding="utf-8", buffering=1) as terminal:
        LOG.handlers = [logging.StreamHandler(terminal), logging.StreamHandler(sys.stdout)]
        os.dup2(target, 1)
        os.dup2(target, 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, descriptor)
            for descriptor in (*kept, target):
                os.close(descriptor)
            LOG.handlers = handlers
