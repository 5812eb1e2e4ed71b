"""What is special about HTTP: keys, hosts and origins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from conftest import Home, Server, bearer, over_http, run, serve, text

pytestmark = pytest.mark.anyio

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def ask(server: Server, **headers: str) -> httpx2.Response:
    return httpx2.post(f"{server.url}/mcp", json=LIST, headers=ACCEPT | headers)


def test_a_valid_key_is_needed(server: Server) -> None:
    for headers in [{}, bearer("mayfly_1"), bearer(server.key[:-1] + ("0" if server.key[-1] != "0" else "1"))]:
        answer = ask(server, **headers)
        assert answer.status_code == 401
        assert answer.json()["code"] == "unauthenticated"
    assert ask(server, **bearer(server.key)).status_code == 200


def test_a_host_that_is_none_of_the_servers_is_refused(server: Server) -> None:
    for host, status in [("evil.example", 403), ("127.0.0.1.evil.example", 403), ("localhost", 200), ("127.0.0.1:1", 200)]:
        assert ask(server, **bearer(server.key), Host=host).status_code == status, host


def test_a_page_is_refused_unless_the_settings_name_it(server: Server) -> None:
    for origin, status in [
        ("https://evil.example", 403),
        ("https://app.example.evil.example", 403),
        ("http://app.example", 403),
        ("null", 403),
        (server.url, 403),
        ("https://app.example", 200),
    ]:
        answer = ask(server, **bearer(server.key), Origin=origin)
        assert answer.status_code == status, origin
        # Whatever it is, no page reads the answer of a server that names no page: there are no CORS headers.
        assert "access-control-allow-origin" not in answer.headers


def test_a_body_that_is_too_large_is_refused(server: Server) -> None:
    answer = httpx2.post(f"{server.url}/mcp", content=b" " * (5 << 20), headers=ACCEPT | bearer(server.key) | JSON)
    assert answer.status_code == 413


JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def stranger(server: Server) -> str:
    tenant = server.post("/v1/tenants", {"name": "strangers"})["tenant"]
    return server.key_of(tenant, "submitter")


@pytest.fixture(scope="module")
def own_tenant(server: Server) -> str:
    tenant: str = httpx2.get(f"{server.url}/v1/whoami", headers=bearer(server.key)).json()["tenant"]
    return tenant


async def test_another_tenants_job_is_not_there(server: Server, stranger: str) -> None:
    async with over_http(server.url, server.key, "auto") as client:
        result = await run(client, "print('secret')")
    job = result.structured_content["job"]
    async with over_http(server.url, stranger, "auto") as client:
        for tool in ["wait", "read_output", "list_artifacts", "get_artifact", "cancel"]:
            refused = await client.call_tool(tool, {"job": job})
            assert refused.is_error
            assert "secret" not in text(refused)
            assert refused.structured_content is None
        own = await run(client, "6 * 7")
    assert own.structured_content["stdout"] == "42\n"


async def test_a_key_may_do_no_more_here_than_elsewhere(server: Server, own_tenant: str) -> None:
    async with over_http(server.url, server.key_of(own_tenant, "viewer"), "auto") as client:
        refused = await run(client, "1")
    assert refused.is_error
    assert "may not do this" in text(refused)


@pytest.fixture
def without_mcp(home: Home) -> Iterator[Server]:
    yield from serve(home, MAYFLY_MCP__SERVE="false")


def test_there_is_no_route_where_the_settings_want_none(without_mcp: Any) -> None:
    answer = ask(without_mcp, **bearer(without_mcp.key))
    assert answer.status_code == 404
    assert answer.json()["code"] == "no_such_route"
