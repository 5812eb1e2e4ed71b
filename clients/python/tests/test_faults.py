"""What a network, a proxy and a server that is in trouble do to a client.

On the real server where it can be made to; answers that it can't be made to give are a transport's of the test.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import threading
import time
import traceback
import uuid
from collections.abc import Callable

import httpx
import pytest
from conftest import Connect, Server
from proxy import Proxy

import mayfly
from mayfly import JobSpec, Limits, Mayfly
from mayfly._address import settle
from mayfly._call import wait_before_repetition
from mayfly.errors import Problem, refusal

KEY = "mayfly_0123_hunter2"
JOB = "019a2b3c-4d5e-7f60-8a1b-2c3d4e5f6071"
SUBMITTED = {"job": JOB, "existing": False}

Handler = Callable[[httpx.Request], httpx.Response]


def problem(status: int, code: str, retry_after: str | None = None, **more: object) -> httpx.Response:
    document = {
        "type": f"urn:mayfly:problem:{code}",
        "title": f"Title of {code}",
        "status": status,
        "code": code,
        "request_id": "r-1",
    }
    headers = {"content-type": "application/problem+json"} | ({} if retry_after is None else {"retry-after": retry_after})
    return httpx.Response(status, headers=headers, content=json.dumps(document | more))


class Answers:
    """A transport that gives answers in their order, the last one for ever, and keeps the requests."""

    def __init__(self, *answers: httpx.Response | type[httpx.TransportError]) -> None:
        self._answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.transport = httpx.MockTransport(self._handle)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, httpx.Response):
            # A response is read once.
            return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
        raise answer("as the test says", request=request)

    def client(self, connect: Connect, patience: float = 10.0) -> Mayfly:
        return connect(server="http://127.0.0.1:1", key=KEY, transport=self.transport, patience=patience)


def test_a_submission_whose_answer_is_lost_is_sent_again_and_stands_for_one_job(connect: Connect, server: Server) -> None:
    mark = uuid.uuid4().hex
    with Proxy(server.url, [0, 17]) as proxy:
        client = connect(server=proxy.url, key=server.key)
        submitted = client.submit(JobSpec(source="pass", labels={"mark": mark}))
        client.close()
    assert submitted.existing, "the first was done, and only its answer was lost"
    assert len(proxy.requests) == 3
    direct = connect(server=server.url, key=server.key)
    assert [job.id for job in direct.list_jobs(label=("mark", mark))] == [submitted.id]


def test_what_would_be_done_twice_is_not_sent_again(connect: Connect, server: Server) -> None:
    mark = uuid.uuid4().hex
    spec = JobSpec(source="pass", labels={"mark": mark})
    with Proxy(server.url, [0]) as proxy:
        client = connect(server=proxy.url, key=server.key)
        with pytest.raises(mayfly.ConnectionLost, match="was lost before the end of the answer"):
            client.submit_many([spec, spec])
        client.close()
    assert len(proxy.requests) == 1
    direct = connect(server=server.url, key=server.key)
    assert len(list(direct.list_jobs(label=("mark", mark)))) == 2


def test_no_server_is_said_with_its_address_and_what_to_do(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    client = connect(server=url, key=KEY, patience=0.3)
    with pytest.raises(mayfly.Unreachable) as error:
        client.submit("print(1)")
    assert str(error.value) == (
        f"could not submit the job: no connection to {url} ([Errno 111] Connection refused); is the server's address right "
        "(server=, MAYFLY_CLIENT__SERVER), and does it run?"
        if isinstance(client, Mayfly)
        else f"could not submit the job: no connection to {url} (All connection attempts failed); is the server's address right "
        "(server=, MAYFLY_CLIENT__SERVER), and does it run?"
    )
    assert error.value.server == url


def test_a_server_that_does_not_answer_is_waited_for_so_long_and_no_longer(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = connect(server=url, key=KEY, timeout=0.3, patience=0.0)
        with pytest.raises(mayfly.NoAnswer, match=r"has not answered within 0\.3 s"):
            client.get(JOB)


def test_an_answer_that_drips_has_an_end_as_a_whole(connect: Connect) -> None:
    """Each byte comes in time, and all of them do not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        is_over = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
                while not is_over.wait(0.05):
                    connection.sendall(b" ")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            client = connect(server=f"http://127.0.0.1:{listener.getsockname()[1]}", key=KEY, timeout=0.4, patience=0.0)
            with pytest.raises(mayfly.NoAnswer, match=r"within 0\.4 s"):
                client.get(JOB)
        finally:
            is_over.set()
            thread.join()


