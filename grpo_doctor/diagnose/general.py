"""What an error shows that no signature knows: who raised it, about which settings or packages."""

from __future__ import annotations

import re
import sys
from functools import cache

from grpo_doctor.diagnose.errors import FRAME, FRAMEWORKS, PACKAGES, Error, Frame, as_frame
from grpo_doctor.diagnose.model import Certainty, Finding, line_at
from grpo_doctor.knobs.option_lists import FOLDER

_REFUSING = re.compile(r"(?:Value|Assertion|Runtime|NotImplemented|Validation|Config\w*)Error$")
_DEMAND = re.compile(
    r"(?i)\b(?:must|should|cannot|can't|can not|needs? to|requires?|required|not supported|"
    r"unsupported|supports? only|only supports?|does ?n[o']t support|divisible|multiple of|"
    r"not equal to|only supported|is expected|expected \d|greater than|less than|larger|smaller|"
    r"exceeds?|at least|at most|incompatible|not compatible|not allowed|not implemented|"
    r"mutually exclusive|not enough|meet the required|"
    r"please (?:set|specify|use|provide|enable))\b|^assert "
)
# A shape, a type or a state is what the program met, not what the user set.
_RUNTIME = re.compile(
    r"(?i)\bshapes?\b|size of tensor|\bdtype|scalar type|same device|\bdim(?:ension)?\b|NCCL|"
    r"torch\.Size|CUDA error|connection|timed out|HTTP|No such file|target batch_size"
)
_CHECK = re.compile(r"(?i)config|argument|\bargs\b|valid|__post_init__|check|parse|assert")
_MISFIT = re.compile(
    r"(?P<what>[a-zA-Z\d_.]{1,99}\(\)) (?:got an unexpected keyword argument '(?P<arg>\w+)|missing"
    r" \d+ required |takes [\w ]{1,30}positional arguments? but \d+ w\w+ given)|(?P<what2>(?:type"
    r" object )?'(?!(?:NoneType|str|list|dict|int|tuple|float|set|bool|bytes|function|"
    r"coroutine|Tensor|ndarray)')[\w.]{1,99}'(?: object)?)"
    r" has no attribute '(?P<arg2>\w+)|[Uu]nexpected keyword argument '(?P<arg3>\w+)"
)
_IMPORT = re.compile(
    r"cannot import name '(?P<name>\w+)'(?: from '(?P<of>[\w.]+))?|"
    r"No module named '(?P<of2>\w+\.[\w.]+)'|"
    r"(?<!partially initialized )module '(?P<of3>[\w.]+)' has no attribute '(?P<name3>\w+)'"
)
# A function that scores, but no method of a trainer.
_REWARD = re.compile(
    r"^(?:__main__|\w*[Rr]eward\w*)?\.?(?=[a-z_])\w*(?:reward|score|__call__)\w*\("
)
_PATCHES = ("unsloth", "liger", "swift")  # put attributes into the classes of other packages
_SINCE = {"GRPOConfig": "trl 0.14", "GRPOTrainer": "trl 0.14"}
_SIZES = re.compile("|".join((
    r"size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\)",
    r"shapes cannot be multiplied \((?P<a2>\w+) and (?P<b2>\w+)\)",
    r"same reduction dim, but got (?P<a3>\[[^\]]+\]) X (?P<b3>\[[^\]]+\])",
    r"expanded size of the tensor \((?P<a4>\d+)\) must match the [^(]+\((?P<b4>\d+)",
    r"Expected size (?P<a5>\d+) but got size (?P<b5>\d+)",
    r"shape '(?P<b6>\[[^\]]+\])' is invalid for input of size (?P<a6>\d+)",
    r"Batch size \((?P<b9>\d+)\) does not match number of examples - but got (?P<a9>\d+)",
    r"split_sizes to sum exactly to (?P<a8>\d+) [^\n]{0,60}split_sizes=\[(?P<b8>\d+)\]",
    r"of shape (?P<a7>\[[^\]]+\]) cannot be broadcast to [^\[\n]{3,60}(?P<b7>\[[^\]]+\])",
)))  # fmt: skip
_UNKNOWN = re.compile(
    r"^[\w ]{0,30}?['\"]?([\w./-]+)['\"]? is not (?:implemented|registered|defined) in\b|"
    r"\b(?:[Uu]nknown|[Uu]nsupported|[Uu]nrecognized) (?!operand)[\w ]{2,30}[:=]? "
    r"['\"]?([\w./-]+)['\"]?"
)
_OF_MODEL = r"(?:model|checkpoint|weight|adapter|tokenizer|state_dict)s?"
_LOADED = re.compile(
    rf"(?i)\b{_OF_MODEL}\b[^\n]{{0,60}}\b(?:not (?:correctly |properly )?(?:loaded|found)|missing|"
    rf"failed to load|could not be loaded)|failed to load [^\n]{{0,30}}{_OF_MODEL}"
)
_ROW = re.compile(r"(?:dataset|example|features?|row|sample|item)s?(?:\[\w+\])?\[")
_MEMORY = re.compile(
    r"(?i)(?:out of|not enough) (?:host |device |gpu )?memory|OutOfMemory|MemoryError|OOMKilled|"
    r"oom[-_]kill|(?:Cannot|can't|Failed to|Unable to) allocate[^\n]{0,40}"
    r"(?:memory|bytes|\d[GM]i?B)"
)
_HOST = re.compile(
    r"MemoryError|DefaultCPUAllocator|host memory|Cannot allocate|Errno 12|OOMKilled|oom[-_]kill"
)
# What ends a process from outside, so that the place where it is raised says little: in the
# error's type, and as a word of its message.
_OUTSIDE = re.compile(
    r"(?i)Timeout|Connect|Network|HTTP|Socket|Broken|Exit|Interrupt|Dist\w*Error|CUDA|NCCL|Dead|Died|"
    r"Memory|Actor|Worker|Signal"
)
_OUTSIDE_SAYS = re.compile(
    r"(?i)\b(?:time[d-]? ?out|connect\w*|network|https?|socket|broken|exit\w*|interrupt\w*|CUDA|"
    r"NCCL|dead|died|memory|servers?|killed|terminated|got signal)\b"
)
_TYPES = r"(?:str|bytes|int|float|bool|list|dict|tuple|set|Tensor|string|real number)"
_OTHER_KIND = re.compile(
    rf"unsupported operand type|indices must be integers|unhashable type|can only concatenate|"
    rf"object of type '(?!NoneType)\w+' has no len|"
    rf"(?:must|should) be (?:an? |one of )?(?:\w+, )*{_TYPES}\b|"
    rf"expected (?:an? )?{_TYPES}\b[^\n]{{0,60}}(?:, not|found|got)|"
    rf"'{_TYPES}' object is not"
)
_SETTING = re.compile(  # a name that a message calls a setting
    r"\b(?:when|if|unless|set|use|enable|disable) [`'\"]?(?:--)?([a-z]\w*_\w+)|"
    r"[`'\"]?([a-z]\w*_\w+)[`'\"]? (?:is|to be) (?:set|enabled|disabled|True|False)\b"
)
_WORD = re.compile(r"[a-z]\w*_\w+\b(?!\.\w)")
_VERSIONS = (
    "install the versions that the framework names together (its setup.py or lock file), on all "
    "hosts"
)
_Found = tuple[str, str, Certainty, str, str]


