"""`docker run` as a job: what is taken over, what is refused, and that it ends as `docker run` would have."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Server

import mayfly
from mayfly import Mayfly, docker_argv, docker_run
from mayfly._docker_flags import parse, size


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Mayfly]:
    with Mayfly(server.url, server.key) as client:
        yield client


def test_a_command_ends_as_subprocess_has_it(client: Mayfly) -> None:
    source = "import os, sys; print(sys.stdin.read(), os.environ['A'], open('f').read()); sys.exit(7)"
    done = docker_run(
        "python",
        ["python3", "-c", source],
        stdin="in",
        env={"A": "b"},
        files={"f": "file"},
        memory="64m",
        cpus=0.5,
        pids_limit=16,
        shm_size=1 << 20,
        timeout=10,
        text=True,
        rm=True,
        network="none",
        client=client,
    )
    assert isinstance(done, subprocess.CompletedProcess)
    assert (done.returncode, done.stdout, done.stderr) == (7, "in b file\n", "")
    assert done.args == ["python", "python3", "-c", source]
    in_force = done.job.raw["limits"]["in_force"]
    assert (in_force["memory"], in_force["cpu"], in_force["pids"], in_force["shm"]) == ("64MiB", "0.5", 16, "1MiB")
    with pytest.raises(subprocess.CalledProcessError, match="status 7"):
        done.check_returncode()


def test_a_command_line_is_taken_as_it_is(client: Mayfly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_HERE", "yes")
    argv = ["docker", "run", "--rm", "-i", "--network=none", "--read-only", "--cap-drop", "ALL", "--security-opt"]
    argv += ["no-new-privileges", "-m", "64m", "--memory-swap=64m", "--cpus", "0.5", "--pids-limit=16", "-eA=b=c", "-e"]
    argv += ["FROM_HERE", "-e", "ABSENT", "--tmpfs", "/work:size=4m,nosuid", "--tmpfs=/tmp:size=2m", "--ulimit"]
    argv += ["nofile=64:64", "--ulimit", "core=0", "-w", "/work", "-l", "x=y", "--entrypoint", "sh", "python", "-c"]
    argv += ["echo $A $FROM_HERE $ABSENT; cat; exit 3"]
    done = docker_argv(argv, input=b"in", client=client)
    assert (done.returncode, done.stdout, done.args) == (3, b"b=c yes\nin", argv)
    in_force = done.job.raw["limits"]["in_force"]
    assert (in_force["work"], in_force["tmp"], in_force["open_files"]) == ("4MiB", "2MiB", 64)
    assert done.job.labels == {"x": "y"}


def test_ends_are_those_of_docker_run(client: Mayfly) -> None:
    def ends(command: list[str], **options: Any) -> int:
        return docker_run("python", command, client=client, **options).returncode

    assert ends(["true"]) == 0
    assert ends(["sh", "-c", "kill -TERM $$"]) == 128 + 15
    assert ends(["no-such-program"]) == 126
    assert ends(["python3", "-c", "b = bytearray(10**9)\nfor i in range(0, 10**9, 4096): b[i] = 1"], memory="64m") == 137
    with pytest.raises(subprocess.TimeoutExpired) as expired:
        ends(["sh", "-c", "echo here; sleep 60"], timeout=2.0)
    assert (expired.value.timeout, expired.value.output) == (2.0, b"here\n")
    with pytest.raises(subprocess.CalledProcessError):
        ends(["false"], check=True)


def test_an_end_that_is_not_the_programs_own_is_no_exit_code(client: Mayfly) -> None:
    with pytest.raises(mayfly.JobFailed, match="rejected"):
        docker_run("python", ["true"], runtime="crun", client=client)


def test_output_that_is_not_all_there_is_not_passed_off_as_whole(client: Mayfly) -> None:
    command = ["python3", "-c", "print('x' * 5000)"]
    with pytest.raises(mayfly.OutputTruncated, match="5001 bytes, of which 1024 are kept: ask for more with output_limit="):
        docker_run("python", command, output_limit="1k", client=client)
    cut = docker_run("python", command, output_limit="1k", truncate=True, client=client)
    assert cut.returncode == 0 and len(cut.stdout) == 1024 and cut.job.stdout.truncated
    assert len(docker_run("python", command, output_limit="8k", client=client).stdout) == 5001


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-v", "/data:/data"], r"-v, --volume /data:/data: .*files="),
        (["--volume=/data:/data"], "files="),
        (["--mount", "type=bind"], "files="),
        (["--privileged"], "no job gets more rights"),
        (["--cap-add", "SYS_ADMIN"], "no job gets more rights"),
        (["--security-opt", "seccomp=unconfined"], "syscall filter"),
        (["--network", "host"], "--network host: a sandbox has no network"),
        (["--net=bridge"], "a sandbox has no network"),
        (["-p", "80:80"], "nothing connects to a sandbox"),
        (["-d"], r"client\.submit"),
        (["-it"], "no terminal"),
        (["-u", "0"], "user of its own"),
        (["--name", "x"], "labels="),
        (["--restart", "always"], "retry="),
        (["--pid=host"], "of its own|has its own"),
        (["--memory", "64m", "--memory-swap", "128m"], "no swap"),
        (["--tmpfs", "/run"], "/work and /tmp"),
        (["--ulimit", "nproc=3"], "limits of their own"),
        (["-w", "/srv"], "works in /work"),
        (["--no-such-flag", "x"], "--no-such-flag is not known here"),
        (["-m", "much"], "no size"),
    ],
)
def test_what_no_sandbox_has_is_refused_with_what_there_is_instead(flags: list[str], words: str) -> None:
    with pytest.raises(mayfly.UsageError, match=words):
        docker_argv(["docker", "run", *flags, "python", "true"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"volumes": ["/data:/data"]}, "files="),
        ({"v": "/data:/data"}, "files="),
        ({"privileged": True}, "no job gets more rights"),
        ({"network": "host"}, "a sandbox has no network"),
        ({"ports": {"80": 80}}, "nothing connects"),
        ({"cap_add": ["ALL"]}, "no job gets more rights"),
        ({"whatever": 1}, "is not known here"),
    ],
)
def test_arguments_are_refused_in_the_same_way(options: dict[str, Any], words: str) -> None:
    with pytest.raises(mayfly.UsageError, match=words):
        docker_run("python", ["true"], **options)


def test_command_lines_are_read_as_docker_reads_them() -> None:
    flags = parse(["/usr/bin/docker", "container", "run", "-itm64m".replace("t", ""), "--", "image", "--rm", "-v"], {})
    assert (flags.image, flags.command, flags.memory) == ("image", ["--rm", "-v"], "64MiB")
    for argv, words in [
        (["docker", "ps"], "docker', 'run"),
        (["docker", "run", "--rm"], "no image"),
        (["docker", "run", "-m"], "value"),
    ]:
        with pytest.raises(mayfly.UsageError, match=words):
            parse(argv, {})
    with pytest.raises(mayfly.UsageError, match="list of words"):
        docker_run("python", [])
    for given, expected in [
        ("64m", "64MiB"),
        ("1G", "1GiB"),
        ("512kb", "512KiB"),
        (4096, "4096B"),
        ("8b", "8B"),
        ("2MiB", "2MiB"),
    ]:
        assert size("memory", given) == expected  # type: ignore[arg-type]


def test_without_a_client_the_environment_says_where(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MAYFLY_CLIENT__SERVER", server.url)
    monkeypatch.setenv("MAYFLY_CLIENT__KEY", server.key)
    assert docker_run("python", ["echo", "1"]).stdout == b"1\n"
