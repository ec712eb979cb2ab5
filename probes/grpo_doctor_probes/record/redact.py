"""Removes secrets from commands, configurations and text before they are written anywhere.

A value is a secret by the name in front of it (an option, a variable, a header, a member of JSON),
by its shape (published token formats, as in gitleaks and detect-secrets; any long word in which
letters and digits take turns), or by its place in a URL.
Every pattern is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from typing import Any

HIDDEN = "[redacted]"

# -- names

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CLOSING = (
    "apikey accesskey secretkey privatekey authkey accountkey token secret password passwd pwd "
    "passphrase passcode credential auth authorization cookie signature sig pat webhook jwt sas"
)
# `key` is a secret only with one of these in front: `--input_key` names a column.
_BEFORE_KEY = (
    "api access secret private auth account master signing encryption ssh deploy service storage "
    "subscription wandb openai anthropic azure aws gcp google hf hub huggingface swanlab comet "
    "mistral cohere groq together deepseek dashscope gemini judge client license hmac"
)
# With one of these in front `tokens` are not a number, and `pass` is a password.
_BEFORE_PLURAL = "access api auth bearer git github hf hub refresh secret"
_LOGINS = "admin db database mail mysql pg postgres redis root smtp ssh user"
# A tokenizer's tokens, and numbers of tokens.
_KINDS = (
    "additional audio begin boi bos boundary box chat cls continuous decoder end eoc eoi eos extra "
    "first forced image last mask max min new next num number object pad per placeholder prefix "
    "ref sep special split start stop suffix think tool total unk video vision"
)
_SECRET_WORDS = frozenset(_CLOSING.split())
_KEY_OWNERS = frozenset(_BEFORE_KEY.split())
_TOKENS_OWNERS = frozenset(_BEFORE_PLURAL.split())
_PASS_OWNERS = frozenset(_LOGINS.split())
_NO_SECRET_TOKENS = frozenset(_KINDS.split())
_JOINED = ("password", "passwd", "secret", "apikey", "authtoken")
_FOLDERS = ("PWD", "OLDPWD")


@lru_cache(4096)  # a log repeats its names
def is_secret_name(name: str) -> bool:
    """Return whether an option, variable, header or member of this name usually holds a secret."""
    words = [word.lower() for word in _WORD.findall(name[-80:].rstrip("0123456789_"))]
    if not words or name in _FOLDERS:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    special = {
        "wandb": before == "use",  # OpenRLHF's option takes the key itself
        "url": before == "webhook",
        "key": before in _KEY_OWNERS,
        "keys": before in _KEY_OWNERS,
        "token": before not in _NO_SECRET_TOKENS,
        "tokens": before in _TOKENS_OWNERS,
        "pass": before in _PASS_OWNERS or (not before and name.startswith("-")),
    }
    if last in special:
        return special[last]
    return last.endswith(_JOINED) or last.removesuffix("s") in _SECRET_WORDS


# -- values

_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?=[A-Za-z0-9_\-=+/.,~|%:]{12}|FlyV1 )(?:"  # most words end sooner
    r"(?:hf_|api_org_|gh[pousr]_|shp[a-z]{2}_|xai-|pplx-)[A-Za-z0-9]{16,}|"
    r"(?:sk|rk|pk|whsec)_(?:live|test|prod)_[A-Za-z0-9]{10,}|npm_[A-Za-z0-9]{20,}|"
    r"(?:sk-|github_pat_|gl[a-z]{2,5}-|ya29\.|GOCSPX-|nvapi-|pypi-|dckr_[po]at_|sq0[a-z]{3}-|"
    r"hv[sbr]\.|ATATT|pscale_[a-z]{2,6}_|fo1_|glsa_|tgp_v1_|figd_|wandb_v1_|"
    r"SG\.[A-Za-z0-9_\-.=]{16}|AIza[A-Za-z0-9_\-]{14}|"
    r"[A-Za-z0-9]{14}\.atlasv1\.)[A-Za-z0-9_\-=.]{16,}|"
    r"(?:GR1348941|AQVN|ABSK|LTAI|sha256~|fio-u-|tk-us-|EAAA|FLWSECK_TEST-|HRKU-|NR[A-Z]{2}-|"
    r"duffel_[a-z]{4}_|fm[12][a-z]?_|sm_[a-z]at_|ops_eyJ|whsec_|sntry[su]_|glc_|AGE-SECRET-KEY-1|"
    r"FlyV1 )[A-Za-z0-9_\-=+/.,]{12,}|"
    r"(?:AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AROA)[A-Z0-9]{12,}|xox[a-z]-[A-Za-z0-9\-]{8,}|"
    r"xapp-[A-Za-z0-9\-]{10,}|ms-[0-9a-f]{8}-[0-9a-f\-]{20,}|access-[a-z]{7,12}-[0-9a-f\-]{30,}|"
    r"eyJ[A-Za-z0-9_\-]{16,}(?:\.[A-Za-z0-9_\-]*)*|ZX[lh][A-Z][A-Za-z0-9_\-=+/]{30,}|"
    r"A3-[A-Z0-9]{6}-[A-Z0-9\-]{20,}|[sp]at\.[A-Za-z0-9_\-]{20,}\.[A-Za-z0-9.]{16,}|"
    r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.\-]{30,}|[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk|"
    r"(?:sc|ext|scauth|authress)_[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_\-][A-Za-z0-9+/=_.\-]{16,}|"
    r"\d{8,10}:AA[A-Za-z0-9_\-]{30,}|\d{15,16}[|%][A-Za-z0-9_\-]{27,})(?![A-Za-z0-9])"
)
# Long words: a path, a commit in a URL and a C++ symbol are passed over.
_LONG_WORD = re.compile(
    r"[/@][A-Za-z0-9._/@+\-]*|(?<![A-Za-z0-9_])_Z\w*|"
    r"(?P<word>(?<![A-Za-z0-9])[A-Za-z0-9]{20,})[A-Za-z0-9_\-.=+~]*"
)
_DIGITS = re.compile(r"[0-9]+")
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]*(?:-----END [A-Z ]{0,30}KEY-----)?"
)
_WEBHOOK = re.compile(
    r"(hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks|"
    r"[a-z0-9\-]{1,60}\.webhook\.office\.com|oapi\.dingtalk\.com/robot|"
    r"open\.feishu\.cn/open-apis/bot|qyapi\.weixin\.qq\.com/cgi-bin/webhook)[^\s\"'<>]*"
)
_BEARER = re.compile(
    r"(?i:\b(Bearer|Basic))\s+(?=[a-z._~+/\-]{0,40}[A-Z0-9=])[A-Za-z0-9._~+/=\-]{8,}"
)
_USER_INFO = re.compile(r"(?<=://)([^/\s:@\"'<>]{0,256})(:?)([^/\s\"'<>]{0,512})@(?=[^@\s\"'<>]*)")
# A user that a server knows everybody by: no secret without a password.
_PUBLIC_USERS = frozenset(("git", "root", "hadoop", "hdfs", "anonymous", "ubuntu", "user", ""))
_QUOTE = r"""\\{0,4}["']"""
# `token=...`, `"api_key": "..."` and `{'token': '...'}` with any quoting, `HF_TOKEN: ...`.
_NAME = re.compile(
    rf"""(?<![A-Za-z0-9_.\-])([A-Za-z0-9_.\-]{{0,119}}[A-Za-z_.\-]\d{{0,3}})(?:{_QUOTE})?"""
    rf"""\s{{0,8}}(?:=>|[:=])\s{{0,8}}"""
)
# What follows it; `Authorization: token VALUE` has a word in front.
_VALUE = re.compile(
    rf"""((?:[A-Za-z]{{1,20}}\s{{1,8}}(?=\S))?)({_QUOTE})?((?(2)[^"'\\]*|[^"'\\&\s,;}}\])]+))"""
)
# `--hf_token VALUE` inside one argument, as in `bash -c "train --hf_token X"`.
_OPTION = re.compile(
    rf"""(?<![A-Za-z0-9_\-])(?P<name>--?[A-Za-z][A-Za-z0-9_.\-]{{0,80}})"""
    rf"""(?P<between>\s{{1,8}}(?:{_QUOTE})?|{_QUOTE}\s{{0,8}},\s{{0,8}}{_QUOTE})"""
    rf"""(?P<value>[^"'\s\\]+)"""
)
_PASSWORD = re.compile(
    r"(?i)\b(with (?:the )?(?:password|passphrase|token|secret)\s+[\"']?)[^\s\"',;]+"
)
# Names that end like a secret and are none: `total_tokens` is a number.
_COUNT = re.compile(r"tokens$", re.IGNORECASE)
_RANDOM_LENGTH = 16
# In a word of 20 letters and digits 3 numbers, in one of 40 a single one: there is one in
# `Qwen2VLForConditionalGeneration`.
_RANDOM_NUMBERS = 5


def redact_text(text: str) -> str:
    """`text` without what has the shape of a key, and without what is named as one: in a URL, an
    assignment, JSON, a header, an option or quotes around them."""
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    lower = text.lower()  # of a long log each search costs a second, and these words are rare
    if "hook" in lower or "bot" in lower:
        text = _WEBHOOK.sub(rf"\1/{HIDDEN}", text)
    text = _LONG_WORD.sub(_hide_random, _USER_INFO.sub(_hide_user, _SHAPES.sub(HIDDEN, text)))
    if "bearer" in lower or "basic" in lower:
        text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    if "with " in lower:
        text = _PASSWORD.sub(rf"\1{HIDDEN}", text)
    return _OPTION.sub(_hide_option, _hide_named(text))


def _hide_random(match: re.Match[str]) -> str:
    """Letters and digits that take turns so often are not a word that somebody chose."""
    word = match["word"] or ""
    numbers = len(_DIGITS.findall(word))
    is_random = numbers and numbers + len(word) // 10 >= _RANDOM_NUMBERS
    return HIDDEN if is_random and not word.isdigit() else match[0]


def _hide_user(match: re.Match[str]) -> str:
    user, colon, password = match.groups()
    if colon and password:
        return f"{user}:{HIDDEN}@"
    return match[0] if user in _PUBLIC_USERS or "@" in password else f"{HIDDEN}@"


def _hide_named(text: str) -> str:
    """A value is passed over only if its name is a secret's: `https://a?token=b` has two names."""
    parts: list[str] = []
    end = 0
    while name := _NAME.search(text, end):
        parts.append(text[end : name.end()])
        end = name.end()
        value = _VALUE.match(text, end) if is_secret_name(name[1]) else None
        if value and not _is_plain(value[3]):
            parts.append(f"{value[1]}{value[2] or ''}{HIDDEN}")
            end = value.end()
    return "".join((*parts, text[end:]))


def _is_plain(value: str) -> bool:
    """Return whether a value can be no secret: a switch, nothing, or hidden already."""
    return value.lower() in ("", "true", "false", "none", "null") or value.startswith(HIDDEN[:-1])


def _hide_option(match: re.Match[str]) -> str:
    name, between, value = match.group("name", "between", "value")
    hide = is_secret_name(name) and (not value.startswith("-") or _looks_random(value))
    return f"{name}{between}{HIDDEN}" if hide and not _is_plain(value) else match[0]


def _looks_random(value: str) -> bool:
    """Whether a value that begins as an option does is none: long, with letters and digits."""
    bare = value.lstrip("-")
    numbers = len(_DIGITS.findall(bare))
    return len(bare) >= _RANDOM_LENGTH and numbers > (3 if bare.islower() else 0)


def redact_command(arguments: Sequence[str]) -> list[str]:
    """A command line with `--api_key VALUE`, `--api-key=VALUE` and `API_KEY=VALUE` hidden."""
    result: list[str] = []
    hide_next = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if hide_next and (not argument.startswith("--") or _looks_random(argument)):
            result.append(argument if _is_plain(argument) else HIDDEN)
        elif equals and " " not in name and is_secret_name(name) and not _is_plain(value):
            result.append(f"{name}={HIDDEN}")
        else:
            result.append(redact_text(argument))
        is_option = argument.startswith("-") and " " not in argument
        hide_next = not equals and is_option and is_secret_name(argument)
    return result


def redact_mapping(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with secret values hidden, nested mappings included."""
    return {str(key): redacted(value, str(key)) for key, value in values.items()}


def redacted(value: Any, name: str = "") -> Any:
    """Return a value of JSON or of a configuration, under its name, with secrets hidden."""
    if isinstance(value, Mapping):
        return redact_mapping(value)
    if isinstance(value, bool) or (isinstance(value, (int, float)) and _COUNT.search(name)):
        return value  # `use_auth`, `total_tokens`
    if value is not None and value != "" and is_secret_name(name):
        return HIDDEN
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, (list, tuple)):
        texts = all(isinstance(item, str) for item in value)  # it may be a command
        return redact_command(value) if texts else [redacted(item) for item in value]
    return value