def general_finding(text: str, errors: list[Error]) -> Finding | None:
    """Return what the first error shows that a rule can read; for texts without a signature."""
    if not errors and (named := _MISFIT.search(text) or _IMPORT.search(text)):
        says = line_at(text, named.start())[1]
        if not re.search("[eE]rror|[eE]xception", says):  # a message whose type was not pasted
            frames = tuple(map(as_frame, FRAME.finditer(text)))
            errors = [Error("", says, named.start(), frames, "", "")]
    rules = (_memory, _import, _misfit, _sizes, _kind, _missing, _value, _refused, _other_kind)
    # The first error is the cause of the others, whatever they name.
    tried = ((error, rule(error, text)) for error in errors for rule in (*rules, _raised))
    error, found = next((pair for pair in tried if pair[1]), (None, None))
    if error is None or found is None:
        return None
    name, cls, certainty, says, fix = found
    return Finding(name, cls, certainty, says, *line_at(text, error.start), [fix])


def _memory(error: Error, _: str) -> _Found | None:
    if not _MEMORY.search(error.words):
        return None
    who = "The host" if _HOST.search(error.words) else "A GPU"
    fix = "lower the micro-batch, the length of a sequence or the rollout engine's share of the GPU"
    if who == "The host":
        fix = "give the job more memory, or hold less: offloads, loader workers, checkpoints"
    return "out-of-memory", "oom", "likely", f"{who} ran out of memory: {error.words}", fix


