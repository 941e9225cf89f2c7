"""The sample upstream of ``docker-compose.yml``: what a client of OpenAI's API is answered, and who says so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from limpet.demo import echo

CHAT = {"model": "m", "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello there"}]}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(echo.application("one"))
    async with httpx.AsyncClient(transport=transport, base_url="http://echo") as client:
        yield client


def events(text: str) -> list[Any]:
    """The JSON documents of an event stream, without its end mark."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


async def test_a_completion_says_who_served_and_what_was_stamped(client: httpx.AsyncClient) -> None:
    """The last text comes back; the scope is shown, and of headers that could hold a key only the name."""
    answer = await client.post(
        "/v1/chat/completions", json=CHAT | {"prompt_cache_key": "gwk_1"}, headers={"X-Session-ID": "+336555"}
    )
    body = answer.json()
    assert (answer.headers["x-served-by"], body["served_by"]) == ("one", "one")
    assert body["choices"][0]["message"]["content"] == "one heard: hello there"
    assert body["received"] == {"prompt_cache_key": "gwk_1", "headers": ["x-session-id"]}
    assert "336555" not in answer.text


async def test_a_chat_is_streamed(client: httpx.AsyncClient) -> None:
    """Word by word, each chunk says who served, and the stream is ended as clients expect."""
    answer = await client.post("/v1/chat/completions", json=CHAT | {"stream": True})
    chunks = events(answer.text)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "".join(each["choices"][0]["delta"].get("content", "") for each in chunks).strip() == "one heard: hello there"
    assert {(each["served_by"], each["object"]) for each in chunks} == {("one", "chat.completion.chunk")}
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert answer.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("asked", ["hello there", [{"role": "user", "content": "hello there"}]])
async def test_a_response_is_whole_or_streamed(client: httpx.AsyncClient, asked: object) -> None:
    """The Responses API, with an input of both kinds; ids differ, so that chains can be told apart."""
    whole = (await client.post("/v1/responses", json={"model": "m", "input": asked})).json()
    assert whole["output"][0]["content"][0]["text"] == "one heard: hello there"
    streamed = events((await client.post("/v1/responses", json={"model": "m", "input": asked, "stream": True})).text)
    assert [streamed[0]["type"], streamed[-1]["type"]] == ["response.created", "response.completed"]
    assert "".join(each.get("delta", "") for each in streamed).strip() == "one heard: hello there"
    assert whole["id"] != streamed[-1]["response"]["id"]


async def test_a_text_completion_is_whole_or_streamed(client: httpx.AsyncClient) -> None:
    """The old API, with a prompt that is no text repeated as JSON."""
    whole = (await client.post("/v1/completions", json={"prompt": "hello"})).json()
    assert (whole["object"], whole["choices"][0]["text"]) == ("text_completion", "one heard: hello")
    streamed = events((await client.post("/v1/completions", json={"prompt": [[1, 2]], "stream": True})).text)
    assert "".join(each["choices"][0]["text"] for each in streamed).strip() == "one heard: [1,2]"


@pytest.mark.parametrize("body", [b"{", b"[1]", b""])
async def test_what_is_no_object_is_refused(client: httpx.AsyncClient, body: bytes) -> None:
    """With 400 and the shape of OpenAI's errors."""
    answer = await client.post("/v1/chat/completions", content=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_probes(client: httpx.AsyncClient) -> None:
    """It says that it lives, and which model it has."""
    assert (await client.get("/livez")).status_code == 200
    assert (await client.get("/v1/models")).json()["data"][0]["id"] == "echo"


def test_the_command_line_names_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options reach the server; a graceful end is 0."""
    seen: list[Any] = []
    monkeypatch.setattr(echo.uvicorn.Server, "run", lambda self: seen.append(self.config))
    assert echo.main(["--name", "two", "--host", "127.0.0.1", "--port", "1"]) == 0
    (config,) = seen
    assert (config.host, config.port, config.timeout_graceful_shutdown) == ("127.0.0.1", 1, echo.GRACE_S)
