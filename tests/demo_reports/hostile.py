"""A document whose every string, keys included, tries to get out of its place."""

from __future__ import annotations

from typing import Any, Final

ATTACKS: Final = (
    "</script><img src=x onerror=window.executed=1>",
    "</SCRIPT ><svg onload=window.executed=2>",
    '" onmouseover="window.executed=3" x="',
    "%{x}<b>bold</b>%{customdata}",
    "{{7*7}}{% raw %}",
    "line\u2028separator\u2029paragraph",
    "\u202egnp.exe\u2066isolate\u200bzero",
    "\x1b[31mred\x1b]0;title\x07\x9b31m",
    "[red]markup[/red][link=https://evil.example]here[/link]",
    "\ud800lone surrogate\x00nul",
    "javascript:window.executed=4 --><!--",
)


def hostile_copy(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with an attack in every string and every free key, in turn."""
    count = 0

    def attack() -> str:
        nonlocal count
        count += 1
        return f"{ATTACKS[count % len(ATTACKS)]}{count}"

    def spoil(value: Any) -> Any:
        if isinstance(value, str):
            return attack()
        if isinstance(value, list):
            return [spoil(item) for item in value]
        if isinstance(value, dict):
            return {key: _spoil_member(key, member) for key, member in value.items()}
        return value

    def _spoil_member(key: str, member: Any) -> Any:
        if key in _FREE_KEYS and isinstance(member, dict):
            return {attack(): spoil(value) for value in member.values()}
        return spoil(member)

    spoiled: dict[str, Any] = spoil(document)
    return spoiled


_FREE_KEYS: Final = frozenset({"knobs", "versions", "phases", "phase_seconds", "series"})
