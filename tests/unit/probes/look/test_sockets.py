"""Who is at the other end of a connection."""

from __future__ import annotations

from tests.unit.probes.look.stage import (
    READY,
    Stage,
    listening_port,
    main_rows,
)


def test_a_server_that_accepts_and_never_answers(stage: Stage) -> None:
    server = stage.start(
        """
        import socket, time
        listening = socket.create_server(("127.0.0.1", 0))
        print(listening.getsockname()[1], flush=True)
        one, _ = listening.accept()
        time.sleep(60)
        """
    )
    port = listening_port(server)
    pid = stage.start(
        """
        import socket, sys
        one = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        one.sendall(b"hello")
        print("ready", flush=True)
        one.recv(1)
        """,
        str(port),
    )
    (row,) = main_rows(pid, "wait_woken", "sk_wait", "tcp_recv")
    assert (row.kind, row.peers, row.peers_known) == ("socket-receive", (server,), True)
    assert row.target.endswith(f"-> 127.0.0.1:{port}")
    assert "ESTABLISHED" in row.note
    assert "5 bytes that it has not read" in row.note
    assert row.peer_unread_bytes == 5


def test_a_reader_that_stopped_leaves_bytes_unconfirmed(stage: Stage) -> None:
    reader = stage.start(
        """
        import socket, time
        listening = socket.create_server(("::1", 0), family=socket.AF_INET6)
        print("ready", flush=True)
        one, _ = listening.accept()
        time.sleep(60)
        """
    )
    port = listening_port(reader)
    pid = stage.start(
        READY + "import socket\n"
        "socket.create_connection(('::1', int(sys.argv[1]))).sendall(bytes(1 << 26))",
        str(port),
    )
    (row,) = main_rows(pid, "wait_memory", "sk_stream", "wait_woken")
    assert (row.kind, row.peers) == ("socket-send", (reader,))
    assert row.target.endswith(f"-> [::1]:{port}")
    assert "bytes are not confirmed by the other end" in row.note
    assert row.unconfirmed_bytes > 0


def test_the_other_end_of_a_socket_pair(stage: Stage) -> None:
    pid = stage.start(
        """
        import multiprocessing, sys, time
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        child = context.Process(target=time.sleep, args=(60,), daemon=True)
        child.start()
        there.close()
        print(child.pid, flush=True)
        here.recv()
        """
    )
    (row,) = main_rows(pid, "wait_woken", "unix_stream", "schedule_timeout")
    assert row.kind == "socket-receive"
    assert row.target.startswith("unix socket")
    assert len(row.peers) == 1
    assert row.peers[0] != pid
    assert f"the other end is held by {row.peers[0]} (" in row.note


def test_an_event_loop_and_select_name_their_sockets(stage: Stage) -> None:
    program = """
        import select, socket, sys
        here, there = socket.socketpair()
        print("ready", flush=True)
        if sys.argv[1] == "select":
            select.select([here], [], [])
        else:
            waiting = select.epoll()
            waiting.register(here, select.EPOLLIN)
            waiting.poll()
        """
    for call, wchan in (("select", "poll_schedule"), ("epoll", "ep_poll")):
        pid = stage.start(program, call)
        rows = main_rows(pid, wchan, "do_select", "do_epoll_wait")
        assert [(row.kind, row.peers) for row in rows] == [("socket-receive", (pid,))], call
