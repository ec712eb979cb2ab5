"""Answers in text, of NCCL 2.24 to 2.28.3, written after the sources' own format strings."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.dumps.ras import hear, judge_ras
from grpo_doctor.hang.dumps.ras.answers import CommRank, Lost, Mesh, RasProcess, parse_text
from grpo_doctor_probes.evidence import Job, Member, Placement, RasAnswer

HEAD = """\
NCCL version 2.27.5 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  {errors}
    1         2         1         4         4         8   RUNNING      OK

Errors
======

"""
MISMATCH = """\
Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  6 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 2 -- GPU 2 managed by process 12 on node 10.0.0.1
  Rank 5 -- GPU 1 (NVML 3) managed by process 21 on node 10.0.0.2

  Communicator ranks have different Broadcast operation counts
  7 ranks have not launched any operations
  Rank 2 has launched up to operation 1 -- GPU 2 managed by process 12 on node 10.0.0.1

"""
HALVES = """\
Warnings
========

#0-0 (1) MISMATCH
  Communicator ranks have different AllGather operation counts
  4 ranks have launched up to operation 8
  4 ranks have launched up to operation 7

"""
OLDEST = """\
Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different status
  7 ranks have status RUNNING
  Rank 3 has status ABORT -- GPU 3 managed by process 13 on node 10.0.0.1
  Communicator ranks have different collective operation counts
  7 ranks have launched up to operation 70
  Rank 3 has launched up to operation 69 -- GPU 3 managed by process 13 on node 10.0.0.1

"""
LOST_BY_NUMBER = """\
DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 13 on node 10.0.0.1 managing GPU 3

#0-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 2 ranks
  The missing ranks: 3,7

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

"""
LOST_BY_NAME = """\
INCOMPLETE
  Missing communicator data from 1 job process
  Process 13 on node 10.0.0.1 managing GPU 3

#0-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 3 -- GPU 3 managed by process 13 on node 10.0.0.1

"""
ERROR = """\
#0-0 (27a079b828ff1a75) ERROR
  Initialization error on 1 rank
  Rank 1 reported System error -- GPU 1 managed by process 11 on node 10.0.0.1
  Asynchronous errors on 3 ranks
  2 ranks reported Remote process error
  Rank 4 -- GPU 0 managed by process 20 on node 10.0.0.2
  Rank 5 -- GPU 1 managed by process 21 on node 10.0.0.2
  Rank 2 reported Unhandled CUDA error -- GPU 2 managed by process 12 on node 10.0.0.1

"""


def read(body: str, errors: str = "MISMATCH") -> Mesh:
    return parse_text(HEAD.format(errors=errors) + body, 7)


def test_ranks_that_differ_are_named_and_the_others_counted() -> None:
    mesh = read(MISMATCH)
    assert (mesh.version, mesh.at_ns) == ("2.27.5", 7)
    (communicator,) = mesh.communicators
    assert (communicator.key, communicator.size, communicator.lost) == ("27a079b828ff1a75", 8, ())
    assert communicator.usual == {"AllReduce": 6650, "Broadcast": 0}
    assert communicator.seats == (
        CommRank(2, RasProcess("10.0.0.1", 12), {"AllReduce": 6649, "Broadcast": 1}),
        CommRank(5, RasProcess("10.0.0.2", 21), {"AllReduce": 6649, "Broadcast": 0}),
    )


def test_of_two_halves_nothing_is_known() -> None:
    (communicator,) = read(HALVES).communicators
    assert (communicator.seats, communicator.usual) == ((), None)


def test_the_oldest_count_all_operations_together() -> None:
    (communicator,) = read(OLDEST).communicators
    assert communicator.usual == {"collective": 70}
    assert communicator.seats == (CommRank(3, RasProcess("10.0.0.1", 13), {"collective": 69}),)


def test_lost_ranks_by_number_alone() -> None:
    mesh = read(LOST_BY_NUMBER, "INCOMPLETE")
    assert mesh.dead_processes == (RasProcess("10.0.0.1", 13),)
    (communicator,) = mesh.communicators
    assert [lost.number for lost in communicator.lost] == [3, 7]


def test_lost_ranks_by_process() -> None:
    (communicator,) = read(LOST_BY_NAME, "INCOMPLETE").communicators
    assert communicator.lost == (Lost(3, RasProcess("10.0.0.1", 13), unresponsive=True),)


def test_errors_of_both_kinds() -> None:
    (communicator,) = read(ERROR, "ERROR").communicators
    errors = {seat.number: (seat.init_state, seat.async_error) for seat in communicator.seats}
    assert errors == {1: (2, 0), 2: (0, 1), 4: (0, 6), 5: (0, 6)}
    assert {seat.process.pid for seat in communicator.seats} == {11, 12, 20, 21}


def test_text_is_judged_as_json_is() -> None:
    members = tuple(Member(10 + rank, 1, 0, "rank", "python", "x", rank=rank) for rank in range(4))
    job = Job("node-1", members, 8, placements=(Placement("node-1", addresses=("10.0.0.1",)),))
    text = HEAD.format(errors="MISMATCH") + MISMATCH
    answers = [RasAnswer("localhost:28028", at_ns, text) for at_ns in (0, 10**9)]
    judgement = judge_ras(hear(job, answers))
    assert {(lag.rank, lag.operation, lag.instead) for lag in judgement.laggards} == {
        (2, "AllReduce", "Broadcast"),
        (5, "AllReduce", ""),
    }


def test_a_healthy_answer_names_nobody() -> None:
    mesh = read("", "     OK")
    assert mesh.communicators == ()
    assert mesh.processes == frozenset()


@pytest.mark.parametrize("text", ["", "HTTP/1.1 400 Bad Request\n", "\x00" * 100])
def test_what_is_no_answer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an answer"):
        parse_text(text, 0)