def _import(error: Error, text: str) -> _Found | None:
    if (found := _IMPORT.search(error.says)) is None:
        return None
    of = found["of"] or found["of2"] or found["of3"] or ""
    root, _, inside = of.partition(".")
    name = found["name"] or ".".join(filter(None, (inside, found["name3"]))) or of
    if root in sys.stdlib_module_names:
        says = f"This Python's {of} has no {name}: the code is for another version of Python, or a "
        says += f"file called {root}.py hides it."
        fix = f"update {error.package or 'the package'}, or run it with the Python that it names"
        return "python-version", "config", "likely", says, fix
    by = f", which {error.package} expects" if error.package in PACKAGES else ""
    what = _with_version(root, text) if of else "package"
    says = f"The installed {what} has no {name}{by}: its version is too old or too new."
    fix = f"install {_SINCE[name]} or newer" if name in _SINCE else _VERSIONS
    if of and error.package == root:
        says = f"{what} does not find {name} in its own code: its files are of two versions, "
        says += "or a notebook still holds the older one."
        fix = f"uninstall {error.package} until none is left, install it once, restart the notebook"
    elif found["of3"] and not inside:
        says += f" Or a folder called {root} hides it."
    return "package-version", "config", "likely", says, fix


def _misfit(error: Error, text: str) -> _Found | None:
    # What the clean-up of a process that did not start lacks is no cause.
    found = None if "failed to start" in text else _MISFIT.search(error.says)
    if found is None or ("missing" in found[0] and "reward" in found[0].lower()):
        return None
    arg = found["arg"] or found["arg2"] or found["arg3"]
    what = found["what"] or found["what2"] or "The function"
    does = f"does not know {arg}" if arg else "is called with other arguments than it takes"
    if _REWARD.search(what) or arg in ("prompts", "completions", "completion_ids"):
        says = f"{what} {does}: it lacks an argument that its caller gives to reward functions, or "
        says += "it is made for another trainer, version or kind of reward."
        fix = "add **kwargs to it; compare its arguments with a reward of this version's examples"
        return "reward-arguments", "config", "likely", says, fix
    inner = error.package if error.package in PACKAGES else ""
    patches = next((each for each in _PATCHES if arg and arg.startswith(f"{each}_")), "")
    packages = [f.package for f in error.frames if f.package in PACKAGES]
    near = [*dict.fromkeys(reversed(packages))][: 1 if "object" in what else 2]
    if inner and found["what"] and "." not in what and what[0].islower():
        near = [inner, f"the code that defines {what}"]
    if prefix := re.match(rf"(?i)'?_?({'|'.join(_PATCHES)})", what):
        own = prefix[1].lower()
        near = [own, next((each for each in near if each != own), "the package that calls it")]
    who = " and ".join(near) if near[1:] else "two packages, or script and package,"
    does = f"has no {arg}" if found["arg2"] else does
    says = f"{what} {does}: {who} are of versions that do not fit together."
    if "object" in what:
        says += " Or that code expects another class or mode of it, or this version has a bug."
    fix = _VERSIONS
    if patches:
        says = f"{what} has no {arg}, which {patches} adds: it was imported before {patches}, or "
        says, fix = f"{says}their versions do not fit.", f"import {patches} first; {_VERSIONS}"
    elif found["arg2"] and f"self.{arg}" in error.code:
        of = f" of {inner}" if inner else ""
        says = f"{what} uses {arg} and nothing has set it: a bug of this version{of}, or its "
        says += "parent class is of another version."
        fix = f"update {inner or 'the package that defines it'}; {_VERSIONS}"
    return "versions-do-not-fit", "config", "possible", says, fix


