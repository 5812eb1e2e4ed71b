"""The flags of `docker run`: what a job takes of them, what is so anyway, and what there is instead of the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .errors import UsageError

_SHORT = {
    "a": "attach",
    "d": "detach",
    "e": "env",
    "h": "hostname",
    "i": "interactive",
    "l": "label",
    "m": "memory",
    "P": "publish-all",
    "p": "publish",
    "q": "quiet",
    "t": "tty",
    "u": "user",
    "v": "volume",
    "w": "workdir",
}
#: Flags that take no word after them.
_SWITCHES = {"rm", "interactive", "init", "read-only", "quiet", "privileged", "detach", "tty", "publish-all", "oom-kill-disable"}

#: What every sandbox is anyway, by the values that say so; none: any value does (docs/limits.md).
_ANYWAY: Mapping[str, frozenset[str] | None] = {
    "rm": None,
    "interactive": None,
    "init": None,
    "read-only": None,
    "quiet": None,
    "attach": None,
    "cap-drop": None,
    "stop-timeout": None,
    "network": frozenset({"none"}),
    "security-opt": frozenset({"no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"}),
    "log-driver": frozenset({"none"}),
    "ipc": frozenset({"private", "none"}),
    "cgroupns": frozenset({"private"}),
    "pull": frozenset({"never", "missing"}),
    "restart": frozenset({"no"}),
    "workdir": frozenset({"/work"}),
}

_NO_PATHS = (
    "a sandbox sees no path of a host: give what the program reads with files={…}, which puts it into /work, and read stdout"
)
_NO_RIGHTS = "no job gets more rights than any other: a program that needs them can't run here"
_NO_NETWORK = "a sandbox has no network: fetch what the program needs beforehand, and give it with files={…}"
_OWN = "each sandbox has its own, and nothing else"

#: What there is instead.
_INSTEAD: Mapping[str, str] = {
    "volume": _NO_PATHS,
    "mount": _NO_PATHS,
    "volumes-from": _NO_PATHS,
    "volume-driver": _NO_PATHS,
    "env-file": "read the file, and give its variables with env={…}, or with secrets={…} what is not to be shown",
    "privileged": _NO_RIGHTS,
    "cap-add": _NO_RIGHTS,
    "device": _NO_RIGHTS,
    "gpus": _NO_RIGHTS,
    "group-add": _NO_RIGHTS,
    "sysctl": _NO_RIGHTS,
    "security-opt": "each sandbox has our syscall filter and no new privileges, and no job changes that",
    "user": "each sandbox has a user of its own, who is not root",
    "network": _NO_NETWORK,
    "link": _NO_NETWORK,
    "dns": _NO_NETWORK,
    "add-host": _NO_NETWORK,
    "publish": "nothing connects to a sandbox: give the program its input with stdin or files={…}, and read stdout",
    "publish-all": "nothing connects to a sandbox: give the program its input with stdin or files={…}, and read stdout",
    "expose": "nothing connects to a sandbox: give the program its input with stdin or files={…}, and read stdout",
    "detach": "client.submit(…) returns at once, and client.wait(…) has the end",
    "tty": "there is no terminal in a sandbox: leave it out",
    "name": "a job has an id; labels={'name': '…'} lets list_jobs find it",
    "hostname": _OWN,
    "pid": _OWN,
    "ipc": _OWN,
    "uts": _OWN,
    "userns": _OWN,
    "cgroupns": _OWN,
    "cgroup-parent": _OWN,
    "restart": "JobSpec(retry=Retry(max_attempts=…)) says when a job is tried again",
    "pull": "images are pinned by an admin, with `mayfly image pin`, and never pulled for a job",
    "platform": "an image is of one platform, which was chosen when it was pinned",
    "workdir": "a job works in /work, where files={…} are put",
    "log-driver": "what a job writes is kept in its record, and nowhere else",
    "memory-swap": "there is no swap: it can be what --memory is, or be left out",
    "oom-kill-disable": "who has used up its memory is ended",
    "ulimit": "of these a job may ask for nofile=…; there are no core dumps, and pids and memory have limits of their own",
    "tmpfs": "/work and /tmp are such file systems already, and the only ones: --tmpfs /work:size=64m says how large",
}
#: Other names of the same, as keyword arguments may have them.
_ALIASES = {"net": "network", "volumes": "volume", "mounts": "mount", "devices": "device", "ports": "publish", "port": "publish"}

_SIZE = re.compile(r"(\d+)([bkmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": "B", "b": "B", "k": "KiB", "m": "MiB", "g": "GiB", "t": "TiB"}


@dataclass
class Flags:
    """A command line of `docker run`, as far as a job has it."""

    image: str = ""
    command: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    entrypoint: str | None = None
    memory: str | None = None
    memory_swap: str | None = None
    cpus: str | None = None
    pids_limit: int | None = None
    shm_size: str | None = None
    work: str | None = None
    tmp: str | None = None
    open_files: int | None = None
    runtime: str | None = None


def refuse(name: str, value: object = True) -> None:
    """Raises UsageError for what a sandbox is not, with what there is instead.

    What it is anyway passes, and so does what is not asked for.
    """
    flag = name.replace("_", "-")
    flag = _ALIASES.get(flag, _SHORT.get(flag, flag))
    if value is None or value is False or (flag in _ANYWAY and _is_anyway(flag, str(value))):
        return
    if flag not in _INSTEAD:
        raise UsageError(f"{_shown(flag)} is not known here: JobSpec has all that a job can ask for")
    given = "" if value is True else f" {value}"
    raise UsageError(f"{_shown(flag)}{given}: {_INSTEAD[flag]}")


def size(name: str, value: str | int | None) -> str | None:
    """A size as the API has it, of one as docker has it: `256m`, `1g`, a number of bytes."""
    if value is None:
        return None
    found = _SIZE.fullmatch(str(value).strip())
    if found is None:
        raise UsageError(f"{name}: {value!r} is no size: expected one such as '256m' or '1g'")
    return found[1] + _UNITS[found[2].lower()]


def parse(argv: Sequence[str], environment: Mapping[str, str]) -> Flags:
    """Reads `docker run FLAGS IMAGE COMMAND…`. `-e NAME` takes our own variable, as docker does."""
    words = list(argv)
    for expected in (("docker", "podman"), ("container",), ("run",)):
        if words and words[0].rsplit("/", 1)[-1] in expected:
            words.pop(0)
        elif expected == ("run",):
            raise UsageError("argv: expected ['docker', 'run', …]; other commands of docker have no counterpart here")
    flags = Flags()
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        for name, value in _split(word, words):
            _take(flags, name, value, environment)
    if not words:
        raise UsageError("argv: it names no image")
    flags.image, *flags.command = words
    if flags.entrypoint:
        flags.command.insert(0, flags.entrypoint)
    if flags.memory_swap is not None and flags.memory_swap != flags.memory:
        refuse("memory-swap", flags.memory_swap)
    return flags


def _split(word: str, rest: list[str]) -> list[tuple[str, str]]:
    """The flags of one word, each with its value; those that stand in the next word are taken from there."""
    if word.startswith("--"):
        name, has_value, value = word[2:].partition("=")
        name = _ALIASES.get(name, name)
        if not has_value:
            value = "true" if name in _SWITCHES else _next(word, rest)
        return [(name, value)]
    found: list[tuple[str, str]] = []
    letters = word[1:]
    while letters:
        name = _SHORT.get(letters[0], letters[0])
        letters = letters[1:]
        if name in _SWITCHES:
            found.append((name, "true"))
            continue
        found.append((name, letters.removeprefix("=") or _next(word, rest)))
        break
    return found


def _next(word: str, rest: list[str]) -> str:
    if not rest:
        raise UsageError(f"argv: {word} needs a value, or is not known here")
    return rest.pop(0)


def _take(flags: Flags, name: str, value: str, environment: Mapping[str, str]) -> None:
    if name in _TAKEN:
        _TAKEN[name](flags, value)
    elif name == "env":
        variable, has_value, text = value.partition("=")
        # As docker: a variable that is not set here is none there.
        if has_value or variable in environment:
            flags.env[variable] = text if has_value else environment[variable]
    elif name in _SWITCHES:
        refuse(name, value != "false")
    else:
        refuse(name, value)


def _number(name: str, value: str) -> int:
    if not value.isdecimal():
        raise UsageError(f"--{name} {value}: expected a number")
    return int(value)


def _label(flags: Flags, value: str) -> None:
    name, _, text = value.partition("=")
    flags.labels[name] = text


def _tmpfs(flags: Flags, value: str) -> None:
    path, _, options = value.partition(":")
    sizes = [option.removeprefix("size=") for option in options.split(",") if option.startswith("size=")]
    if path not in ("/work", "/tmp"):  # noqa: S108 - a path of the sandbox
        refuse("tmpfs", value)
    if sizes:
        setattr(flags, path.strip("/"), size("--tmpfs", sizes[-1]))


def _ulimit(flags: Flags, value: str) -> None:
    name, _, number = value.partition("=")
    if name == "nofile":
        flags.open_files = _number("ulimit", number.partition(":")[0])
    elif value not in ("core=0", "core=0:0"):
        refuse("ulimit", value)


def _sized(attribute: str) -> Callable[[Flags, str], None]:
    flag = "--" + attribute.replace("_", "-")
    return lambda flags, value: setattr(flags, attribute, size(flag, value))


_TAKEN: Mapping[str, Callable[[Flags, str], None]] = {
    "memory": _sized("memory"),
    "memory-swap": _sized("memory_swap"),
    "shm-size": _sized("shm_size"),
    "cpus": lambda flags, value: setattr(flags, "cpus", value),
    "pids-limit": lambda flags, value: setattr(flags, "pids_limit", _number("pids-limit", value)),
    "runtime": lambda flags, value: setattr(flags, "runtime", value),
    "entrypoint": lambda flags, value: setattr(flags, "entrypoint", value),
    "label": _label,
    "tmpfs": _tmpfs,
    "ulimit": _ulimit,
}


def _is_anyway(flag: str, value: str) -> bool:
    values = _ANYWAY[flag]
    return values is None or value in values


def _shown(flag: str) -> str:
    short = next((letter for letter, name in _SHORT.items() if name == flag), None)
    return f"-{short}, --{flag}" if short else f"--{flag}"
