"""The playground's server: its socket, its bounds on connections, and the browser that opens when it answers.

uvicorn speaks HTTP. It bounds how long a connection may be idle *between* requests, but neither how long the headers of
one may take nor how long a client may leave a response unread; :class:`Connection` adds both, so that no client can hold
a connection by being slow. (A web socket that nobody reads ends with uvicorn's pings.) Ctrl-C treats every client as gone, and what is cancelled then is what a vanished client
cancels: nothing waits for a stream to end.
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
from collections.abc import Callable

from .. import _checks
from ..errors import BadInput, MissingExtra, stopping

try:
    import fastapi as _fastapi  # noqa: F401
    import plotly as _plotly  # noqa: F401
    import uvicorn
    import websockets as _websockets  # noqa: F401
except ImportError as error:
    raise MissingExtra(f"the playground needs {error.name}; install it with: pip install 'safereplay[web]'") from None

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from .guards import LINGER, App, Guard, Hosts

PORT = 8421
NEIGHBOURS = 20  # ports after the usual one that are tried when it is taken
HEADERS_SECONDS = 10.0  # for all headers of a request to arrive
UNREAD_SECONDS = 30.0  # that a client may leave a response unread
PARTING_SECONDS = 1  # for requests to end when the server does; all are cancelled, so none should need them
HEADERS_SIZE = 16_384  # bytes
CONNECTIONS = 500
SAID = 1_024  # bytes of a message over a web socket: clients have nothing to say


class Connection(H11Protocol):
    """One client's connection, which cannot be held by being slow."""

    _deadline: asyncio.TimerHandle | None = None  # for the headers of the next request
    _refused = False
    _unread: asyncio.TimerHandle | None = None  # while more is written than read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request."""
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        """Read on; the clock runs from the first byte of a request until its headers are complete."""
        if not self._refused:
            super().data_received(data)
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client, and let its request know."""
        for timer in (self._deadline, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """More is written than read."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def shutdown(self) -> None:
        """The server ends, and with it every stream."""
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP; called while the parser's error is handled."""
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
            self._refuse(408, f"headers must be here after {HEADERS_SECONDS:g} s, got a part of them")
        else:
            self.transport.close()

    def _refuse(self, status: int, detail: str) -> None:
        """The last words on this connection, unless an answer is half-way through it."""
        if self.cycle is not None:
            self.cycle.disconnected = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"detail": detail}).encode()
            size = str(len(body)).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", size), (b"connection", b"close")]
            response = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            if self.transport.can_write_eof():
                self.transport.write_eof()
        self._refused = True
        self._unread = self.loop.call_later(LINGER, self.transport.abort)  # see guards.Denied.tell


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
            log_config=None,  # what goes wrong is one line on standard error; see logging.lastResort
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
        """Begin to answer, and then tell whoever waits for it."""
        await super().startup(sockets)
        self._announce()


def serve(host: str = "127.0.0.1", port: int | None = None, open_browser: bool = True) -> None:
    """Serve the playground until Ctrl-C, which is raised as KeyboardInterrupt once everything is closed.

    ``port`` None is the usual one or the next that is free, and 0 any. A port that was asked for and is taken is an
    error. Nothing but this machine can reach the server unless ``host`` is one of its addresses in a network.
    """
    from .app import create_app

    listener = listen(host, port)
    address, number = _address(listener), listener.getsockname()[1]

    def announce() -> None:
        sys.stdout.write(f"The playground is at {address} (Ctrl-C ends it)\n")
        sys.stdout.flush()
        if open_browser:  # in a thread, for a browser may take its time, and end after us
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    if port is None and number != PORT:
        sys.stderr.write(f"safereplay: port {PORT} is taken; this is the next free one\n")
    if not ipaddress.ip_address(listener.getsockname()[0]).is_loopback:
        sys.stderr.write("safereplay: this page is open to everybody in the network, and it asks for no password\n")
    with listener, stopping(lambda: f"the playground at {address} is closed"):
        Server(create_app(), host, number, announce).run([listener])


def listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens, so that the address is ours before anybody is told of it."""
    if port is not None:
        _checks.require(0 <= _checks.whole("port", port, 0) < 65_536, "port", "be below 65536", port)
    tried = [port] if port is not None else range(PORT, PORT + NEIGHBOURS)
    for number in tried:
        try:
            return _bound(host, number)
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                _checks.fail("host", "be an address of this machine", host)
            if error.errno == errno.EACCES:
                _checks.fail("port", "be one that you may open", number, "those below 1024 are reserved")
            if error.errno != errno.EADDRINUSE:
                raise BadInput(f"cannot listen on {host} port {number}: {error.strerror}") from None
    return _checks.fail("port", "be free", f"{tried[0]} to {tried[-1]}, all taken" if port is None else port)


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # there it would let two servers share one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(2048)  # a port can be bound twice, but not listened to
    except OSError:
        listener.close()
        raise
    return listener


def _address(listener: socket.socket) -> str:
    """Where a browser on this machine finds the page."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "localhost"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