def _sizes(error: Error, _: str) -> _Found | None:
    if (found := _SIZES.search(error.tail)) is None:
        return None
    who = error.inner.package if error.inner else ""
    of = f"{who} builds both: " if who in FRAMEWORKS else ""
    a, b = (each for each in found.groups() if each is not None)
    says = f"Two tensors differ in size, {a} and {b}{_relation(a, b)}; {of}a bug of this version, "
    says += "or settings that it does not support together."
    fix = (
        f"update {who or 'the framework'}, and turn off what was turned on last; where they count "
        "tokens, look for prompts that were cut, with or without their images' tokens"
    )
    return "sizes-differ", "crash", "possible", says, fix


def _relation(a: str, b: str) -> str:
    of_each = zip(re.findall(r"\d+", a), re.findall(r"\d+", b), strict=False)
    if len(differ := [pair for pair in of_each if pair[0] != pair[1]]) == 1 and "," in a:
        a, b = differ[0]
    if not (a.isdecimal() and b.isdecimal() and len(a + b) < 40):
        return ""
    small, large = sorted((int(a), int(b)))
    if small < 2 or large % small or large == small:
        return ""
    return f" ({large // small} times, as those of all ranks or micro-batches to those of one)"


def _value(error: Error, text: str) -> _Found | None:
    """A value that the program does not know, or that its own message allows."""
    allowed = re.search(r"must be .*?got '([^']+)'", error.says)
    if allowed and error.says.count(f"'{allowed[1]}'") > 1:
        says = f"The message allows the value that it refuses ({allowed[1]}): a bug of this version"
        fix = f"install another version of {error.package or 'the framework'}"
        return "message-contradicts-itself", "crash", "likely", f"{says}: {error.says}", fix
    who = error.package if error.package in FRAMEWORKS else "The program"
    if (found := _UNKNOWN.search(error.says)) and error.name.endswith("Error"):
        says = f"{who} does not know {found[1] or found[2]}: {error.says[:300]}"
        fix = "check its name, that the file which registers it is loaded, and the version"
        return "value-unknown", "config", "possible", says, fix
    key = error.says.strip("'\"")
    if error.name == "KeyError" and _ROW.search(error.code):
        says = f"The data has no field {key}."
        fix = "name the data's columns in the options, convert the data, or check its path"
        return "data-lacks-a-field", "config", "likely", says, fix
    at = text.find(f" {key}", 0, error.start) if len(key) > 2 and error.name == "KeyError" else -1
    if at >= 0 and " --" in text[text.rfind("\n", 0, at) + 1 : at]:
        says = f"The program has no entry {key}, which the command gives."
        fix = "check its name, and the version or configuration file that has it"
        return "value-unknown", "config", "likely", says, fix
    found = re.search(r"(\b[\w.]+)\[(?:self\.)?(?:args\.)?([a-z]\w+)\]", error.code)
    if error.name != "KeyError" or found is None or who == "The program":
        return None
    says = f"{who} knows no {found[2]} {error.says}: {found[1]} does not have it."
    fix = f"check the value of {found[2]}, the command, and the version that has it"
    return "value-unknown", "config", "possible", says, fix


