"""Where an exception ends that a call throws: not in the job.

The signal return can be unwound, so an exception would go on to what the thread was in, and be
caught there: a failed call would become an error of the job's own. So the call returns by an
address without unwinding information. C++ ends a thread whose exception gets there (`abort`), and
that is taken back.

Such an address is the end of `_fini`, which every library has from the C compiler's own files.
Where there is none, as with processors that sign return addresses, all is as without.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from grpo_doctor_probes.flight.machine import Machine
from grpo_doctor_probes.memory.access import Memory
from grpo_doctor_probes.memory.elf import ElfError, library
from grpo_doctor_probes.memory.maps import Mapping

_FINI_BYTES = 32


def find_bare_return(machine: Machine, maps: Sequence[Mapping], memory: Memory) -> int:
    """The address of a `bare_return`, 0 where none is found."""
    for mapping in maps:
        if mapping.offset or not mapping.path.startswith("/"):
            continue
        try:
            last = library(memory.read, mapping.start).last
            at = memory.read(last, _FINI_BYTES).find(machine.bare_return) if last else -1
        except (ElfError, OSError, struct.error):  # a file that is no library
            continue
        if at >= 0:
            return last + at
    return 0
