"""Jobs, from submission to result, on a real server."""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
import zipfile
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from conftest import Connect, Server

import mayfly
from mayfly import Archive, File, JobSpec, Limits, Mayfly, NamedSecret, Retry, Upload, Uploaded, UsageError


def test_a_program_runs_and_its_result_has_all_of_it(client: Mayfly) -> None:
    job = client.run("import sys\nprint(6 * 7)\nprint('oh', file=sys.stderr)\nsys.exit(3)")
    assert (job.state, job.cause, job.exit_code, job.signal, job.ok) == ("failed", "exited", 3, None, False)
    assert (job.stdout.text, job.stderr.content, str(job.stdout)) == ("42\n", b"oh\n", "42\n")
    assert job.error == "failed: its program ended with exit code 3"
    assert job.usage and 0 < job.usage.wall_s < 30 and job.usage.max_rss_bytes > 1 << 20
    assert job.started_at and job.ended_at and job.submitted_at <= job.started_at <= job.ended_at
    with pytest.raises(mayfly.JobFailed, match="exit code 3") as failed:
        job.check()
    assert failed.value.job.stdout.text == "42\n"
    assert client.run("pass", check=True).error is None


def test_an_archive_becomes_files_and_files_have_modes(client: Mayfly, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "project.zip", "w") as project:
        project.writestr("tools/answer.py", "ANSWER = 42\n")
        project.writestr("data.txt", "seven\n")
    program = (
        "import os, sys\nsys.path.insert(0, 'lib')\nfrom tools.answer import ANSWER\n"
        "print(ANSWER, open('lib/data.txt').read().strip(), oct(os.stat('key').st_mode & 0o777))\n"
    )
    job = client.run(
        JobSpec(
            source=program,
            files={"key": File("k", mode="0600")},
            archives=[Archive(tmp_path / "project.zip", into="lib")],
        )
    )
    assert job.stdout.text == "42 seven 0o600\n", job.error

    evil = tmp_path / "evil.zip"
    with zipfile.ZipFile(evil, "w") as project:
        project.writestr("../out", "x")
        project.writestr("fine", "x")
        project.writestr("/etc/passwd", "x")
    with pytest.raises(mayfly.Invalid) as refused:
        client.submit(JobSpec(source="pass", archives=[Archive(evil, format="zip")]))
    assert [fault.code for fault in refused.value.faults] == ["bad_path", "bad_path"]


def test_everything_that_a_job_can_ask_for_arrives(client: Mayfly, tmp_path: Path) -> None:
    (tmp_path / "read.py").write_text(
        "import os, sys\n"
        "print(sys.argv[1:], sys.stdin.buffer.read(), os.environ['STAGE'], open('a.txt').read(), open('b/c', 'rb').read())\n"
        "print(os.access('tool', os.X_OK), os.access('a.txt', os.X_OK), os.environ['TOKEN'])\n"
        "print(open('conf/key').read(), oct(os.stat('conf/key').st_mode & 0o777))\n"
    )
    spec = JobSpec(
        image="python",
        source=tmp_path / "read.py",
        language="python",
        args=["-x", "ü"],
        stdin=b"\xff\x00",
        files={"a.txt": "text", "b/c": b"\xfe", "tool": File("#!/bin/sh\n", executable=True)},
        env={"STAGE": "test"},
        secrets={"TOKEN": "hunter2-hunter2"},
        secret_files={"conf/key": "hunter3-hunter3"},
        limits=Limits(
            memory="128MiB",
            cpu=0.5,
            pids=20,
            wall="10s",
            work="8MiB",
            tmp="4MiB",
            shm="1MiB",
            stdout="64KiB",
            stderr="32KiB",
            open_files=64,
        ),
        retry=Retry(max_attempts=2, on=["timed_out"]),
        labels={"suite": "python"},
        priority=3,
        expires_after=timedelta(minutes=5),
        not_before=datetime.now(timezone.utc) - timedelta(seconds=1),
        retain_source=False,
        network="none",
        runtime="runc",
    )
    job = client.run(spec, check=True)
    first, second, third = job.stdout.text.splitlines()
    assert first == "['-x', 'ü'] b'\\xff\\x00' test text b'\\xfe'"
    assert second == "True False [redacted:secret]"
    assert third == "[redacted:secret] 0o400"
    assert job.stdout.redacted == {"secret": 2}
    assert dict(job.labels) == {"suite": "python"}
    in_force = job.raw["limits"]["in_force"]
    assert (in_force["memory"], in_force["cpu"], in_force["pids"], in_force["wall"]) == ("128MiB", "0.5", 20, "10s")
    assert (in_force["stdout"], in_force["stderr"], in_force["open_files"]) == ("64KiB", "32KiB", 64)
    assert job.raw["source_erased"]
    assert "hunter" not in repr(spec)