def _missing(error: Error, _: str) -> _Found | None:
    """What a program loads or hands on, and did not find."""
    if _LOADED.search(error.says):
        says = f"A model or checkpoint could not be loaded as it is given: {error.says[:300]}"
        fix = (
            "check its path and that the files are complete; they must be of the kind asked for: "
            "merged or adapter, with the head that is needed, of this model and version"
        )
        return "load-failed", "config", "possible", says, fix
    said = f"{error.says}\n{error.code}" if error.name == "KeyError" else error.says
    if found := re.search(r"(?:key \"|\bbatch\[[\"'])(\w+)[\"'](?: not found|\])", said):
        says = (
            f"The batch has no {found[1]}: the part that makes it (data, rollout, reward) did not, "
            "as it is switched off, or of another version or branch."
        )
        fix = f"search the code for who sets {found[1]}, and which setting or version that needs"
        return "batch-lacks-a-key", "config", "possible", says, fix
    return None


def _kind(error: Error, _: str) -> _Found | None:
    """What an error's type or words mean in any code."""
    who = error.inner.package if error.inner else ""
    where = f"{who or 'the program'}{f', at {error.inner.place}' if error.inner else ''}"
    if error.name == "NotImplementedError" and error.inner and not error.says:
        says = f"{who} does not implement {error.inner.function} for this engine or version."
        fix = "turn off the setting that calls it, or install another version or engine"
        return "not-implemented", "config", "possible", says, fix
    if error.name in ("UnboundLocalError", "NameError"):
        says = f"The code uses a name that this path does not set, a bug of {where}: {error.says}"
        return "name-not-set", "crash", "likely", says, f"update {who or 'it'}, or correct the line"
    if error.name in ("SyntaxError", "IndentationError", "TabError") and error.package in PACKAGES:
        says = f"The installed {error.package} has an error in its own code: a broken release, or "
        says += f"files that were changed or not installed whole ({error.words})."
        fix = f"install {error.package} again, or another version of it"
        return "package-version", "config", "likely", says, fix
    found = re.search(r"(\w+)\[[^\[\]]+\]", error.code)
    if found and "index out of range" in error.says:
        says = f"{found[1]} has fewer entries than {where} asks for ({error.code}): settings, data "
        says += "or an answer gave fewer than that code expects."
        fix = f"print {found[1]} there, and look at what fills it"
        return "list-too-short", "crash", "possible", says, fix
    return None


def _refused(error: Error, _: str) -> _Found | None:
    """A program's own check of its settings; not what it met while it ran."""
    words, inner = error.says, error.frames[-1] if error.frames else None
    place, package = (inner.place, inner.package) if inner else ("", "")
    if not (_REFUSING.search(error.name) and _DEMAND.search(words)) or _RUNTIME.search(words):
        return None
    if package not in ("", *FRAMEWORKS):
        return None
    options, checks = _named(words), _CHECK.search(place)
    compares = len(re.findall(r"\d+", words)) > 1 and not error.name.endswith("RuntimeError")
    alone = inner is None and error.name.endswith(("ValueError", "NotImplementedError"))
    if not (options or checks or compares or (alone and not _OTHER_KIND.search(words))):
        return None
    bare = words.startswith("assert ")
    sure: Certainty = "likely" if package and options and not bare else "possible"
    what = "its settings" if sure == "likely" else "its settings or its data"
    says = f"{package or 'The program'} refused {what}: "
    fix = f"change {' or '.join(options[:4])}" if options else "change what the message names"
    if bare:
        says = f"A check of {package or 'the program'} failed, about its settings or the model's: "
        fix += f"; or install a version of {package or 'it'} that knows this model"
    return "settings-refused", "config", sure, f"{says}{words[:400]}", fix


