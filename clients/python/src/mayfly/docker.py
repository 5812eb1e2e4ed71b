"""For programs that call `subprocess.run(["docker", "run", …])` so far: the same call, as a job.

`docker_run` takes what matters of it as arguments, `docker_argv` the whole command line. What such a sandbox has anyway
(`--rm`, `--network none`, `--read-only`, docs/limits.md) may be said and changes nothing; what it never has (`-v`,
`--privileged`, `--network host`) is refused with a word on what to do instead.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from ._blocking import Mayfly
from ._docker_flags import Flags, parse, refuse, size
from .errors import JobFailed, MayflyError, UsageError
from .job import Job
from .spec import Content, File, JobSpec, Limits

#: Exit code of `docker run` where the kernel killed the program for memory: 128 and the number of SIGKILL.
KILLED = 137
#: The same where the command can't be invoked.
NOT_INVOKED = 126
#: Added to the number of the signal that ended a program.
SIGNALED = 128


class DockerRun(subprocess.CompletedProcess[Any]):
    """What came of it, as `subprocess.run` has it; `job` has all the rest."""

    job: Job

    def __init__(self, args: list[str], returncode: int, stdout: str | bytes, stderr: str | bytes, job: Job) -> None:
        super().__init__(args, returncode, stdout, stderr)
        self.job = job


class OutputTruncated(MayflyError):
    """The program wrote more than is kept, so that its output is not there as `docker run` would have passed it on."""

    def __init__(self, job: Job, stream: str, written: int, kept: int) -> None:
        super().__init__(
            f"job {job.id}: {stream} has {written} bytes, of which {kept} are kept: ask for more with output_limit= (at most "
            "16m, as the policy goes by itself), or take head and tail with truncate=True"
        )
        self.job = job
        self.job_id = job.id


def docker_run(
    image: str,
    command: Sequence[str],
    *,
    stdin: Content | None = None,
    env: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    files: Mapping[str, Content | File] | None = None,
    memory: str | int | None = None,
    cpus: float | str | None = None,
    pids_limit: int | None = None,
    shm_size: str | int | None = None,
    labels: Mapping[str, str] | None = None,
    runtime: str | None = None,
    output_limit: str | int | None = None,
    timeout: float | None = None,
    text: bool = False,
    check: bool = False,
    truncate: bool = False,
    client: Mayfly | None = None,
    **refused: object,
) -> DockerRun:
    """Runs a command of an image, and has what `subprocess.run` has of it.

    Sizes are as docker has them (`"256m"`, or a number of bytes). `files` are put into `/work`, which is the working folder.
    `timeout` bounds the run, in seconds; without one the policy's default does (30 s, as it goes by itself). Output is
    bytes, or with `text` a text.

    Raises `subprocess.TimeoutExpired` and, with `check`, `subprocess.CalledProcessError`; JobFailed where the program did not end
    by itself for another reason (docs/outcomes.md); OutputTruncated unless `truncate`; UsageError for what no sandbox has.
    """
    for name, value in refused.items():
        refuse(name, value)
    limits = Limits(
        memory=size("memory", memory),
        cpu=cpus,
        pids=pids_limit,
        shm=size("shm_size", shm_size),
        stdout=size("output_limit", output_limit),
        stderr=size("output_limit", output_limit),
        wall=_wall(timeout),
    )
    job = JobSpec(
        image=image,
        command=_command(command),
        stdin=stdin,
        env=env or {},
        secrets=secrets or {},
        files=files or {},
        labels=labels or {},
        runtime=runtime,
        limits=limits,
    )
    return _run(job, [image, *command], client, timeout, text, check, truncate)


def docker_argv(
    argv: Sequence[str],
    *,
    input: Content | None = None,
    files: Mapping[str, Content | File] | None = None,
    secrets: Mapping[str, str] | None = None,
    output_limit: str | int | None = None,
    timeout: float | None = None,
    text: bool = False,
    check: bool = False,
    truncate: bool = False,
    client: Mayfly | None = None,
) -> DockerRun:
    """The same for a whole command line: `docker_argv(["docker", "run", "--rm", "-m", "64m", "python", "python3", "-V"])`."""
    flags = parse(argv, os.environ)
    job = JobSpec(
        image=flags.image,
        command=_command(flags.command),
        stdin=input,
        env=flags.env,
        secrets=secrets or {},
        files=files or {},
        labels=flags.labels,
        runtime=flags.runtime,
        limits=_limits(flags, size("output_limit", output_limit), timeout),
    )
    return _run(job, list(argv), client, timeout, text, check, truncate)


def _limits(flags: Flags, output: str | None, timeout: float | None) -> Limits:
    return Limits(
        memory=flags.memory,
        cpu=flags.cpus,
        pids=flags.pids_limit,
        shm=flags.shm_size,
        work=flags.work,
        tmp=flags.tmp,
        open_files=flags.open_files,
        stdout=output,
        stderr=output,
        wall=_wall(timeout),
    )


def _command(command: Sequence[str]) -> list[str]:
    if isinstance(command, str) or not command:
        raise UsageError(
            "command: a list of words, of which the first is a program of the image; what an image runs by itself is not "
            "known here"
        )
    return list(command)


def _wall(timeout: float | None) -> timedelta | None:
    return None if timeout is None else timedelta(milliseconds=round(timeout * 1000))


def _run(
    spec: JobSpec, args: list[str], client: Mayfly | None, timeout: float | None, text: bool, check: bool, truncate: bool
) -> DockerRun:
    with ExitStack() as stack:
        job = (client or stack.enter_context(Mayfly())).run(spec)
    stdout, stderr = (output.text if text else output.content for output in (job.stdout, job.stderr))
    if job.state == "timed_out":
        seconds = timeout if timeout is not None else (job.usage.wall_s if job.usage else 0.0)
        # subprocess.run has bytes there, whatever was asked for.
        raise subprocess.TimeoutExpired(args, seconds, job.stdout.content, job.stderr.content)
    done = DockerRun(args, _returncode(job), stdout, stderr, job)
    if not truncate:
        for name, output in (("stdout", job.stdout), ("stderr", job.stderr)):
            if output.truncated:
                raise OutputTruncated(job, name, output.written_bytes, len(output.content))
    if check:
        done.check_returncode()
    return done


def _returncode(job: Job) -> int:
    """The exit code that `docker run` would have had. Raises JobFailed where it would have had none of the program's."""
    if job.state == "out_of_memory":
        return KILLED
    if job.state not in ("succeeded", "failed"):
        raise JobFailed(job)
    if job.exit_code is not None:
        return job.exit_code
    return NOT_INVOKED if job.signal is None else SIGNALED + job.signal
