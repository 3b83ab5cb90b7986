"""A server that starts, stays up whatever its clients do, and ends when it is told to."""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from waiting import END, HOUR, wait_until

pytest.importorskip("uvicorn", reason="the playground needs the extra web")

from safereplay.cli import run
from safereplay.errors import BadInput
from safereplay.web import app, serving
from safereplay.web.answers import ABREAST
from safereplay.web.app import create_app

UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)
POOL = 40 + ABREAST  # threads that anyio may keep: its own limit, and that of the streams
LEARN = "/api/learn?world=cliff&learner=replay&by=50&until=1000000&pace=40"


def request(site, path="/api/state", *headers):
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{site.port}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def connect(site):
    return socket.create_connection(("127.0.0.1", site.port), timeout=END)


def all_of(client):
    """What the server sends until it closes."""
    found = b""
    while part := client.recv(65536):
        found += part
    return found


def read_until(client, words):
    """Whether these words came before the end."""
    found = b""
    while words not in found and (part := client.recv(65536)):
        found += part
    return words in found


def status_and_sentence(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["detail"]


def answers(site):
    return httpx.get(site.url + "/api/state", timeout=END).status_code == 200


def connection(site, client):
    """The server's end of a client's connection, once it has one."""
    name, known = client.getsockname(), site.server.server_state.connections
    return wait_until(lambda: [one for one in [*known] if one.client == name])[0]


def arrived(site, client, words):
    """Wait until the server has these bytes of a request whose headers are not complete."""
    served = connection(site, client)
    wait_until(lambda: words in served.conn.trailing_data[0])


def is_silent(client):
    """Whether the server has said nothing, and has not closed."""
    return select.select([client], [], [], 0.0)[0] == []


# -- slow and broken clients ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(request):
    """The playground in a thread of this process; clients may take an hour, by a clock that can be moved."""
    from _pytest.monkeypatch import MonkeyPatch

    threaded = request.getfixturevalue("threaded")
    patch = MonkeyPatch()
    patch.setattr(serving, "HEADERS_SECONDS", HOUR)
    patch.setattr(serving, "UNREAD_SECONDS", HOUR)
    patch.setattr(app, "SOON", HOUR)
    made = create_app()
    server = threaded(made)
    server.server.config.loaded_app.body_seconds = HOUR
    httpx.get(server.url + LEARN + "&frames=1", timeout=END)
    for pool in (made.state.quick, made.state.slow):  # all workers are there, and have nothing more to compile
        wait_until(lambda pool=pool: len(pool._idle) == pool.size)
    yield server
    server.end()
    patch.undo()


@pytest.mark.parametrize("sent", [b"G", b"GET / HT", b"GET /api/state HTTP/1.1\r\nHost: 127.0.0.1\r\nX-"])
def test_half_a_request_is_answered_when_its_time_is_up(site, sent):
    with connect(site) as client:
        client.sendall(sent)
        arrived(site, client, sent)
        site.skip(0.7 * HOUR)
        assert is_silent(client)
        site.skip(0.4 * HOUR)
        assert status_and_sentence(all_of(client)) == (408, "headers must arrive within 3600 s, got a part of them")


def test_headers_that_trickle_do_not_stop_the_clock(site):
    with connect(site) as client:
        client.sendall(request(site)[:-2])
        for k in range(4):
            client.sendall(b"X: %d\r\n" % k)
            arrived(site, client, b"X: %d\r\n" % k)
            assert is_silent(client)
            site.skip(0.3 * HOUR)
        assert status_and_sentence(all_of(client))[0] == 408
    assert answers(site)


def test_a_client_that_says_nothing_is_let_go_without_a_word(site):
    with connect(site) as client:
        connection(site, client)
        site.skip(0.7 * HOUR)
        assert is_silent(client)
        site.skip(0.4 * HOUR)
        assert all_of(client) == b""


def test_the_second_request_of_a_connection_has_its_clock_too(site):
    with connect(site) as client:
        client.sendall(request(site))
        assert read_until(client, b'"limit":0.04}')  # the end of the first answer
        client.sendall(b"GET / HT")
        arrived(site, client, b"GET / HT")
        site.skip(0.7 * HOUR)
        assert is_silent(client)
        site.skip(0.4 * HOUR)
        assert status_and_sentence(all_of(client))[0] == 408


def test_a_body_that_trickles_is_answered_when_its_time_is_up(site):
    with connect(site) as client:
        client.sendall(request(site, "/api/state", "Content-Length: 100") + b"x")
        served = connection(site, client)
        wait_until(lambda: served.cycle)
        site.skip(0.0)  # the request is begun, and reads its body
        site.skip(0.7 * HOUR)
        assert is_silent(client)
        site.skip(0.4 * HOUR)
        assert status_and_sentence(all_of(client)) == (408, "a body must arrive within 3600 s, got a part of it")


def test_a_request_that_is_slow_to_answer_is_not_mistaken_for_a_slow_client(site):
    with connect(site) as client:
        client.sendall(request(site, LEARN + "&frames=3", "Connection: close"))
        assert b"event: paused" in all_of(client)


def test_a_client_that_does_not_read_is_let_go(site):
    before = site.tasks()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", site.port))
        client.sendall(request(site, "/plotly.js"))
        served = connection(site, client)
        wait_until(lambda: served._unread)
        site.skip(0.7 * HOUR)
        assert served in site.server.server_state.connections
        wait_until(lambda: site.skip(HOUR) or served not in site.server.server_state.connections)
        wait_until(lambda: site.tasks() <= before)
    assert answers(site)


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),  # a browser that speaks TLS
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: \x00\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"x" * 100_000,
    ],
)
def test_what_is_not_http_gets_a_sentence_and_the_server_stays_up(site, sent):
    with connect(site) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        status, sentence = status_and_sentence(all_of(client))
    assert status in (400, 403, 431)  # 403 for a version that names no host
    assert sentence.endswith(("got something else", "got ''", "got more"))
    assert answers(site)


