"""Takes secrets out of commands and configurations before they are written anywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from typing import Any

HIDDEN = "[redacted]"
_SECRET_NAME = re.compile(
    r"(?:^|[_\-.])(?:api[_\-]?key|access[_\-]?key|auth|token|hub_token|secret|password|passwd|"
    r"credential|private[_\-]?key|wandb[._]key|use_wandb)s?$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_\-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|"
    r"AKIA[A-Z0-9]{12,}|xox[abps]-[A-Za-z0-9\-]{10,}|ms-[0-9a-f]{8}-[0-9a-f\-]{20,}|"
    r"AIza[A-Za-z0-9_\-]{30,}|nvapi-[A-Za-z0-9_\-]{16,}|glpat-[A-Za-z0-9_\-]{16,}|"
    r"eyJ[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-.]+|[0-9a-f]{40})\b"
)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=\-]{8,}", re.IGNORECASE)
# `?token=...` in an address and `"api_key": "..."` in JSON: a name, what stands between, a value.
_NAMED = re.compile(
    r"""(?<![A-Za-z0-9_\-])(?P<name>[A-Za-z0-9_\-]{1,64})(?P<between>=|"\s*:\s*")(?P<value>[^"&\s]+)"""
)
_URL_PASSWORD = re.compile(r"(?<=://)([^/\s:@]+):([^/\s@]+)@")
# Names that end like a secret and are none: an optimizer step's `max_token` is a number of tokens.
_COUNT = re.compile(r"tokens$", re.IGNORECASE)
_HARMLESS = re.compile(r"(?:max|min|num|pad|eos|bos|per)[_\-]\w*tokens?$", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether an option or variable of this name usually holds a secret."""
    bare = name.lstrip("-")
    return bool(_SECRET_NAME.search(bare)) and not _HARMLESS.search(bare)


def redact_text(text: str) -> str:
    """`text` without what looks like a key, and without what is named as one in an address, in
    JSON or in a header."""
    text = _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", _SECRET_VALUE.sub(HIDDEN, text))
    return _NAMED.sub(_hide_named, _BEARER.sub(rf"\1 {HIDDEN}", text))


def _hide_named(match: re.Match[str]) -> str:
    name, between, _ = match.groups()
    return f"{name}{between}{HIDDEN}" if is_secret_name(name) else match[0]


def redact_command(arguments: Sequence[str]) -> list[str]:
    """A command line with `--api_key VALUE`, `--api-key=VALUE` and `API_KEY=VALUE` hidden."""
    result: list[str] = []
    hide_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if hide_next and not argument.startswith("--"):
            result.append(HIDDEN)
        elif equals and is_secret_name(name):
            result.append(f"{name}={HIDDEN}")
        else:
            result.append(redact_text(argument))
        hide_next = not equals and argument.startswith("-") and is_secret_name(argument)
    return result


def redact_mapping(values: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with secret values hidden, nested mappings included."""
    return {str(key): _redact(str(key), value) for key, value in values.items()}


def _redact(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return redact_mapping(value)
    if isinstance(value, bool) or (isinstance(value, (int, float)) and _COUNT.search(name)):
        return value  # `use_auth`, `total_tokens`
    if value is not None and value != "" and is_secret_name(name):
        return HIDDEN
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, (list, tuple)):
        return [_redact("", item) for item in value]
    return value