def _other_kind(error: Error, _: str) -> _Found | None:
    """A value of a type that the code does not take; of the user's own code `_raised` says more."""
    inner = error.inner
    own = inner is not None and not inner.package
    if own or error.name not in ("TypeError", "ValueError") or not _OTHER_KIND.search(error.says):
        return None
    where = f"{inner.package}, at {inner.place}," if inner else "the program"
    says = f"A value is of another kind than {where} expects: {error.says[:200]}. Its origin "
    says += "is the data, a setting, a reward, or a package of another version."
    fix = "print that value; compare its form with what this version's documentation asks for"
    return "kinds-differ", "crash", "possible", says, fix


def _raised(error: Error, text: str) -> _Found | None:
    """Who raised an error that names no setting: the user's own code, or a package."""
    inner = error.inner
    cleans_up = error.name == "AttributeError" and "failed to start" in text  # as in `_misfit`
    is_none = "NoneType" in error.says and inner and inner.package  # says a signature
    if not error.says or cleans_up or comes_from_outside(error) or is_none:
        return None
    if inner is None:
        what = error.says[:300].rstrip(".")
        says = f"A check failed: {what}. The text does not show whose; a bug of this version, and "
        says += "files, data or packages that do not fit, are possible."
        fix = "search the program's issues for this line; try another version of it"
        known = error.name.endswith("AssertionError")
        return ("check-failed", "crash", "possible", says, fix) if known else None
    callers = [each.package for each in error.frames[: error.frames.index(inner)]]
    if inner.package:
        return _package_failed(error, inner, callers, text)
    caller = next((each for each in reversed(callers) if each in FRAMEWORKS), "")
    by = f", which {caller} calls" if caller else ""
    at = f"at {inner.place}{by}: {error.words[:300]}"
    fix = "correct that line, or what it is given; call the function alone to test it"
    if error.package in ("torch", "ray"):
        return "own-code", "crash", "possible", f"{error.package} raised it in a call {at}", fix
    return "own-code", "crash", "likely", f"Code that is no package raised it, {at}", fix


def comes_from_outside(error: Error) -> bool:
    """Return whether another process or a limit ended it, so that its place says little."""
    return bool(_OUTSIDE.search(error.name) or _OUTSIDE_SAYS.search(error.says))


def _package_failed(error: Error, inner: Frame, callers: list[str], text: str) -> _Found:
    """A package raised it; `callers` are the packages of the frames above, the nearest last."""
    others = (each for each in reversed(callers) if each not in ("", "python", inner.package))
    caller = next(others, "")
    says = f"{_with_version(inner.package, text)} failed at {inner.place}: {error.words[:300]}. "
    says += "The text does not show why: a bug of this version, a package next to it, or what "
    says += "it was given."
    fix = f"search the issues of {inner.package} for these words; try another version of it"
    if caller:
        fix += f", or of {caller}, which calls it, and look at what that hands over"
    return "package-failed", "crash", "possible", says, fix


def _with_version(package: str, text: str) -> str:
    """Return a package with the version that the text states."""
    name = re.escape(package).replace("_", "[_-]")
    found = re.search(rf"(?im)^\W*{name}(?: version)?\s*(?:[:=]+|\s)\s*v?(\d+\.\d[\w.+]*)", text)
    return f"{package} {found[1]}" if found else package


@cache
def _options() -> frozenset[str]:
    """Return the last words of all options with an underscore; others are words of English."""
    lines = (line for path in FOLDER.glob("*.txt") for line in path.read_text().split("\n"))
    names = (line.split()[0].rsplit(".", 1)[-1] for line in lines if line[:1] not in ("", "#"))
    return frozenset(name.replace("-", "_") for name in names if "_" in name or "-" in name)


def _named(words: str) -> list[str]:
    """Return the options that a message names, in words of English too, or as a name's end."""
    ends = tuple("_" + each for each in _options())
    names = [word for word in dict.fromkeys(_WORD.findall(words)) if f"_{word}".endswith(ends)]
    plain = (each for each in _options() if each.count("_") > 1)
    names = names or [a or b for a, b in _SETTING.findall(words)]
    return names or sorted(each for each in plain if each.replace("_", " ") in words.lower())
