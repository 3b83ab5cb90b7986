"""The playground's server: its socket, limits on connections and requests, and checks of their origin.

:class:`Guard` is an ASGI application around the playground's. The server has no password, and any page in the same
browser can send requests to it. Therefore a request must be addressed to this server. The *Host* must be the server's,
or another name that points to 127.0.0.1 (DNS rebinding) could read everything. The *Origin*, if there is one, must be
the server's too. Requests that the browser marks as coming from another site do not reach the API.

The guard also limits sizes and the time that a body may take. If a client disconnects, its request and the work for it
are cancelled. Responses are not buffered, so streams work. A refusal is one sentence, as ``{"detail": ...}``.

uvicorn limits how long a connection may be idle *between* requests, but not how long headers may take, nor how long a
client may leave a response unread. :class:`Connection` limits both, so that a slow client cannot hold a connection.
(Web sockets that are not read end with uvicorn's pings.) Ctrl-C disconnects all clients, so no stream delays the end.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import socket
import sys
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, TypeAlias

from .. import _checks
from ..errors import BadInput, MissingExtra, stopping

try:
    import fastapi as _fastapi  # noqa: F401
    import h11
    import uvicorn
    import websockets as _websockets  # noqa: F401
    from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

    if find_spec("plotly") is None:  # only its files are used
        raise ImportError(name="plotly")
except ImportError as error:
    raise MissingExtra(f"the playground needs {error.name}; install it with: pip install 'safereplay[web]'") from None

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

TARGET = 8192  # bytes of path and query
BODY = 65_536  # bytes
BODY_SECONDS = 10.0  # for a whole body to arrive
LINGER = 1.0  # seconds during which the rest of a refused body is read
AT_ONCE = 200  # requests, streams included
METHODS = ("GET", "HEAD")
ENDLESS = ("/api/learn",)  # streams: HEAD would run them
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

HEADERS = {
    b"content-security-policy": b"default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    b"script-src 'self'; connect-src 'self'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
}


class Denied(Exception):
    """A refused request: its status and the sentence that says why."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail

    async def tell(self, receive: Receive, send: Send) -> None:
        """Send the whole response, and close the connection, since a body may still be arriving.

        The rest of the body is read and discarded for a moment: closing a connection with unread data resets it, and
        the client may lose the response.
        """
        headers, body = _refusal(self.status, self.detail)
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                while (await receive()).get("more_body"):
                    pass
        await send({"type": "http.response.body"})


