"""Where the server is, who asks, and whether a key may travel there.

Arguments come first, then the variables of the commands that ask a server (docs/cli.md): MAYFLY_CLIENT__SERVER,
MAYFLY_CLIENT__KEY or MAYFLY_CLIENT__KEY_FILE, MAYFLY_CLIENT__CA_FILE, MAYFLY_CLIENT__ALLOW_PLAIN_HTTP. The settings file
of the commands is not read.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .errors import UsageError

SERVER = "MAYFLY_CLIENT__SERVER"
KEY = "MAYFLY_CLIENT__KEY"
KEY_FILE = "MAYFLY_CLIENT__KEY_FILE"
CA_FILE = "MAYFLY_CLIENT__CA_FILE"
ALLOW_PLAIN_HTTP = "MAYFLY_CLIENT__ALLOW_PLAIN_HTTP"


class ApiKey:
    """What a client shows who it is by. Nothing prints it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        # It is not repeated: it may be a key with a typing error.
        if not text or not all("!" <= character <= "~" for character in text):
            raise UsageError("the API key holds characters that no key has: it is one line that begins with mayfly_")
        self._text = text

    def header(self) -> str:
        """The value of `Authorization`."""
        return f"Bearer {self._text}"

    def __repr__(self) -> str:
        return "ApiKey(…)"


@dataclass(frozen=True)
class Address:
    """A server, and the key that is for it."""

    #: The server's address, without a slash at its end.
    server: str
    key: ApiKey
    #: A file of certificates in PEM: these are trusted, and no others. None: those that Python trusts.
    ca_file: Path | None

    @property
    def is_plain(self) -> bool:
        """Whether what is sent there is not encrypted."""
        return self.server.startswith("http:")


def settle(
    server: str | None,
    key: str | None,
    ca_file: str | Path | None,
    allow_plain_http: bool | None,
    environment: Mapping[str, str] = os.environ,
) -> Address:
    """What arguments and environment come to.

    Raises UsageError where no server or no key is named, where a file can't be read, and where the key may not travel.
    """
    server = server or environment.get(SERVER)
    if not server:
        raise UsageError(f"no server is named: give server='https://…', or set {SERVER}")
    if allow_plain_http is None:
        allow_plain_http = _flag(environment, ALLOW_PLAIN_HTTP)
    ca_file = ca_file or environment.get(CA_FILE)
    return Address(
        server=_checked(server, allow_plain_http),
        key=ApiKey(key or _key(environment)),
        ca_file=Path(ca_file) if ca_file else None,
    )


def _key(environment: Mapping[str, str]) -> str:
    text, file = environment.get(KEY), environment.get(KEY_FILE)
    if text and file:
        raise UsageError(f"{KEY} and {KEY_FILE} are both set: leave one of them out")
    if text:
        return text
    if not file:
        raise UsageError(
            f"no API key is given: give key='mayfly_…', or set {KEY_FILE} to a file that holds it; an admin makes one "
            "with `mayfly key create`"
        )
    try:
        return Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        # No cause: what stands in the file might stand in it.
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"the file of {KEY_FILE}, {file}, can't be read: {reason}") from None


def _flag(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "false")
    if text not in ("true", "false"):
        raise UsageError(f"{name} is {text!r}: it can be true or false")
    return text == "true"


def _checked(text: str, allow_plain_http: bool) -> str:
    # Before anything is said of the text: it may hold a password.
    too_much = UsageError(
        "the address of the server holds a user, a password, a query or a fragment; the key is an argument of its own"
    )
    if "@" in text:
        raise too_much
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.query or parts.fragment:
        raise too_much
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"{text[:200]!r} is no address of a server: expected one such as https://mayfly.example.com")
    if parts.scheme == "http" and not allow_plain_http and not _is_this_host(host):
        raise UsageError(
            f"{host} is not this host, and over http:// everybody on the way to it reads the API key: use https://, or "
            "give allow_plain_http=True where the way there is safe by other means"
        )
    return text.rstrip("/")


def _is_this_host(host: str) -> bool:
    """Whether a host's name means the host itself, without asking anybody (RFC 6761, section 6.3, for `localhost`)."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
