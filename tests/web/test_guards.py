"""What is let through and what is refused, over real sockets."""

import asyncio
import json
import socket

import httpx
import pytest
from waiting import END, wait_until

pytest.importorskip("uvicorn", reason="the playground needs the extra web")

from fastapi import FastAPI
from fastapi.responses import Response, StreamingResponse

from safereplay.web import serving
from safereplay.web.serving import HEADERS, Guard, Hosts


def small_app():
    """A page, an API, a stream, and a question that takes for ever; it keeps count of what goes on.

    The stream says a word for each release of ``more``; what follows a response begins when ``heard`` is set.
    """
    app = FastAPI()
    app.state.working, app.state.tidied = 0, 0
    app.state.more, app.state.heard = asyncio.Semaphore(0), asyncio.Event()

    @app.get("/")
    async def page():
        return Response("page")

    @app.get("/api/echo")
    async def echo(text: str = ""):
        return {"text": text}

    @app.get("/own")
    async def own():
        return Response("own", headers={"Content-Security-Policy": "default-src 'none'"})

    @app.get("/api/stream")
    async def stream():
        async def ticks():
            app.state.working += 1
            try:
                while await app.state.more.acquire():
                    yield b"data: " + b"x" * 1000 + b"\n\n"
            finally:
                app.state.working -= 1

        return StreamingResponse(ticks(), media_type="text/event-stream")

    @app.get("/api/ages")
    async def ages():
        app.state.working += 1
        try:
            await asyncio.Event().wait()
        finally:
            app.state.working -= 1

    @app.get("/api/tidy")
    async def tidy():
        async def later():
            await app.state.heard.wait()
            app.state.tidied += 1

        from starlette.background import BackgroundTask

        return Response("said", background=BackgroundTask(later))

    return app


@pytest.fixture
def app():
    return small_app()


@pytest.fixture
def site(app, serve_in_thread):
    return serve_in_thread(app)


