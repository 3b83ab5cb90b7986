"""Learning over real web sockets, against a real server."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from waiting import END, wait_until
from websockets.asyncio.client import connect as connect_soon
from websockets.exceptions import InvalidStatus

from safereplay.web.answers import ABREAST


def address(server, query):
    return f"ws{server[4:]}/api/learn?{query}"


def connect(address, **options):
    """A socket whose client waits for as long as it takes."""
    return connect_soon(address, open_timeout=END, close_timeout=END, ping_interval=None, **options)


def heard(server, query, **options):
    async def listen():
        async with connect(address(server, query), **options) as socket:
            return [json.loads(message) async for message in socket]

    return asyncio.run(asyncio.wait_for(listen(), END))


def test_a_socket_says_what_server_sent_events_say(server):
    query = "learner=replay,mixing:matched&by=300&until=900&pace=40&seeds=2"
    events = heard(server, query)
    sent = httpx.get(f"{server}/api/learn?{query}", timeout=END).text.strip().split("\n\n")
    lines = [dict(line.split(": ", 1) for line in event.splitlines()) for event in sent]
    assert events == [[line["event"], json.loads(line["data"])] for line in lines]
    assert [name for name, _ in events] == ["preparing", "frame", "frame", "frame", "done"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("by=0", "by must be greater than or equal to 1, got '0'"),
        ("map=S2", "text must have a goal G, got 'none'"),
        ("learner=nobody", "unknown learner 'nobody'; choose from"),
        ("colour=red", "unknown parameter 'colour'"),
    ],
)
def test_what_cannot_be_learned_is_said_over_the_socket(server, query, said):
    ((name, content),) = heard(server, query)
    assert name == "problem"
    assert content["detail"].startswith(said)


@pytest.mark.parametrize("origin", ["http://evil.example", "https://127.0.0.1", "null"])
def test_another_site_cannot_open_a_socket(server, origin):
    with pytest.raises(InvalidStatus) as caught:
        heard(server, "by=1", origin=origin)
    assert caught.value.response.status_code == 403
    assert json.loads(caught.value.response.body)["detail"].startswith("Origin must be this server's own")


def test_a_foreign_host_cannot_open_a_socket(server):
    port = int(server.rpartition(":")[2])
    with pytest.raises(InvalidStatus) as caught:
        heard(f"http://rebound.example:{port}", "by=1", host="127.0.0.1", port=port)
    assert caught.value.response.status_code == 403


def test_our_own_page_can_open_a_socket(server):
    assert heard(server, "by=1&frames=1", origin=server)[-1][0] == "paused"


def test_a_client_that_talks_too_much_is_cut_off(server):
    async def talk():
        async with connect(address(server, "by=1&pace=40")) as socket:
            await socket.send("x" * 10_000)
            async for _ in socket:
                pass

    with pytest.raises(Exception, match="1009"):
        asyncio.run(asyncio.wait_for(talk(), END))


def test_clients_that_vanish_leave_no_stream_behind(played):
    """500 sockets are opened, listened to and cut without a word: no thread, descriptor or memory is left of them."""

    def state():
        folder = Path(f"/proc/{played.pid}")
        resident = int(folder.joinpath("statm").read_text().split()[1]) * 4096
        return len(list(folder.joinpath("fd").iterdir())), len(list(folder.joinpath("task").iterdir())), resident

    async def vanish(k):
        socket = await connect(address(played.url, f"by=5&pace=40&seeds=2&since={5 * (k % 3)}"))
        await socket.recv()
        await socket.recv()
        socket.transport.abort()

    async def many(n):
        for k in range(0, n, 10):
            await asyncio.gather(*(vanish(k + i) for i in range(10)))

    idle = len(list(Path(f"/proc/{played.pid}/fd").iterdir()))
    asyncio.run(many(60))
    wait_until(lambda: state()[0] <= idle + 3)
    files, threads, memory = state()
    asyncio.run(many(500))
    wait_until(lambda: state()[0] <= files + 3)
    assert state()[1] <= threads + 40 + ABREAST  # anyio's pool keeps some
    assert state()[2] <= memory + 100e6  # 0.2 MB each
