"""OpenAI's own Python SDK through the gateway, unchanged but for its base URL (``uv sync --group e2e``)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from limpet import Limpet
from tests.integration.gateway.conftest import Start, gateway, limpet, upstreams
from tests.integration.gateway.upstream import STREAM_HEAD, Request, Upstream, answer, sse

__all__ = ["gateway", "limpet", "upstreams"]
pytestmark = pytest.mark.e2e
KEY = {"X-Limpet-Key": "telegram:dm:42"}


def response(number: int, status: str = "completed") -> dict[str, Any]:
    """A response object as the SDK parses it."""
    text = {"type": "output_text", "text": f"answer {number}", "annotations": []}
    message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": status, "content": [text]}
    fixed = {"object": "response", "created_at": 1, "model": "m", "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
    return {"id": f"resp_{number}", "status": status, "output": [message], **fixed}


def chunk(text: str | None, finish: str | None = None) -> str:
    """One chunk of a streamed chat completion."""
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}
    return json.dumps({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})


class Provider(Upstream):
    """OpenAI, as far as the SDK can tell."""

    def __init__(self) -> None:
        super().__init__("openai")
        self.behave = self.provide

    async def provide(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """By route, and by what the model's name asks for."""
        number = len(self.requests)
        if request.target == "/v1/models":
            writer.write(answer(200, b'{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"us"}]}'))
            return
        body = request.json
        model = body["model"]
        if model.isdigit():
            error = {"error": {"message": "no", "type": "invalid_request_error", "param": "model", "code": "bad_model"}}
            writer.write(answer(int(model), json.dumps(error).encode(), "application/json", "x-request-id: req_1"))
        elif model == "slow":
            writer.write(STREAM_HEAD + sse(chunk("one"))[0])
            await request.gone.wait()
        elif model == "broken":
            writer.write(STREAM_HEAD + sse(chunk("one"))[0])
            await writer.drain()
            writer.transport.abort()
        elif request.target == "/v1/responses" and body.get("stream"):
            delta = {"type": "response.output_text.delta", "item_id": "x", "output_index": 0, "content_index": 0, "delta": "hi"}
            events = [
                {"type": "response.created", "response": response(number, "in_progress"), "sequence_number": 0},
                {**delta, "sequence_number": 1, "logprobs": []},
                {"type": "response.completed", "response": response(number), "sequence_number": 2},
            ]
            writer.write(STREAM_HEAD)
            for event in events:
                data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
                writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            writer.write(b"0\r\n\r\n")
        elif request.target == "/v1/responses":
            writer.write(answer(200, json.dumps(response(number)).encode()))
        elif body.get("stream"):
            writer.write(STREAM_HEAD)
            for each in sse(chunk("hello "), chunk("world"), chunk(None, "stop"), "[DONE]"):
                writer.write(each)
                await writer.drain()
            writer.write(b"0\r\n\r\n")
        else:
            message = {"role": "assistant", "content": "hello world"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            fields = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
            writer.write(answer(200, json.dumps(fields).encode(), "application/json", "x-request-id: req_1"))


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    """The provider."""
    one = Provider()
    await one.start()
    yield one
    await one.stop()


@pytest.fixture
async def sdk(gateway: Start, provider: Provider) -> AsyncIterator[openai.AsyncOpenAI]:
    """The SDK before a gateway before the provider."""
    gate = await gateway(provider)
    client = openai.AsyncOpenAI(base_url=f"{gate.url}/v1", api_key="sk-upstream", max_retries=0, default_headers=KEY)
    async with client:
        yield client


async def bound(limpet: Limpet) -> bool:
    """Whether the conversation is bound."""
    state = await limpet.peek(KEY["X-Limpet-Key"])
    return state is not None and state.binding is not None


async def test_chat(sdk: openai.AsyncOpenAI, provider: Provider) -> None:
    """Chat, streamed and not, and the list of models."""
    messages: Any = [{"role": "user", "content": "hi"}]
    got = await sdk.chat.completions.create(model="m", messages=messages)
    assert got.choices[0].message.content == "hello world"
    assert got._request_id == "req_1"
    stream = await sdk.chat.completions.create(model="m", messages=messages, stream=True)
    assert "".join([part.choices[0].delta.content or "" async for part in stream]) == "hello world"
    assert [model.id async for model in sdk.models.list()] == ["m"]
    turns = [request for request in provider.requests if request.method == "POST"]
    assert len({request.json["prompt_cache_key"] for request in turns}) == 1
    assert {request.headers["authorization"] for request in provider.requests} == {"Bearer sk-upstream"}
    assert not any(b"telegram" in request.raw for request in provider.requests)


async def test_responses(sdk: openai.AsyncOpenAI, provider: Provider) -> None:
    """Responses, chained by the SDK's previous_response_id alone, streamed and not, are one conversation."""
    keyless = openai.AsyncOpenAI(base_url=sdk.base_url, api_key="sk-upstream", max_retries=0)
    async with keyless:
        first = await keyless.responses.create(model="m", input="hi")
        assert first.output_text == "answer 1"
        stream = await keyless.responses.create(model="m", input="more", previous_response_id=first.id, stream=True)
        events = [event async for event in stream]
        assert events[0].type == "response.created"
        last: Any = events[-1]
        third = await keyless.responses.create(model="m", input="again", previous_response_id=last.response.id)
    assert third.output_text == "answer 3"
    assert len({request.json["prompt_cache_key"] for request in provider.requests}) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("400", openai.BadRequestError),
        ("401", openai.AuthenticationError),
        ("404", openai.NotFoundError),
        ("429", openai.RateLimitError),
        ("500", openai.InternalServerError),
    ],
)
async def test_errors(sdk: openai.AsyncOpenAI, status: str, kind: type[openai.APIStatusError]) -> None:
    """The provider's errors arrive as the SDK's own types, with their code."""
    with pytest.raises(kind) as caught:
        await sdk.chat.completions.create(model=status, messages=[{"role": "user", "content": "hi"}])
    assert (caught.value.code, caught.value.request_id) == ("bad_model", "req_1")


async def test_our_errors(sdk: openai.AsyncOpenAI, provider: Provider) -> None:
    """The gateway's own errors are the SDK's types too, and say what is wrong."""
    with pytest.raises(openai.BadRequestError, match="256 bytes") as caught:
        await sdk.chat.completions.create(model="m", messages=[], extra_headers={"X-Limpet-Key": "x" * 300})
    assert caught.value.code == "invalid_request"
    await provider.stop()
    with pytest.raises(openai.InternalServerError) as down:
        await sdk.chat.completions.create(model="m", messages=[])
    assert down.value.code == "upstream_unreachable"


async def test_broken_stream(sdk: openai.AsyncOpenAI) -> None:
    """A stream that breaks raises, after what was complete."""
    stream = await sdk.chat.completions.create(model="broken", messages=[], stream=True)
    parts = aiter(stream)
    assert (await anext(parts)).choices[0].delta.content == "one"
    with pytest.raises(openai.APIError, match="went away"):
        await anext(parts)


async def test_cancellation(sdk: openai.AsyncOpenAI, provider: Provider, limpet: Limpet) -> None:
    """Closing the SDK's stream reaches the provider; so does cancelling a request that has no answer yet."""
    stream = await sdk.chat.completions.create(model="slow", messages=[], stream=True)
    await anext(aiter(stream))
    await stream.close()
    await asyncio.wait_for(provider.requests[0].gone.wait(), 5)
    assert await bound(limpet)