def test_a_server_that_says_when_to_come_back_is_asked_then(connect: Connect) -> None:
    answers = Answers(problem(429, "rate_limited", "1"), problem(503, "overloaded", "0"), httpx.Response(202, json=SUBMITTED))
    begun = time.monotonic()
    assert answers.client(connect).submit("pass").id == JOB
    assert time.monotonic() - begun >= 1.0
    keys = {request.headers["idempotency-key"] for request in answers.requests}
    assert (len(answers.requests), len(keys)) == (3, 1)


def test_a_time_beyond_the_patience_is_said_and_not_waited_for(connect: Connect) -> None:
    answers = Answers(problem(429, "over_quota", "60", detail="100 jobs are queued"))
    with pytest.raises(mayfly.QuotaExceeded, match=r"100 jobs are queued \(try again in 60 s\)") as refused:
        answers.client(connect).submit("pass")
    assert (refused.value.retry_after, len(answers.requests)) == (60.0, 1)


def test_a_tenant_over_its_quota_hears_so(client: Mayfly, connect: Connect, server: Server) -> None:
    headers = {"authorization": f"Bearer {server.key}"}
    with httpx.Client(base_url=server.url, headers=headers, trust_env=False) as admin:
        tenant = f"/v1/tenants/{admin.get('/v1/whoami').json()['tenant']}"
        admin.patch(tenant, json={"most_queued": 0}).raise_for_status()
        try:
            impatient = connect(server=server.url, key=server.key, patience=0.0)
            with pytest.raises(mayfly.QuotaExceeded) as refused:
                impatient.submit("pass")
            assert refused.value.code == "over_quota" and refused.value.retry_after
        finally:
            admin.patch(tenant, json={"most_queued": None}).raise_for_status()
    assert client.run("pass").ok


def test_the_servers_no_is_a_class_of_its_own_with_every_fault(client: Mayfly, connect: Connect, server: Server) -> None:
    limits = Limits(memory="1KiB", pids=1, wall="1000h")
    with pytest.raises(mayfly.Invalid) as invalid:
        client.submit(JobSpec(source="", limits=limits, env={"a=b": ""}))
    paths = {fault.path for fault in invalid.value.faults}
    assert {"limits.memory", "limits.pids", "limits.wall"} < paths and len(paths) == 4
    assert all(str(fault) in str(invalid.value) for fault in invalid.value.faults)
    with pytest.raises(mayfly.NotFound, match="could not show the job"):
        client.get(JOB)
    with pytest.raises(mayfly.Unauthorized, match="does not know the key") as unknown:
        connect(server=server.url, key=KEY).submit("pass")
    assert "hunter2" not in str(unknown.value)


def test_what_a_keys_role_may_not_is_said(client: Mayfly, connect: Connect, server: Server) -> None:
    job = client.run("print(1)")
    headers = {"authorization": f"Bearer {server.key}"}
    with httpx.Client(base_url=server.url, headers=headers, trust_env=False) as admin:
        tenant = admin.get("/v1/whoami").json()["tenant"]
        made = admin.post("/v1/keys", json={"name": "auditor", "role": "auditor", "tenant": tenant}).raise_for_status().json()
    auditor = connect(server=server.url, key=made["secret"])
    with pytest.raises(mayfly.Forbidden, match="another role is needed"):
        auditor.submit("print(1)")
    seen = auditor.get(job)
    assert seen.ok and seen.stdout.content == b"" and seen.stdout.sha256 is None


def test_a_body_that_is_too_large_is_not_sent(connect: Connect) -> None:
    answers = Answers(httpx.Response(202, json=SUBMITTED))
    with pytest.raises(mayfly.UsageError, match=r"could not submit the job: \d{8} bytes of JSON; a request has at most 25165824"):
        answers.client(connect).submit("#" * (24 << 20))
    assert not answers.requests


