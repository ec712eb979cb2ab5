"""The span file's layout: what the recorder writes and what every reader expects.

One file per process, `ranks/00003.spans`, little-endian::

    header   HEADER_BYTES   fixed fields, the name table, one open-span stack per thread
    segment  SEGMENT_BYTES  SEGMENT_HEADER_BYTES + SEGMENT_RECORDS records of RECORD_BYTES
    segment  ...

The file grows by several segments at a time, which are allocated before they are mapped, so that
a full disk is an error code and never a SIGBUS; those not yet in use are zeros. Once `max_bytes`
is reached the oldest segment after the first is used again; a segment's `sequence` gives a reader
the order. A record is complete when its last byte, `kind`, is not zero: a process killed within a
write leaves a zero there.
"""

from __future__ import annotations

import struct

MAGIC = b"GRPODOC\x01"
VERSION = 1

HEADER_BYTES = 128 * 1024
# magic, version, header_bytes, segment_bytes, segment_records, pid, rank, monotonic_ns, unix_ns
FIXED = struct.Struct("<8sIIIIIiqq")
# Words that change while recording, as uint64 at STATE_OFFSET + 8 * index.
STATE_OFFSET = 128
STATE_DROPPED = 0  # records that were not kept: disk full, or overwritten by rotation
STATE_SEGMENTS = 1  # segments in the file
STATE_NAMES = 2  # names in the table
STATE_NAME_OVERFLOW = 3  # spans recorded without their own name: the table was full
STATE_CLOSED_NS = 4  # monotonic_ns of an orderly end, 0 until then
STATE_ERRORS = 5  # internal errors swallowed by the recorder
STATE_STEP = 6  # 1 + number of the step begun last, 0 before the first

THREADS_OFFSET = 4096
THREAD_SLOTS = 64
THREAD_DEPTH = 32
# native id, then the thread's name in the rest; then THREAD_DEPTH pairs (start_ns, mark)
THREAD_INFO = struct.Struct("<Q56s")
THREAD_BYTES = THREAD_INFO.size + THREAD_DEPTH * 16

NAMES_OFFSET = THREADS_OFFSET + THREAD_SLOTS * THREAD_BYTES
NAMES_BYTES = HEADER_BYTES - NAMES_OFFSET
NAME_LENGTH = struct.Struct("<H")
MAX_NAME_BYTES = 200

RECORD = struct.Struct("<qqdIHBB")  # start_ns, end_ns, value, name id, thread, depth, kind
RECORD_BYTES = RECORD.size
SEGMENT_HEADER_BYTES = 64
SEGMENT_HEADER = struct.Struct("<8sQ")  # SEGMENT_MAGIC, sequence
SEGMENT_MAGIC = b"GRPOSEG\x01"
SEGMENT_BYTES = 256 * 1024
SEGMENT_RECORDS = (SEGMENT_BYTES - SEGMENT_HEADER_BYTES) // RECORD_BYTES

# The last eight bytes of a record as one number, which is also the mark of an open span. The mark
# of an open collective has the low bits of its sequence number in place of thread and depth.
THREAD_SHIFT, DEPTH_SHIFT, KIND_SHIFT = 32, 48, 56
NAME_MASK, SEQUENCE_MASK = (1 << 32) - 1, (1 << 24) - 1

# Kinds of record. Zero means "not written".
SPAN = 1
STEP = 2  # value: the step's number
COUNTER = 3  # value: the sample; start_ns == end_ns
INSTANT = 4
COLLECTIVE = 5  # value: sequence number within its group
COLLECTIVE_WAIT = 6  # the blocking wait for an asynchronous collective of that sequence number
CUDA_SPAN = 7  # host times of a span; value: milliseconds between its two CUDA events
# Of a file of trajectories. In place of thread and depth is the trajectory's number, 0 for none.
TRAJECTORY = 8  # value: how it ended, -1 while it is open
PART = 9  # the same; its name is a state, or `tool/NAME`
FACT = 10  # value: the number of that name; start_ns == end_ns

# A name may carry arguments: `name` ARGS_SEPARATOR `json object`.
ARGS_SEPARATOR = "\x1f"