def ask(site, path="/", method="GET", **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.request(method, site.url + path, headers=names, timeout=END)


def refusal(answer):
    """The status and the one sentence."""
    content = answer.json()
    assert list(content) == ["detail"]
    assert "\n" not in content["detail"]
    return answer.status_code, content["detail"]


def raw(site, request):
    """All that the server sends for these bytes, until it closes."""
    with socket.create_connection(("127.0.0.1", site.port), timeout=END) as client:
        client.sendall(request)
        found = b""
        while part := client.recv(65536):
            found += part
        return found


# -- names ----------------------------------------------------------------------------------------------------------------


def test_its_own_names_are_let_through(site):
    for name in ("127.0.0.1", "localhost", "LocalHost", "[::1]"):
        assert ask(site, Host=f"{name}:{site.port}").text == "page"
        assert ask(site, "/api/echo", Origin=f"http://{name}:{site.port}".lower()).status_code == 200


@pytest.mark.parametrize(
    "name",
    [
        "rebound.example",
        "rebound.example:{}",
        "127.0.0.1",
        "localhost:1",
        "127.0.0.1.nip.example:{}",
        "",
        "x@localhost:{}",
    ],
)
def test_a_foreign_host_is_refused(site, name):
    status, sentence = refusal(ask(site, Host=name.format(site.port)))
    assert status == 403
    assert sentence.startswith(f"Host must be one of 127.0.0.1:{site.port}, ")
    assert sentence.endswith(f"got {name.format(site.port)!r}")


def test_a_request_without_a_host_is_refused(site):
    head, _, body = raw(site, b"GET / HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 ")
    assert json.loads(body)["detail"].endswith("got ''")


@pytest.mark.parametrize(
    "origin", ["http://rebound.example", "null", "https://localhost:{}", "http://localhost:1", "", "http://"]
)
@pytest.mark.parametrize("path", ["/", "/api/echo", "/no/such/page"])
def test_a_foreign_origin_is_refused(site, origin, path):
    status, sentence = refusal(ask(site, path, Origin=origin.format(site.port)))
    assert (status, sentence) == (403, f"Origin must be this server's own, got {origin.format(site.port)!r}")


@pytest.mark.parametrize("foreign_first", [True, False])
def test_an_origin_of_ours_does_not_hide_a_foreign_one(site, foreign_first):
    origins = [b"Origin: http://rebound.example", f"Origin: {site.url}".encode()]
    lines = [b"GET / HTTP/1.1", f"Host: 127.0.0.1:{site.port}".encode(), *origins[:: 1 if foreign_first else -1]]
    assert raw(site, b"\r\n".join([*lines, b"Connection: close", b"", b""])).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("place", ["cross-site", "same-site"])
def test_another_site_may_link_to_the_page_but_not_ask_the_api(site, place):
    assert ask(site, "/", Sec_Fetch_Site=place).text == "page"
    status, sentence = refusal(ask(site, "/api/echo", Sec_Fetch_Site=place))
    assert status == 403
    assert "another site" in sentence
    for ours in ("same-origin", "none"):
        assert ask(site, "/api/echo", Sec_Fetch_Site=ours).status_code == 200


def test_a_server_on_every_address_goes_by_any_number_but_not_by_any_name():
    for everywhere in ("0.0.0.0", "::"):  # noqa: S104
        hosts = Hosts(everywhere, 8421)
        assert "10.1.2.3:8421" in hosts
        assert "[fe80::1]:8421" in hosts
        assert f"{socket.gethostname()}:8421" in hosts
        for name in ("rebound.example:8421", "10.1.2.3:80", "10.1.2.3", "10.1.2.3.example:8421", ":8421"):
            assert name not in hosts


def test_a_server_that_was_given_a_name_goes_by_it():
    assert "box.lan:8421" in Hosts("Box.lan", 8421)
    assert "[fe80::1]:8421" in Hosts("fe80::1", 8421)
    assert "localhost" in Hosts("127.0.0.1", 80)  # browsers leave the usual port out


# -- sizes ----------------------------------------------------------------------------------------------------------------


def test_an_address_may_have_8_kb_and_no_more(site):
    room = serving.TARGET - len("/api/echo?text=")
    assert ask(site, "/api/echo?text=" + "x" * room).status_code == 200
    assert refusal(ask(site, "/api/echo?text=" + "x" * (room + 1))) == (
        414,
        "an address must have at most 8192 bytes, got 8193",
    )
    assert refusal(ask(site, "/" + "x" * 9000))[0] == 414


def test_headers_without_end_are_refused(site):
    found = raw(site, b"GET / HTTP/1.1\r\nX: " + b"x" * 1_000_000)
    head, _, body = found.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert json.loads(body) == {"detail": "headers must have at most 16384 bytes together, got more"}


def test_a_body_may_have_64_kb_and_no_more(site):
    assert httpx.request("GET", site.url, content=b"x" * serving.BODY, timeout=END).text == "page"
    for size in (serving.BODY + 1, 5_000_000):
        answer = httpx.request("GET", site.url, content=b"x" * size, timeout=END)
        assert refusal(answer) == (413, f"a body must have at most 65536 bytes, got {str(size)!r}")


def test_a_body_in_pieces_is_counted_too(site):
    host = f"Host: 127.0.0.1:{site.port}\r\n".encode()
    pieces = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    head = b"GET / HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    assert raw(site, head + 16 * pieces + b"0\r\n\r\n").endswith(b"page")
    found = raw(site, head + 17 * pieces)
    assert found.startswith(b"HTTP/1.1 413 ")
    assert found.endswith(b'{"detail": "a body must have at most 65536 bytes, got more"}')


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_other_methods_are_refused(site, method):
    answer = ask(site, method=method)
    assert refusal(answer) == (405, f"the method must be GET or HEAD, got {method!r}")
    assert answer.headers["allow"] == "GET, HEAD"


def test_too_many_requests_at_once_are_refused(app, serve_in_thread):
    site = serve_in_thread(app)
    site.server.config.loaded_app.at_once = 3
    with httpx.Client(timeout=END) as client:
        streams = [client.stream("GET", site.url + "/api/stream") for _ in range(3)]
        for stream in streams:
            stream.__enter__()
        assert refusal(ask(site)) == (503, "the server answers at most 3 requests at a time; try again in a moment")
        for stream in streams:
            stream.__exit__(None, None, None)
    wait_until(lambda: ask(site).status_code == 200)


# -- answers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/api/echo", "/no/such/page"])
def test_every_answer_has_the_headers_that_keep_it_ours(site, path):
    for answer in (ask(site, path), ask(site, path, Host="rebound.example")):
        for name, value in HEADERS.items():
            assert answer.headers.get_list(name.decode()) == [value.decode()]
        assert "server" not in answer.headers


def test_a_page_may_set_such_a_header_itself(site):
    assert ask(site, "/own").headers.get_list("content-security-policy") == ["default-src 'none'"]


def test_a_stream_flows_as_it_is_made(site, app):
    """Each word is made only when the one before it has arrived."""
    with httpx.stream("GET", site.url + "/api/stream", timeout=END) as answer:
        words = answer.iter_raw(1008)
        for _ in range(10):
            site.loop.call_soon_threadsafe(app.state.more.release)
            assert next(words) == b"data: " + b"x" * 1000 + b"\n\n"


def test_what_follows_a_response_is_not_cut_off(site, app):
    assert ask(site, "/api/tidy").text == "said"
    assert app.state.tidied == 0
    site.loop.call_soon_threadsafe(app.state.heard.set)
    wait_until(lambda: app.state.tidied == 1)


def test_a_request_whose_client_leaves_is_cancelled(site, app):
    with socket.create_connection(("127.0.0.1", site.port), timeout=END) as client:
        client.sendall(f"GET /api/ages HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n".encode())
        wait_until(lambda: app.state.working == 1)
    wait_until(lambda: app.state.working == 0)
    wait_until(lambda: site.tasks() <= 3)


def test_an_error_in_the_application_is_the_applications_business():
    async def broken(scope, receive, send):
        raise ZeroDivisionError

    async def run():
        async def receive():
            receive.calls += 1
            if receive.calls > 1:
                await asyncio.Event().wait()
            return {"type": "http.request", "body": b""}

        async def send(message):
            raise AssertionError

        receive.calls = 0
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "query_string": b"",
            "headers": [(b"host", b"localhost:1")],
        }
        with pytest.raises(ZeroDivisionError):
            await Guard(broken, Hosts("localhost", 1))(scope, receive, send)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


def test_what_is_sent_does_not_wait_for_the_last_to_be_acknowledged(site):
    """Headers and body are two writes; without TCP_NODELAY the second one waits for about 40 ms."""
    with httpx.Client(base_url=site.url, timeout=END) as client:
        client.get("/")
        (connection,) = site.server.server_state.connections
        ours = connection.transport.get_extra_info("socket")
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_head_is_a_get_without_a_body(site):
    head = ask(site, "/api/echo?text=x", "HEAD")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == ask(site, "/api/echo?text=x").headers["content-length"]
