"""A job's stream, on a real server, and over connections that are cut."""

from __future__ import annotations

import itertools

import pytest
from conftest import Connect, Server
from proxy import Proxy

import mayfly
from mayfly import EndEvent, GapEvent, JobSpec, Limits, Mayfly, OutputEvent, StateEvent
from mayfly._sse import MAX_EVENT, Parser, RawEvent
from mayfly.events import Seen


def test_a_job_is_followed_as_it_goes(client: Mayfly) -> None:
    events = list(client.stream(client.submit("import sys; print('héllo'); print('oh', file=sys.stderr)")))
    states = [event.state for event in events if isinstance(event, StateEvent)]
    # It begins with where the job stands by then, and what passes quickly may be passed over.
    usual = ["queued", "dispatched", "started", "succeeded"]
    assert states == [state for state in usual if state in states] and states[-1] == "succeeded"
    written = {event.stream: event.text for event in events if isinstance(event, OutputEvent)}
    assert written == {"stdout": "héllo\n", "stderr": "oh\n"}
    end = events[-1]
    assert isinstance(end, EndEvent)
    assert (end.state, end.cause, end.exit_code, end.signal) == ("succeeded", "exited", 0, None)


def test_output_is_there_while_the_program_runs(client: Mayfly) -> None:
    source = "import time\nprint('here', flush=True)\ntime.sleep(600)"
    job = client.submit(JobSpec(source=source, limits=Limits(wall="10m")))
    events = client.stream(job)
    assert next(event.text for event in events if isinstance(event, OutputEvent)) == "here\n"
    client.cancel(job)
    end = list(events)[-1]
    assert isinstance(end, EndEvent) and end.state == "canceled"


def test_a_stream_that_is_left_gives_its_connection_back(connect: Connect, server: Server) -> None:
    client = connect(server=server.url, key=server.key, connections=1)
    job = client.submit("print(1)")
    for event in client.stream(job):
        if isinstance(event, StateEvent):
            break
    assert client.wait(job, timeout=60).ok, "the one connection is free"


def test_output_is_whole_across_cut_connections(connect: Connect, server: Server) -> None:
    source = "for number in range(20000): print(number, flush=number % 500 == 0)"
    expected = b"".join(b"%d\n" % number for number in range(20000))
    # Each of the first connections is cut after so many bytes of its answer: in the middle of an event, mostly.
    with Proxy(server.url, [10_000, 20_011, 30_301, 40_000, 50_000]) as proxy:
        # It is for an absence, and not for all of them together: the waits of five would be longer.
        client = connect(server=proxy.url, key=server.key, patience=1.0)
        job = connect(server=server.url, key=server.key).run(source, check=True)
        seen, gaps = b"", 0
        for event in client.stream(job):
            if isinstance(event, OutputEvent):
                assert event.offset == len(seen), "nothing comes twice, and nothing is missing"
                seen += event.content
            gaps += isinstance(event, GapEvent)
        client.close()
    assert (seen, gaps) == (expected, 0)
    assert len(proxy.requests) == 6
    resumed = [b"last-event-id" in request.lower() for request in proxy.requests]
    assert resumed == [False] + [True] * 5, "each goes on behind the newest event of the one before"


def test_a_stream_ends_when_the_server_stays_away(connect: Connect, server: Server) -> None:
    with Proxy(server.url, itertools.repeat(0)) as proxy:
        client = connect(server=proxy.url, key=server.key, patience=0.5)
        job = connect(server=server.url, key=server.key).submit("pass")
        with pytest.raises(mayfly.ConnectionLost, match="could not follow the job: the connection to http"):
            list(client.stream(job))
        client.close()
    assert len(proxy.requests) > 1, "it was tried again"


def test_what_comes_twice_is_handed_out_once_and_what_is_missing_is_a_gap() -> None:
    seen = Seen()

    def hear(attempt: str, offset: int, content: bytes) -> list[object]:
        return list(seen.output(OutputEvent(attempt, "stdout", offset, content)))

    assert hear("a1", 0, b"abc") == [OutputEvent("a1", "stdout", 0, b"abc")]
    assert hear("a1", 0, b"abc") == []
    assert hear("a1", 1, b"bcde") == [OutputEvent("a1", "stdout", 3, b"de")]
    assert hear("a1", 9, b"j") == [GapEvent("a1", "stdout", 5, 9), OutputEvent("a1", "stdout", 9, b"j")]
    assert hear("a2", 0, b"abc") == [OutputEvent("a2", "stdout", 0, b"abc")]
    assert hear("a1", 10, b"late") == []
    assert list(seen.gap(GapEvent("a2", "stdout", 3, 9))) == [GapEvent("a2", "stdout", 3, 9)]
    assert list(seen.gap(GapEvent("a2", "stdout", 3, 9))) == []
    assert list(seen.gap(GapEvent("a2", "stdout", 5, 12))) == [GapEvent("a2", "stdout", 9, 12)]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_events_are_read_whatever_ends_their_lines_and_wherever_they_are_cut(end: str) -> None:
    text = "\ufeff: hello\n\nevent: state\nid: 1\ndata: {}\n\nevent:output\ndata: a\ndata:  b\nodd\n\nid\ndata\n\nid: 2\n\n:\n"
    data = text.replace("\n", end).encode()
    expected = [RawEvent("state", "{}", "1"), RawEvent("output", "a\n b", "1"), RawEvent("", "", "")]
    assert list(Parser().feed(data)) == expected
    parser = Parser()
    assert [event for byte in data for event in parser.feed(bytes([byte]))] == expected


def test_an_event_has_a_bound() -> None:
    for line in (b"data: " + b"x" * (1 << 20) + b"\n", b"x" * (1 << 20)):
        parser = Parser()
        with pytest.raises(ValueError, match="larger than"):
            for _ in range(MAX_EVENT // len(line) + 2):
                list(parser.feed(line))
