"""What stands between the network and the playground: an ASGI application around the playground's own.

The server has no password, and any page in the same browser can send requests to it. So a request is answered only when
it names this server: the *Host* must be ours, or a foreign name that was made to point at 127.0.0.1 (DNS rebinding)
could read everything; the *Origin*, where there is one, must be ours too; and what the browser itself says comes from
another site does not reach the API.

Sizes are bounded here, and so is the time that a body may take. A request whose client is gone is cancelled, and with it
whatever works for it. Nothing of a response is held back, so streams flow.

What is refused gets one sentence, as ``{"detail": ...}``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import Any, TypeAlias

from .. import _checks

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

TARGET = 8192  # bytes of path and query
BODY = 65_536  # bytes
BODY_SECONDS = 10.0  # for all of a body to arrive
LINGER = 1.0  # seconds for which the rest of a refused body is read
AT_ONCE = 200  # requests, streams included
METHODS = ("GET", "HEAD")
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

HEADERS = {
    b"content-security-policy": b"default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    b"script-src 'self'; connect-src 'self'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
}


class Denied(Exception):
    """A request that is not answered: its status and the sentence that says why."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail

    def response(self) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """The headers and the body."""
        body = json.dumps({"detail": self.detail}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        headers += [(b"connection", b"close"), *([(b"allow", ", ".join(METHODS).encode())] * (self.status == 405))]
        return headers, body

    async def tell(self, receive: Receive, send: Send) -> None:
        """The whole response, and then the end of the connection, for a body may still be on its way.

        What comes of it is thrown away for a moment: a connection that is closed with something unread is reset, and
        the client may lose the response.
        """
        headers, body = self.response()
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                while (await receive()).get("more_body"):
                    pass
        await send({"type": "http.response.body"})


class Hosts:
    """The names of this server: what a Host header may say, and after ``http://`` an Origin.

    A server that listens on every address is reached by any of them. A name could be made to point here, but a number
    cannot, so then every number will do.

    >>> hosts = Hosts("127.0.0.1", 8421)
    >>> "localhost:8421" in hosts, "localhost:80" in hosts, "rebound.example:8421" in hosts
    (True, False, False)
    >>> "192.168.0.7:8421" in Hosts("0.0.0.0", 8421), "192.168.0.7:8421" in hosts
    (True, False)
    """

    def __init__(self, host: str, port: int) -> None:
        self._port = f":{port}"
        names: Iterable[str] = {*LOOPBACK, _in_brackets(host).lower()}
        number = _number(host)
        self._any_number = number is not None and number.is_unspecified
        if self._any_number:
            names = {*names, socket.gethostname().lower()}
        self.names = sorted(name + self._port for name in names)
        self._known = {*self.names, *(names if port == 80 else ())}

    def __contains__(self, name: str) -> bool:
        name = name.lower()
        if name in self._known:
            return True
        head, found, _ = name.rpartition(self._port)
        return self._any_number and bool(found) and name.endswith(self._port) and _number(head.strip("[]")) is not None


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Guard:
    """The application around ``app`` that lets through what is addressed to one of ``hosts`` and is of a fair size."""

    def __init__(self, app: App, hosts: Hosts, at_once: int = AT_ONCE, body_seconds: float = BODY_SECONDS) -> None:
        self.app, self.hosts, self.at_once, self.body_seconds = app, hosts, at_once, body_seconds
        self.open = 0  # requests that are being answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; ASGI."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        send = _with_headers(send)
        self.open += 1
        try:
            self._check(scope)
            body = await self._body(receive)
            if body is not None:
                await _unless_gone(self.app, scope, body, receive, send)
        except Denied as denied:
            await denied.tell(receive, send)
        finally:
            self.open -= 1

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A web socket: no rule of the browser's keeps another site from opening one, so its Origin is all there is."""
        self.open += 1
        try:
            self._check({**scope, "method": "GET"})
            await self.app(scope, receive, send)
        except Denied as denied:
            await receive()
            headers, body = denied.response()
            await send({"type": "websocket.http.response.start", "status": denied.status, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": body})
        finally:
            self.open -= 1

    def _check(self, scope: Scope) -> None:
        headers: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value.decode("latin-1"))
        for host in headers.get(b"host", [""]):
            if host not in self.hosts:
                raise Denied(403, f"Host must be one of {', '.join(self.hosts.names)}, got {_checks.shown(host)}")
        for origin in headers.get(b"origin", []):
            if not (origin.startswith("http://") and origin[7:] in self.hosts):
                raise Denied(403, f"Origin must be this server's own, got {_checks.shown(origin)}")
        elsewhere = {"cross-site", "same-site"} & set(headers.get(b"sec-fetch-site", []))
        if scope["path"].startswith("/api") and elsewhere:
            raise Denied(
                403, "the API answers the playground's own page only, and this request comes from another site"
            )
        if self.open > self.at_once:
            raise Denied(503, f"the server answers at most {self.at_once} requests at a time; ask again in a moment")
        target = len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"]) + 1
        if target > TARGET:
            raise Denied(414, f"an address must have at most {TARGET} bytes, got {target}")
        if scope["method"] not in METHODS:
            raise Denied(405, f"the method must be GET or HEAD, got {_checks.shown(scope['method'])}")
        length = headers.get(b"content-length", ["0"])[0]
        if not length.isdecimal() or len(length) > 9 or int(length) > BODY:
            raise Denied(413, f"a body must have at most {BODY} bytes, got {_checks.shown(length)}")

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body, which is empty as a rule; None if the client left while it spoke."""
        body = b""
        try:
            async with asyncio.timeout(self.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += bytes(message.get("body", b""))
                    if len(body) > BODY:
                        raise Denied(413, f"a body must have at most {BODY} bytes, got more")
                    if not message.get("more_body"):
                        return body
        except TimeoutError:
            raise Denied(408, f"a body must be here after {self.body_seconds:g} s, got a part of it") from None


async def _unless_gone(app: App, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    """Run the application until it ends or its client does: then it is cancelled, and hears why if it asks."""
    unheard, all_said = [body], False
    gone = asyncio.ensure_future(_hang_up(receive))

    async def hear() -> Message:
        if unheard:
            return {"type": "http.request", "body": unheard.pop(), "more_body": False}
        await asyncio.shield(gone)
        return {"type": "http.disconnect"}

    async def say(message: Message) -> None:
        nonlocal all_said
        all_said = message["type"] == "http.response.body" and not message.get("more_body")
        await send(message)

    answering = asyncio.ensure_future(app(scope, hear, say))
    try:
        await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
        if all_said:  # to the server a complete response looks like a client that left; let the application tidy up
            await asyncio.wait((answering,))
    finally:  # reached also when the server cancels us
        for task in (answering, gone):
            task.cancel()
        await asyncio.wait((answering, gone))
    with suppress(asyncio.CancelledError):
        answering.result()


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _with_headers(send: Send) -> Send:
    """Add the headers of :data:`HEADERS` that a response does not set itself."""

    async def dressed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            present = {name.lower() for name, _ in headers}
            message = {**message, "headers": headers + [(k, v) for k, v in HEADERS.items() if k not in present]}
        await send(message)

    return dressed