def test_a_body_that_breaks_off_into_nonsense_is_refused_once(site):
    with connect(site) as client:
        client.sendall(request(site, "/api/state", "Transfer-Encoding: chunked") + b"nonsense\r\n")
        assert status_and_sentence(all_of(client))[0] == 400
    assert answers(site)


def test_a_web_socket_is_had_where_there_is_one_and_by_our_own_page_only(site):
    for path, origin, head in (
        (LEARN, f"http://127.0.0.1:{site.port}", b"HTTP/1.1 101 "),
        (LEARN, "http://rebound.example", b"HTTP/1.1 403 "),
        ("/api/state", f"http://127.0.0.1:{site.port}", b"HTTP/1.1 403 "),
    ):
        with connect(site) as client:
            client.sendall(request(site, path, *UPGRADE, f"Origin: {origin}"))
            assert client.recv(65536).startswith(head)
    assert answers(site)


def test_requests_in_a_row_on_one_connection_are_all_answered(site):
    with connect(site) as client:
        client.sendall(5 * request(site) + request(site, "/api/state", "Connection: close"))
        assert all_of(client).count(b"HTTP/1.1 200 ") == 6


def test_three_hundred_half_open_connections_leave_room_for_a_request(site):
    clients = [connect(site) for _ in range(300)]
    try:
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\n")
        assert answers(site)
    finally:
        for client in clients:
            client.close()
    wait_until(lambda: len(site.server.server_state.connections) == 0)


# -- clients that vanish ----------------------------------------------------------------------------------------------------


def vanish(site, count, at_once=50):
    """Open streams and web sockets and leave them: before the answer, amid it, politely or with a reset."""
    for beginning in range(0, count, at_once):
        clients = [connect(site) for _ in range(beginning, min(count, beginning + at_once))]
        for k, client in enumerate(clients):
            client.sendall(request(site, f"{LEARN}&seeds={1 + k % 3}", *(UPGRADE if k % 5 < 2 else ())))
        for k, client in enumerate(clients):
            if k % 4:
                client.recv(1 if k % 4 == 1 else 4096)
            if k % 2:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()


def count(what):
    return len(os.listdir(f"/proc/self/{what}"))


def own_threads():
    """Threads that belong to somebody: not those of the pool, which come and go as they are needed."""
    return sum("AnyIO" not in thread.name for thread in threading.enumerate())


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_five_hundred_clients_that_vanish_mid_stream_leave_nothing_behind(site, caplog):
    assert "paused" in httpx.get(site.url + LEARN + "&seeds=3&frames=3", timeout=END).text
    vanish(site, 100)  # whatever is made once is made now

    def at_rest():
        return len(site.server.server_state.connections) == 0 and not site.server.server_state.tasks

    wait_until(at_rest)
    tasks, descriptors, threads, memory = site.tasks(), count("fd"), own_threads(), resident()
    everybody = count("task")
    vanish(site, 500)
    wait_until(at_rest)
    wait_until(lambda: site.tasks() <= tasks)
    wait_until(lambda: count("fd") <= descriptors)
    wait_until(lambda: own_threads() <= threads)
    assert count("task") <= everybody + POOL  # whose threads rest between two calls
    assert site.server.config.loaded_app.open == 0
    assert resident() - memory < 100e6  # 0.2 MB each
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert answers(site)


# -- beginning and ending ---------------------------------------------------------------------------------------------------


def closed(server):
    """What Ctrl-C says."""
    return f"safereplay: stopped: the playground at {server.url}/ is closed\n"