def test_a_refusal_that_is_lost_with_a_large_body_is_guessed_at(connect: Connect, server: Server) -> None:
    """The server answers a wrong key at once. Whether that is still heard while the body is sent is up to the two hosts."""
    client = connect(server=server.url, key=KEY, patience=0.0)
    with pytest.raises((mayfly.Unauthorized, mayfly.ConnectionLost), match="does not know"):
        client.submit("#" * (4 << 20))


def test_a_server_in_trouble_is_named_with_the_request(connect: Connect) -> None:
    answers = Answers(problem(500, "internal"))
    with pytest.raises(mayfly.ServerError, match=r"Title of internal \(request r-1\)"):
        answers.client(connect).submit("pass")
    assert len(answers.requests) == 1, "what does not pass by itself is not tried again"


def test_a_code_that_is_newer_than_this_is_an_error_all_the_same(connect: Connect) -> None:
    with pytest.raises(mayfly.ApiError) as refused:
        Answers(problem(418, "teapot")).client(connect).submit("pass")
    assert (type(refused.value), refused.value.code) == (mayfly.ApiError, "teapot")


def test_what_is_not_the_api_is_said(connect: Connect) -> None:
    for answer in (
        httpx.Response(404, text="<html>"),
        httpx.Response(302, headers={"location": "http://127.0.0.1:2/elsewhere"}),
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json={"job": JOB}),
        httpx.Response(200, json=[]),
    ):
        answers = Answers(answer)
        with pytest.raises(mayfly.UnexpectedAnswer, match=r"not mayfly's API|can't be read"):
            answers.client(connect).get(JOB)
        assert [request.url.port for request in answers.requests] == [1], "the key goes nowhere else"


def test_a_proxys_word_for_a_server_that_is_away_is_waited_out(connect: Connect) -> None:
    answers = Answers(httpx.Response(502, text="<html>"), httpx.ReadError, httpx.Response(202, json=SUBMITTED))
    assert answers.client(connect).submit("pass").id == JOB
    with pytest.raises(mayfly.Unavailable, match="something before the server"):
        Answers(httpx.Response(502, text="<html>")).client(connect, patience=0.2).submit("pass")