def test_a_secret_that_the_server_keeps_is_named_and_one_that_it_does_not_keep_is_a_fault(client: Mayfly) -> None:
    spec = JobSpec(
        source="pass",
        secrets={"TOKEN": NamedSecret("nobody-has-set-it")},
        secret_files={"key": NamedSecret("nor-this")},
    )
    assert spec.to_wire()["secrets"] == {"TOKEN": {"named": "nobody-has-set-it"}}
    with pytest.raises(mayfly.Invalid) as refused:
        client.submit(spec)
    found = [(fault.path, fault.code) for fault in refused.value.faults]
    assert found == [('secrets["TOKEN"]', "no_such_secret"), ('secret_files["key"]', "no_such_secret")]


LEAVES = """
import os, sys
os.makedirs("out/deep")
open("out/data.csv", "w").write("a,b\\n1,2\\n")
open("out/deep/large.bin", "wb").write(bytes(range(256)) * 40_000)
open("out/empty", "w")
os.symlink("/etc/passwd", "out/link")
sys.exit(int(sys.argv[1]))
"""


def test_files_that_a_job_leaves_are_listed_read_and_saved(client: Mayfly, tmp_path: Path) -> None:
    job = client.run(JobSpec(source=LEAVES, args=["0"], artifacts=["out/**"]), check=True)
    found = client.artifacts(job)
    assert found == job.artifacts and found.collected
    assert [file.name for file in found.files] == [b"out/data.csv", b"out/deep/large.bin", b"out/empty"]
    assert [(file.name, file.why) for file in found.left_out] == [(b"out/link", "link")]
    large = bytes(range(256)) * 40_000
    assert client.read_artifact(job, "out/data.csv") == b"a,b\n1,2\n"
    assert client.read_artifact(job, 1, 300, 310) == large[300:310]
    assert client.read_artifact(job, found.files[1], -5) == large[-5:]
    assert client.read_artifact(job, 2) == b""
    saved = client.save_artifact(job, "out/deep/large.bin", tmp_path / "large")
    assert saved == found.files[1] and (tmp_path / "large").read_bytes() == large
    client.save_artifact(job, 2, tmp_path / "large")
    assert (tmp_path / "large").read_bytes() == b""
    with pytest.raises(UsageError, match="has kept no file 'other'"):
        client.save_artifact(job, "other", tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["large"]


def test_files_of_a_job_that_fails_are_kept_where_that_is_asked(client: Mayfly) -> None:
    failed = client.run(JobSpec(source=LEAVES, args=["3"], artifacts=["out/*.csv"]))
    assert failed.artifacts is None and not client.artifacts(failed).collected
    kept = client.run(JobSpec(source=LEAVES, args=["3"], artifacts=["out/*.csv"], artifacts_after="any_end"))
    assert kept.exit_code == 3 and kept.artifacts is not None
    assert [file.name for file in kept.artifacts.files] == [b"out/data.csv"]


def test_a_shell_file_and_a_command_of_the_image_run(client: Mayfly, tmp_path: Path) -> None:
    (tmp_path / "count.sh").write_text("sort | uniq -c")
    job = client.run(JobSpec(source=tmp_path / "count.sh", stdin="b\na\nb\n"), check=True)
    assert job.stdout.text.split() == ["1", "a", "2", "b"]
    job = client.run(JobSpec(command=["sh", "-c"], args=["echo $0", "here"]), check=True)
    assert job.stdout.text == "here\n"


def test_ends_that_are_not_the_programs_own_are_said(client: Mayfly) -> None:
    endless = client.run(JobSpec(source="while True: pass", limits=Limits(wall="300ms")))
    assert (endless.state, endless.error) == ("timed_out", "timed_out: it ran into its wall-clock limit")
    absent = client.run(JobSpec(command=["no-such-program"]))
    assert absent.cause == "command_not_started"
    assert absent.error and "no-such-program: no such file" in absent.error
    killed = client.run("import os; os.kill(os.getpid(), 9)")
    assert (killed.signal, killed.error) == (9, "failed: its program was ended by signal 9")


def test_bytes_are_bytes_and_what_is_cut_is_said(client: Mayfly) -> None:
    job = client.run("import os; os.write(1, bytes(range(256)))")
    assert job.stdout.content == bytes(range(256)) and not job.stdout.truncated
    spec = JobSpec(source="print('a' * 3000, end='z')", limits=Limits(stdout="1KiB"))
    job = client.run(spec)
    out = job.stdout
    assert out.truncated and out.written_bytes == 3001
    assert out.written_bytes == len(out.content) + out.omitted_bytes
    assert out.head[:1] == b"a" and out.tail[-1:] == b"z"
    part = client.read_output(job)
    assert (part.content, part.cut_at, part.written_bytes) == (out.content, len(out.head), 3001)


def test_output_is_read_by_range(client: Mayfly) -> None:
    job = client.run("print('0123456789', end='')")
    whole = client.read_output(job.id)
    assert (whole.content, whole.offset, whole.kept_bytes, whole.cut_at) == (b"0123456789", 0, 10, None)
    middle = client.read_output(job, "stdout", 2, 5)
    assert (middle.content, middle.offset, middle.kept_bytes) == (b"234", 2, 10)
    assert client.read_output(job, start=8).content == b"89"
    last = client.read_output(job, start=-3)
    assert (last.content, last.offset) == (b"789", 7)
    assert client.read_output(job, "stderr").content == b""
    with pytest.raises(mayfly.BadRequest) as refused:
        client.read_output(job, start=10)
    assert refused.value.code == "range_not_satisfiable"
    with pytest.raises(mayfly.UsageError, match="at least one byte"):
        client.read_output(job, start=5, end=5)


def test_a_submission_under_the_same_key_stands_for_one_job(client: Mayfly) -> None:
    key = uuid.uuid4().hex
    first = client.submit("print(1)", idempotency_key=key)
    again = client.submit("print(1)", idempotency_key=key)
    assert (first.id, first.existing, again.existing) == (again.id, False, True)
    with pytest.raises(mayfly.IdempotencyConflict, match="another key"):
        client.submit("print(2)", idempotency_key=key)
    assert client.submit("print(1)").id != first.id
    with pytest.raises(mayfly.UsageError, match="visible ASCII"):
        client.submit("print(1)", idempotency_key="a b")


def test_a_job_is_shown_canceled_and_waited_for(client: Mayfly) -> None:
    sleeping = client.submit(JobSpec(source="import time; time.sleep(600)", limits=Limits(wall="10m")))
    with pytest.raises(mayfly.WaitTimeout) as timeout:
        client.wait(sleeping, timeout=0.3)
    assert timeout.value.job.id == timeout.value.job_id == sleeping.id
    assert not client.get(sleeping).is_over and client.get(sleeping).error is None
    assert client.cancel(sleeping) in ("canceled", "requested")
    ended = client.wait(sleeping, timeout=60)
    assert (ended.state, ended.error) == ("canceled", "canceled: it was canceled")
    assert client.cancel(sleeping.id) == "over"


def test_a_job_that_has_to_wait_says_why(client: Mayfly) -> None:
    later = client.submit(JobSpec(source="", not_before=datetime.now(timezone.utc) + timedelta(hours=1)))
    assert client.get(later).waiting_for == "its time has not come"
    assert client.cancel(later) == "canceled"


def test_a_run_that_is_not_waited_for_any_longer_is_canceled(client: Mayfly) -> None:
    spec = JobSpec(source="import time; time.sleep(600)", limits=Limits(wall="10m"))
    with pytest.raises(mayfly.WaitTimeout) as timeout:
        client.run(spec, timeout=0.3)
    assert client.wait(timeout.value.job, timeout=60).state == "canceled"


def test_jobs_are_listed_across_pages(client: Mayfly) -> None:
    mark = uuid.uuid4().hex
    begun = datetime.now(timezone.utc) - timedelta(seconds=1)
    spec = JobSpec(source="pass", labels={"mark": mark})
    ids = [one.id for one in client.submit_many([spec] * 5)]
    for job in ids:
        client.wait(job, timeout=60)
    listed = list(client.list_jobs(label=("mark", mark), page=2))
    assert [job.id for job in listed] == ids[::-1]
    assert all(job.ok and job.is_over for job in listed)
    assert len(list(client.list_jobs(label=("mark", mark), state="failed"))) == 0
    assert next(iter(client.list_jobs(label=("mark", mark), image="python", submitted_from=begun))).id == ids[-1]
    assert list(client.list_jobs(label=("mark", mark), submitted_before=begun)) == []


def test_many_are_accepted_all_or_none(client: Mayfly) -> None:
    mark = uuid.uuid4().hex
    good, bad = JobSpec(source="pass", labels={"mark": mark}), JobSpec(source="pass", image="no-such-image")
    with pytest.raises(mayfly.ImageNotPinned):
        client.submit_many([good, bad])
    assert list(client.list_jobs(label=("mark", mark))) == []
    with pytest.raises(mayfly.UsageError, match="submit_batch"):
        client.submit_many([])


def test_a_batch_goes_from_its_items_to_its_results(client: Mayfly) -> None:
    batch = client.submit_batch({"good": "print(1)", "bad": "raise SystemExit(2)"}, input="a test")
    assert (batch.items, batch.input) == (2, "a test")
    over = client.wait_batch(batch, timeout=60)
    assert dict(over.ended) == {"succeeded": 1, "failed": 1}
    jobs = list(client.list_batch_jobs(batch, page=1))
    assert [(job.position, job.item, job.exit_code, job.batch) for job in jobs] == [
        (1, "good", 0, batch.id),
        (2, "bad", 2, batch.id),
    ]
    assert client.get(jobs[0]).stdout.text == "1\n"
    assert {job.id for job in client.list_jobs(batch=batch)} == {job.id for job in jobs}
    assert batch.id in {one.id for one in client.list_batches(page=1)}


def test_a_batch_is_filled_again_and_again_and_has_each_item_once(client: Mayfly) -> None:
    batch = client.create_batch()
    spec = JobSpec(source="pass", not_before=datetime.now(timezone.utc) + timedelta(hours=1))
    # More than one request.
    items: dict[str, JobSpec | str] = {f"item-{number}": spec for number in range(1001)}
    first = client.submit_items(batch, items)
    again = client.submit_items(batch, items)
    assert [one.id for one in first] == [one.id for one in again]
    assert not any(one.existing for one in first) and all(one.existing for one in again)
    assert not client.get_batch(batch).is_over
    with pytest.raises(mayfly.BatchTimeout) as timeout:
        client.wait_batch(batch, timeout=0.2)
    assert timeout.value.batch.waiting == 1001
    with pytest.raises(mayfly.ApiError, match="could not complete the batch"):
        client.complete_batch(batch, 1000)
    assert client.complete_batch(batch, 1001).items == 1001


def test_what_can_not_be_sent_is_refused_before_it_is(client: Mayfly, tmp_path: Path) -> None:
    for spec, words in [
        (JobSpec(), "one of the two"),
        (JobSpec(source="", command=["true"]), "one of the two"),
        (JobSpec(command="true"), "list of words"),
        (JobSpec(source=tmp_path / "absent.py"), "No such file"),
        (JobSpec(source="\ud800"), "surrogates"),
        (JobSpec(source="", limits=Limits(wall=timedelta(microseconds=1))), "whole milliseconds"),
        (JobSpec(source="", not_before=datetime(2030, 1, 1)), "time zone"),
    ]:
        with pytest.raises(mayfly.UsageError, match=words):
            client.submit(spec)
    for thing in ("", "..", "019a2b3c"):
        with pytest.raises(mayfly.UsageError, match="no id"):
            client.get(thing)


def test_server_and_key_come_from_the_environment(
    connect: Connect, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text(server.key + "\n")
    monkeypatch.setenv("MAYFLY_CLIENT__SERVER", server.url + "/")
    monkeypatch.setenv("MAYFLY_CLIENT__KEY_FILE", os.fspath(tmp_path / "key"))
    assert connect().run("print(1)").ok


def test_threads_share_a_client(server: Server) -> None:
    with Mayfly(server.url, server.key, connections=2) as client, ThreadPoolExecutor(4) as threads:
        jobs = list(threads.map(lambda number: client.run(f"print({number})", check=True), range(4)))
    assert [job.stdout.text for job in jobs] == ["0\n", "1\n", "2\n", "3\n"]


def test_a_client_that_blocks_works_below_an_event_loop_too(server: Server) -> None:
    """As in a notebook, whose cells run in one."""

    async def cell() -> tuple[str, list[str]]:
        with Mayfly(server.url, server.key) as client:
            job = client.run("print(1)", check=True)
            events = [type(event).__name__ for event in client.stream(job)]
            assert next(client.list_jobs()).id
            return job.stdout.text, events

    text, events = asyncio.run(cell())
    assert text == "1\n" and events[-1] == "EndEvent"


UPLOADED = """import hashlib, os
for name in sorted(os.listdir('in')):
    print(name, hashlib.file_digest(open('in/' + name, 'rb'), 'sha256').hexdigest(), oct(os.stat('in/' + name).st_mode & 0o777))
"""


def test_a_file_is_uploaded_once_and_named_by_its_digest(client: Mayfly, tmp_path: Path) -> None:
    large = bytes(range(251)) * 20_000
    (tmp_path / "large.bin").write_bytes(large)
    upload = client.upload(tmp_path / "large.bin")
    assert upload.digest == f"sha256:{hashlib.sha256(large).hexdigest()}" and upload.bytes == len(large)
    assert upload.kept_at <= upload.used_at < upload.kept_until
    again = client.upload(large)
    assert (again.digest, again.kept_at) == (upload.digest, upload.kept_at)
    empty = client.upload(b"")
    assert [one.digest for one in client.list_uploads(page=1)] == [upload.digest, empty.digest]
    uploads: dict[str, str | Upload | Uploaded] = {
        "in/a": upload,
        "in/b": empty.digest,
        "in/c": Uploaded(upload.digest, mode="0600"),
    }
    job = client.run(JobSpec(source=UPLOADED, uploads=uploads), check=True)
    digest, nothing = upload.digest.removeprefix("sha256:"), hashlib.sha256(b"").hexdigest()
    assert job.stdout.text == f"a {digest} 0o644\nb {nothing} 0o644\nc {digest} 0o600\n"
    for one in (upload, empty.digest):
        client.remove_upload(one)
    with pytest.raises(mayfly.NotFound):
        client.remove_upload(upload)
    with pytest.raises(mayfly.Invalid) as refused:
        client.submit(JobSpec(source="pass", uploads={"a": upload}))
    assert refused.value.faults[0].code == "not_uploaded"
    with pytest.raises(UsageError, match="can't be read"):
        client.upload(tmp_path / "absent")
