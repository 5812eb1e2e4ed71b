"""A proxy that cuts connections to a real server: what a network does to a client."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable
from urllib.parse import urlsplit


class Proxy:
    """Passes connections on to a server. `answers` says how many bytes of the answers each connection lets through, in
    their order; none, and every connection after the last of them: all."""

    def __init__(self, server: str, answers: Iterable[int | None]) -> None:
        parts = urlsplit(server)
        assert parts.hostname and parts.port
        self._target = (parts.hostname, parts.port)
        self._answers = iter(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        #: What clients have sent, by connection.
        self.requests: list[bytes] = []
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        # Wakes the thread that accepts, which closing alone does not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._ends:
            _end(end)
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            number = len(self.requests)
            self.requests.append(b"")
            server = socket.create_connection(self._target)
            self._ends += [client, server]
            limit = next(self._answers, None)
            for work in (
                threading.Thread(target=self._forth, args=(client, server, number)),
                threading.Thread(target=self._back, args=(client, server, limit)),
            ):
                self._threads.append(work)
                work.start()

    def _forth(self, client: socket.socket, server: socket.socket, number: int) -> None:
        try:
            while data := client.recv(65536):
                self.requests[number] += data
                server.sendall(data)
        except OSError:
            pass
        finally:
            _end(server)

    def _back(self, client: socket.socket, server: socket.socket, limit: int | None) -> None:
        passed = 0
        try:
            while data := server.recv(65536):
                part = data if limit is None else data[: limit - passed]
                client.sendall(part)
                passed += len(part)
                if len(part) < len(data):
                    return
        except OSError:
            pass
        finally:
            _end(client)
            _end(server)


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