def test_an_answer_has_a_bound(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mayfly._call.MAX_ANSWER", 1000)
    with pytest.raises(mayfly.AnswerTooLarge, match="larger than 1000 bytes"):
        Answers(httpx.Response(200, content=b" " * 1001)).client(connect).get(JOB)


def test_a_list_that_names_the_same_page_again_has_an_end(connect: Connect) -> None:
    with pytest.raises(mayfly.UnexpectedAnswer, match="names itself"):
        list(Answers(httpx.Response(200, json={"jobs": [], "next": "x"})).client(connect).list_jobs())


def test_a_run_that_loses_its_server_names_the_job(connect: Connect) -> None:
    answers = Answers(httpx.Response(202, json=SUBMITTED), httpx.ConnectError)
    with pytest.raises(mayfly.Unreachable) as error:
        answers.client(connect, patience=0.2).run("pass")
    assert error.value.job_id == JOB
    assert not any(request.url.path.endswith("/cancel") for request in answers.requests)


def test_a_batch_that_fails_in_its_middle_is_named(connect: Connect) -> None:
    batch = {"batch": JOB, "input": "", "created_at": "2026-01-01T00:00:00Z", "waiting": 0, "running": 0, "ended": {}}
    answers = Answers(httpx.Response(201, json=batch), problem(422, "invalid_job"))
    with pytest.raises(mayfly.Invalid) as error:
        answers.client(connect).submit_batch({"a": "pass"})
    assert error.value.batch_id == JOB


def test_ctrl_c_cancels_a_run(server: Server) -> None:
    """The thread of a `Mayfly` waits in the server's answer when the signal comes."""
    mark = uuid.uuid4().hex
    spec = JobSpec(source="import time; time.sleep(600)", limits=Limits(wall="10m"), labels={"mark": mark})
    with Mayfly(server.url, server.key) as client, Mayfly(server.url, server.key) as other:

        def interrupt_when_it_runs() -> None:
            until = time.monotonic() + 60
            while not list(other.list_jobs(label=("mark", mark), state="started")):
                assert time.monotonic() < until, "the job starts"
            signal.pthread_kill(main, signal.SIGINT)

        main = threading.main_thread().ident or 0
        thread = threading.Thread(target=interrupt_when_it_runs)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            client.run(spec)
        thread.join()
        (job,) = other.list_jobs(label=("mark", mark))
        assert other.wait(job, timeout=60).state == "canceled"


def test_asyncios_cancellation_cancels_a_run(server: Server) -> None:
    mark = uuid.uuid4().hex
    spec = JobSpec(source="import time; time.sleep(600)", limits=Limits(wall="10m"), labels={"mark": mark})

    async def canceled() -> str:
        async with mayfly.AsyncMayfly(server.url, server.key) as client:
            run = asyncio.create_task(client.run(spec))
            while not [job async for job in client.list_jobs(label=("mark", mark), state="started")]:
                assert not run.done()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            (job,) = [job async for job in client.list_jobs(label=("mark", mark))]
            return (await client.wait(job, timeout=60)).state

    assert asyncio.run(canceled()) == "canceled"


class Holding(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Fails in a frame that holds what it was to send, as that of a failed write does."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        held = request.headers.raw, request.content
        raise httpx.WriteError(f"{len(held)} things were not sent")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)


def test_no_frame_of_an_error_holds_the_key_or_the_secrets_of_a_job(connect: Connect) -> None:
    spec = JobSpec(source="pass", secrets={"TOKEN": "hunter2-of-the-job"})
    client = connect(server="http://127.0.0.1:1", key=KEY, transport=Holding(), patience=0.0)
    with pytest.raises(mayfly.ConnectionLost) as lost:
        client.submit(spec)
    shown = "".join(traceback.TracebackException.from_exception(lost.value, capture_locals=True).format())
    assert "call = Call(" in shown and "hunter2" not in shown
    assert "hunter2" not in repr(settle("http://127.0.0.1:1", KEY, None, None, {}))


def test_nothing_shows_the_key(connect: Connect, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown = []
    with Proxy(server.url, [0, 0, 0]) as proxy:
        for url in (server.url, proxy.url, "http://127.0.0.1:1"):
            client = connect(server=url, key=server.key, patience=0.1)
            shown.append(repr(client))
            try:
                client.get(JOB)
            except mayfly.MayflyError as error:
                shown += [repr(error), *traceback.TracebackException.from_exception(error, capture_locals=True).format()]
            client.close()
    for key in ("hunter2 hunter2", "hünter2", ""):
        with pytest.raises(mayfly.UsageError) as wrong:
            connect(server=server.url, key=key or "hunter2\n")
        shown.append(repr(wrong.value))
    assert len(shown) > 9 and caplog.records
    secret = server.key.rpartition("_")[2]
    for text in [*shown, *(record.getMessage() for record in caplog.records)]:
        assert secret not in text and "nter2" not in text


def test_what_may_have_been_done_is_not_done_again_unless_that_is_safe() -> None:
    def twice(error: mayfly.MayflyError) -> list[bool]:
        return [wait_before_repetition(error, safe, 0, 3600.0) is not None for safe in (True, False)]

    def refused(status: int, code: str = "", retry_after: float | None = None) -> mayfly.ApiError:
        return refusal("test", Problem(status, code, "title", retry_after=retry_after))

    assert twice(mayfly.Unreachable("test", "s", "w")) == [True, True]
    assert twice(mayfly.NoAnswer("test", "s", "w")) == [True, False]
    assert twice(mayfly.ConnectionLost("test", "s", "w")) == [True, False]
    assert twice(mayfly.UnexpectedAnswer("test", "s", "w")) == [False, False]
    assert twice(refused(429, "rate_limited")) == twice(refused(503, "overloaded")) == [True, True]
    for status in (408, 502, 503, 504):
        assert twice(refused(status)) == [True, False], status
    for status in (400, 401, 403, 404, 409, 413, 422, 500, 501):
        assert twice(refused(status)) == [False, False], status
    for repetitions in (0, 9):
        wait = wait_before_repetition(refused(429, retry_after=7.0), True, repetitions, 3600.0)
        assert wait is not None and 7 <= wait <= 9
    assert wait_before_repetition(refused(429, retry_after=7.0), True, 0, 6.0) is None
    waits = {wait_before_repetition(refused(503), True, 8, 3600.0) for _ in range(20)}
    assert len(waits) > 1, "they do not all come back at once"
    assert all(wait is not None and 2.5 <= wait <= 5 for wait in waits)