def _refusal(status: int, detail: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """The headers and the body of a refusal."""
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    allow = [(b"allow", ", ".join(METHODS).encode())] if status == 405 else []
    return [*headers, (b"connection", b"close"), *allow], body


class Hosts:
    """The names of this server: the valid values of a Host header, and, after ``http://``, of an Origin.

    If the server listens on all addresses, any numeric address is valid: unlike a name, it cannot be redirected.

    >>> hosts = Hosts("127.0.0.1", 8421)
    >>> "localhost:8421" in hosts, "localhost:80" in hosts, "rebound.example:8421" in hosts
    (True, False, False)
    >>> "192.168.0.7:8421" in Hosts("0.0.0.0", 8421), "192.168.0.7:8421" in hosts
    (True, False)
    """

    def __init__(self, host: str, port: int) -> None:
        self._port = f":{port}"
        names: Iterable[str] = {*LOOPBACK, (f"[{host}]" if ":" in host else host).lower()}
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


class Guard:
    """The application around ``app`` that passes on requests addressed to one of ``hosts``, within the limits of size."""

    def __init__(self, app: App, hosts: Hosts, at_once: int = AT_ONCE, body_seconds: float = BODY_SECONDS) -> None:
        self.app, self.hosts, self.at_once, self.body_seconds = app, hosts, at_once, body_seconds
        self.open = 0  # requests that are being answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; ASGI."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        answer = self._socket if scope["type"] == "websocket" else self._request
        self.open += 1
        try:
            await answer(scope, receive, send)
        finally:
            self.open -= 1

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def dressed(message: Message) -> None:
            """Add the headers of :data:`HEADERS` that a response does not set itself."""
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                present = {name.lower() for name, _ in headers}
                message = {**message, "headers": headers + [(k, v) for k, v in HEADERS.items() if k not in present]}
            await send(message)

        try:
            self._check(scope)
            body = await self._body(receive)
            if body is not None:
                as_get = scope["method"] == "HEAD" and scope["path"] not in ENDLESS  # the server sends no body then
                asked = {**scope, "method": "GET"} if as_get else scope
                await _unless_gone(self.app, asked, body, receive, dressed)
        except Denied as denied:
            await denied.tell(receive, dressed)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A web socket. Browsers let any site open one, so its Origin is the only protection."""
        try:
            self._check({**scope, "method": "GET"})
            await self.app(scope, receive, send)
        except Denied as denied:
            await receive()
            headers, body = _refusal(denied.status, denied.detail)
            await send({"type": "websocket.http.response.start", "status": denied.status, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": body})

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
            raise Denied(403, "the API answers only the playground's page, and this request comes from another site")
        if self.open > self.at_once:
            raise Denied(503, f"the server answers at most {self.at_once} requests at a time; try again in a moment")
        target = len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"]) + 1
        if target > TARGET:
            raise Denied(414, f"an address must have at most {TARGET} bytes, got {target}")
        if scope["method"] not in METHODS:
            raise Denied(405, f"the method must be GET or HEAD, got {_checks.shown(scope['method'])}")
        length = headers.get(b"content-length", ["0"])[0]
        if not length.isdecimal() or len(length) > 9 or int(length) > BODY:
            raise Denied(413, f"a body must have at most {BODY} bytes, got {_checks.shown(length)}")

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body, usually empty; None if the client disconnected meanwhile."""
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
            raise Denied(408, f"a body must arrive within {self.body_seconds:g} s, got a part of it") from None


async def _unless_gone(app: App, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    """Run the application, and cancel it if its client disconnects; ``receive`` then says so."""
    unheard, all_said = [body], False

    async def hang_up() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def hear() -> Message:
        if unheard:
            return {"type": "http.request", "body": unheard.pop(), "more_body": False}
        await asyncio.shield(gone)
        return {"type": "http.disconnect"}

    async def say(message: Message) -> None:
        nonlocal all_said
        all_said = message["type"] == "http.response.body" and not message.get("more_body")
        await send(message)

    gone = asyncio.ensure_future(hang_up())
    answering = asyncio.ensure_future(app(scope, hear, say))
    try:
        await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
        if all_said:  # a complete response looks like a disconnect; let the application clean up
            await asyncio.wait((answering,))
    finally:  # also if the server cancels this request
        for task in (answering, gone):
            task.cancel()
        await asyncio.wait((answering, gone))
    with suppress(asyncio.CancelledError):
        answering.result()


PORT = 8421
NEIGHBOURS = 20  # ports that are tried if the default one is taken
HEADERS_SECONDS = 10.0  # for all headers of a request to arrive
UNREAD_SECONDS = 30.0  # that a client may leave a response unread
PARTING_SECONDS = 1  # for requests to end at shutdown; all are cancelled, so none should need it
HEADERS_SIZE = 16_384  # bytes
CONNECTIONS = 500
SAID = 1_024  # bytes of a message from a web socket's client, which need not send any


class Connection(H11Protocol):
    """One client's connection, with limits for slow clients."""

    _deadline: asyncio.TimerHandle | None = None  # for the headers of the next request
    _refused = False
    _unread: asyncio.TimerHandle | None = None  # while the client has not read all

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first request. Send at once: headers and body are two writes, 40 ms apart otherwise."""
        super().connection_made(transport)
        with suppress(OSError, AttributeError):  # asyncio does this only for sockets that name TCP themselves
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        """Read data; the timer runs from the first byte of a request until its headers are complete."""
        if not self._refused:
            super().data_received(data)
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and disconnect the request."""
        for timer in (self._deadline, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the timer: the client does not read."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the timer: the client has read all."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def shutdown(self) -> None:
        """Disconnect at shutdown, which ends a stream."""
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer data that is not HTTP; called while the parser's error is handled."""
        if getattr(sys.exception(), "error_status_hint", 400) == 431:
            self._refuse(431, f"headers must have at most {HEADERS_SIZE} bytes together, got more")
        else:
            self._refuse(400, "a request must be HTTP/1.1, got something else")

    def _expect_headers(self) -> None:
        waiting = self.conn.their_state is h11.IDLE and not self.transport.is_closing()
        if waiting and self._deadline is None:
            self._deadline = self.loop.call_later(HEADERS_SECONDS, self._late)
        elif not waiting and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        if self.conn.trailing_data[0]:
            self._refuse(408, f"headers must arrive within {HEADERS_SECONDS:g} s, got a part of them")
        else:
            self.transport.close()

    def _refuse(self, status: int, detail: str) -> None:
        """Refuse and close, unless a response is being sent."""
        if self.cycle is not None:
            self.cycle.disconnected = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers, body = _refusal(status, detail)
            response = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            if self.transport.can_write_eof():
                self.transport.write_eof()
        self._refused = True
        self._unread = self.loop.call_later(LINGER, self.transport.abort)  # see Denied.tell


class Server(uvicorn.Server):
    """uvicorn around a guarded application, with every bound set."""

    def __init__(self, app: App, host: str, port: int, announce: Callable[[], object] = lambda: None) -> None:
        config = uvicorn.Config(
            Guard(app, Hosts(host, port)),
            http=Connection,
            ws="websockets-sansio",
            ws_max_size=SAID,
            ws_per_message_deflate=False,
            lifespan="on",
            loop="asyncio",
            log_config=None,  # errors are one line on standard error; see logging.lastResort
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS,
            h11_max_incomplete_event_size=HEADERS_SIZE,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=PARTING_SECONDS,
        )
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and then announce the address."""
        await super().startup(sockets)
        self._announce()


def serve(host: str = "127.0.0.1", port: int | None = None, open_browser: bool = True) -> None:
    """Serve the playground until Ctrl-C, which is raised as KeyboardInterrupt once everything is closed.

    ``port`` None is the default port or the next free one, and 0 any free one. A given port that is taken is an error.
    Only this machine can reach the server, unless ``host`` is one of its addresses in a network.
    """
    from .app import create_app

    listener = listen(host, port)
    bound, number = listener.getsockname()[:2]
    ip = ipaddress.ip_address(bound)
    name = "localhost" if ip.is_unspecified else f"[{bound}]" if ":" in bound else bound
    address = f"http://{name}:{number}/"  # of the page, for a browser on this machine

    def announce() -> None:
        sys.stdout.write(f"The playground is at {address} (Ctrl-C ends it)\n")
        sys.stdout.flush()
        if open_browser:  # in a thread, since a browser may start slowly and outlive the server
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    if port is None and number != PORT:
        sys.stderr.write(f"safereplay: port {PORT} is taken; this is the next free one\n")
    if not ip.is_loopback:
        sys.stderr.write("safereplay: this page is open to the whole network, without a password\n")
    with listener, stopping(lambda: f"the playground at {address} is closed"):
        Server(create_app(), host, number, announce).run([listener])


def listen(host: str, port: int | None) -> socket.socket:
    """A listening socket, so that the address is taken before it is announced."""
    if port is not None:
        _checks.require(0 <= _checks.whole("port", port, 0) < 65_536, "port", "be below 65536", port)
    tried = [port] if port is not None else range(PORT, PORT + NEIGHBOURS)
    for number in tried:
        try:
            family, _, _, _, where = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
            both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
            return socket.create_server(where, family=family, backlog=2048, dualstack_ipv6=both)
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                _checks.fail("host", "be an address of this machine", host)
            if error.errno == errno.EACCES:
                _checks.fail("port", "be one that you may open", number, "those below 1024 are reserved")
            if error.errno != errno.EADDRINUSE:
                raise BadInput(f"cannot listen on {host} port {number}: {error.strerror}") from None
    return _checks.fail("port", "be free", f"{tried[0]} to {tried[-1]}, all taken" if port is None else port)
