"""A scripted model over HTTP: OpenAI's Chat Completions and Responses, as far as the frameworks need them.

It has the sandbox print a random number and answers with that number. It knows it from the tool's result alone.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SOURCE = "import secrets; print('nonce-' + secrets.token_hex(12))"
NONCE = re.compile(r"nonce-[0-9a-f]{24}")
NO_TOOL, NO_RESULT = "I have no tool.", "The tool printed no nonce."


class Model(ThreadingHTTPServer):
    """Where it listens is `url`; what it was sent is `requests`, by path and body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


@contextmanager
def model() -> Iterator[Model]:
    """One that serves until it is left."""
    with Model() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, asked))
        answers = {"/v1/chat/completions": chat_completion, "/v1/responses": response}
        if self.path not in answers or asked.get("stream"):
            return self._say(404, {"error": {"message": f"{self.path}: the scripted model has no such route, or no stream"}})
        return self._say(200, answers[self.path](asked))

    def _say(self, status: int, said: dict[str, Any]) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """The requests are kept instead."""


def turn(tools: set[str], results: list[Any]) -> tuple[str, dict[str, str]] | str:
    """What the model does next: a call, or an answer as text. `final_answer` is how smolagents is answered."""
    if "run_python" not in tools:
        answer = NO_TOOL
    elif not results:
        return "run_python", {"source": SOURCE}
    else:
        found = NONCE.search(json.dumps(results))
        answer = f"The sandbox says {found[0]}." if found else NO_RESULT
    return ("final_answer", {"answer": answer}) if "final_answer" in tools else answer


def chat_completion(asked: dict[str, Any]) -> dict[str, Any]:
    tools = {tool["function"]["name"] for tool in asked.get("tools") or []}
    # smolagents gives a result in a user's message.
    said = asked["messages"]
    results = [m["content"] for m in said if m["role"] == "tool" or (m["role"] == "user" and "Observation:" in str(m["content"]))]
    next_ = turn(tools, results)
    message: dict[str, Any] = {"role": "assistant", "content": next_ if isinstance(next_, str) else None}
    if not isinstance(next_, str):
        function = {"name": next_[0], "arguments": json.dumps(next_[1])}
        message["tool_calls"] = [{"id": f"call_{len(said)}", "type": "function", "function": function}]
    reason = "stop" if isinstance(next_, str) else "tool_calls"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": asked["model"], "choices": [choice], "usage": usage}


def response(asked: dict[str, Any]) -> dict[str, Any]:
    tools = {tool["name"] for tool in asked.get("tools") or []}
    given = asked["input"] if isinstance(asked["input"], list) else []
    next_ = turn(tools, [item["output"] for item in given if item.get("type") == "function_call_output"])
    item: dict[str, Any]
    if isinstance(next_, str):
        text = {"type": "output_text", "text": next_, "annotations": []}
        item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
    else:
        call = {"name": next_[0], "arguments": json.dumps(next_[1])}
        item = {"type": "function_call", "id": "f", "call_id": f"call_{len(given)}", "status": "completed", **call}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **details}
    return {
        "id": "r", "object": "response", "created_at": 1, "status": "completed", "model": asked["model"], "output": [item],
        "parallel_tool_calls": False, "tool_choice": "auto", "tools": [], "usage": usage,
    }  # fmt: skip