def test_ctrl_c_ends_the_server_at_once_with_streams_open_and_no_process_left(play):
    """The streams would go on for longer than the server may take to end, and requests may take as long as they like."""
    with play("--port", "0") as server:
        clients = [connect(server) for _ in range(3)]
        for k, client in enumerate(clients):
            client.sendall(request(server, LEARN, *(UPGRADE if k == 2 else ())))
        for client in clients:
            assert read_until(client, b"frame")
        children = server.children()
        assert len(children) >= 3
        assert server.end(everyone=True) == 1
        for client in clients:
            client.close()
        assert server.errors.read_text() == closed(server)
        wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def test_ctrl_c_while_the_workers_start_is_quiet_too(play):
    with play("--port", "0") as server:
        assert (server.end(everyone=True), server.errors.read_text()) == (1, closed(server))


def test_a_server_that_is_told_to_terminate_tidies_up_first(play):
    with play("--port", "0") as server:
        assert answers(server)
        children = server.children()
        assert server.end(signal.SIGTERM) == -signal.SIGTERM
        assert server.errors.read_text() == ""
        wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def test_the_address_is_printed_and_it_answers_there(server):
    assert httpx.get(server + "/", timeout=END).status_code == 200


def test_a_taken_port_that_was_asked_for_is_one_line_and_exit_code_2(capsys):
    with serving.listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert run(["play", "--no-browser", "--port", str(port)]) == 2
        assert capsys.readouterr().err == f"safereplay: port must be free, got {port}\n"


def test_a_taken_usual_port_gives_way_to_the_next(monkeypatch):
    with serving.listen("127.0.0.1", 0) as taken:
        monkeypatch.setattr(serving, "PORT", taken.getsockname()[1])
        with serving.listen("127.0.0.1", None) as other:
            assert 0 < other.getsockname()[1] - taken.getsockname()[1] < serving.NEIGHBOURS
        monkeypatch.setattr(serving, "NEIGHBOURS", 1)
        with pytest.raises(BadInput, match=r"port must be free, got '\d+ to \d+, all taken'"):
            serving.listen("127.0.0.1", None)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--port", "65536"), "port must be below 65536, got 65536"),
        (("--port", "-1"), "port must be at least 0, got -1"),
        (("--host", "192.0.2.1"), "host must be an address of this machine, got '192.0.2.1'"),
        (("--host", "no such host"), "host must be an address of this machine, got 'no such host'"),
    ],
)
def test_what_cannot_be_listened_on_is_one_line_and_exit_code_2(arguments, complaint, capsys):
    assert run(["play", "--no-browser", *arguments]) == 2
    assert capsys.readouterr().err == f"safereplay: {complaint}\n"


class Brief:
    """Stands for a server that announces itself and gets a Ctrl-C."""

    def __init__(self, app, host, port, announce):
        self.announce, Brief.port = announce, port

    def run(self, sockets):
        self.announce()
        raise KeyboardInterrupt  # what uvicorn raises after Ctrl-C


def test_serving_says_where_it_is_and_warns_when_it_is_not_alone(monkeypatch, capsys):
    monkeypatch.setattr(serving, "Server", Brief)
    for host, shown, warned in (
        ("127.0.0.1", "127.0.0.1", ""),
        ("::1", "[::1]", ""),
        (
            "0.0.0.0",  # noqa: S104
            "localhost",
            "safereplay: this page is open to the whole network, without a password\n",
        ),
    ):
        assert run(["play", "--no-browser", "--port", "0", "--host", host]) == 1
        said, address = capsys.readouterr(), f"http://{shown}:{Brief.port}/"
        assert said.out == f"The playground is at {address} (Ctrl-C ends it)\n"
        assert said.err == f"{warned}safereplay: stopped: the playground at {address} is closed\n"


def test_serving_says_when_its_port_is_not_the_usual_one(monkeypatch, capsys):
    monkeypatch.setattr(serving, "Server", Brief)
    with serving.listen("127.0.0.1", 0) as taken:
        monkeypatch.setattr(serving, "PORT", taken.getsockname()[1])
        assert run(["play", "--no-browser"]) == 1
    said = capsys.readouterr().err.splitlines()[0]
    assert said == f"safereplay: port {serving.PORT} is taken; this is the next free one"


def test_the_browser_opens_once_the_server_answers(play, tmp_path, monkeypatch):
    """The browser is a script that asks for what it is shown."""
    browser, page = tmp_path / "browser", tmp_path / "page.html"
    browser.write_text(
        f"#!{sys.executable}\nimport sys, urllib.request as u\n"
        f"open({str(page)!r} + '.part', 'wb').write(u.urlopen(sys.argv[1]).read())\n"
        f"import os; os.rename({str(page)!r} + '.part', {str(page)!r})\n"
    )
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    with play("--port", "0", browser=True) as server:
        wait_until(page.exists)
        assert page.read_bytes() == httpx.get(server.url + "/", timeout=END).content
        assert server.end() == 1


def test_without_the_extra_one_line_says_what_to_install():
    code = "import sys; sys.modules['uvicorn'] = None; from safereplay.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "play"], capture_output=True, text=True, timeout=END)
    assert done.returncode == 2
    assert done.stderr == "safereplay: the playground needs uvicorn; install it with: pip install 'safereplay[web]'\n"
