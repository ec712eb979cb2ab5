"""Wait-for graphs whose boxes and arrows are recorded to the pixel: each way to place them."""

from __future__ import annotations

from grpo_doctor_reports.hang.graph import Box, Graph, Link

_NAME, _FRAME = "ranks 0-16, 18-63 on gpus 1", "all_reduce (distributed_c10d.py:3252)"
_LONG = "all_gather of fsdp in the weight synchronisation"


def graph(
    boxes: str, links: str = "", *, ring: int = 0, label: str = "", detail: str = ""
) -> Graph:
    """Boxes as name.depth, `!` the guilty and `*` those with the detail; links as from>to."""
    around = [Box(f"r{at}", f"r{at}", "", True, True, 0, in_cycle=True) for at in range(ring)]
    pairs = [link.partition(">") for link in links.split()]
    return Graph(
        (*around, *(_box(each, detail) for each in boxes.split())),
        tuple(Link(source, target, label) for source, _, target in pairs),
        tuple(box.key for box in around),
    )


def _box(text: str, detail: str) -> Box:
    name, _, depth = text.partition(".")
    shown = detail if "*" in depth else ""
    return Box(name, name, shown, True, "!" in depth, int(depth.rstrip("!*")))


def _cycle(size: int, label: str = "recv") -> Graph:
    return graph("", " ".join(f"r{at}>r{(at + 1) % size}" for at in range(size) if size > 1),
                 ring=size, label=label)  # fmt: skip


GRAPHS: dict[str, Graph] = {
    "a box alone": graph("a.0"),
    "rows, the deepest first": graph("a.0 b.1 c.1", "b>a c>a", label="recv of fsdp"),
    "below the highest box": graph("a.0 b.1 c.1*", detail="a stack frame that takes two lines"),
    "near to what they wait for": graph("a.0 b.0 c.0 d.1 e.1 f.1", "d>c e>b f>a"),
    "at the mean of what it waits for": graph("a.0 b.0 c.0 d.1 e.1", "d>a d>c e>a"),
    "the guilty, then the alphabet": graph("c.0 b.0 d.0!"),
    **{f"a cycle of {size}": _cycle(size) for size in range(1, 9)},
    "who waits for a cycle": graph("x.1 y.1", "x>r1 y>r0 r0>r1 r1>r0", ring=2),
    "a cycle below a wider row": graph("s.1 t.1 u.1 v.1", ring=1),
    "there and back": graph("a.1 b.0", "a>b b>a", label="recv"),
    "around a row": graph("a.2 b.1 c.0", "a>c a>b b>c", label="recv"),
    "around on both sides": graph("a.2 e.2 b.1* d.1 c.0 f.0", "a>c e>f c>a f>e a>d", label=_LONG,
                                  detail="a stack frame that takes two lines"),
    "around on the left": graph("a.2 b.1 d.1 e.1 c.0", "a>b a>d a>e a>c c>a", label="recv"),
    "five around the same": graph("a.2 b.1 c.0", "a>c " * 5),
    "around rows of many heights": graph("a.3 b.2* e.2 c.1 d.0", "a>d d>a", detail="word " * 20),
    "within a row": graph("a.0 b.0* c.0", "a>b b>a a>c c>a", label="recv", detail="a frame"),
    "around from the middle": graph("a.2 b.1 d.1 c.0", "a>c"),
    "near to what is near": graph("a.0 b.0 c.1 d.1 e.2 f.2 g.2", "c>b d>a e>c f>d g>c g>d"),
    "back in a row of four": graph("", "r1>r0", ring=4),
    "long words": graph("a.1 b.0 c.0", "a>b b>c", label="word " * 40),
    "two lines of words": graph("a.1 b.0", "a>b", label=_LONG),
    "words in a box": Graph((Box("a", _NAME, _FRAME, True, False, 0),), (), ()),
}  # fmt: skip
