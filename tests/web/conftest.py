"""A real server: the one of the command line in a process of its own, or any application's in a thread."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from waiting import END, SkippingLoop, wait_until

pytest.importorskip("uvicorn", reason="the playground needs the extra web")

#: Limits are met by no test here: what they do is tested with a clock that is held (test_workers.py, test_serving.py).
CODE = """
from safereplay.cli import main
from safereplay.web import app, serving
app.SOON = app.LATER = serving.PARTING_SECONDS = 300.0
main()
"""
COMMAND = [sys.executable, "-c", CODE, "play"]


class Process:
    """A server of the command line: its address, its process, and what it says."""

    def __init__(self, folder, *arguments, browser=False):
        self.errors = folder / "errors.txt"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments, *([] if browser else ["--no-browser"])],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.said = self.process.stdout.readline()
        found = re.search(r"http://(\S+):(\d+)/", self.said)
        assert found, self.errors.read_text()
        self.url, self.port, self.pid = found[0].rstrip("/"), int(found[2]), self.process.pid

    def end(self, sent=signal.SIGINT, everyone=False):
        """The exit code; ``everyone`` as a terminal's Ctrl-C."""
        (os.killpg if everyone else os.kill)(self.pid, sent)
        return self.process.wait(END)

    def children(self):
        return [int(x) for x in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]


@contextmanager
def playing(folder, *arguments, **options):
    server = Process(folder, *arguments, **options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        server.process.stdout.close()


@pytest.fixture
def play(tmp_path):
    """``with play('--port', '0') as server``: `safereplay play` until the block ends."""

    def run(*arguments, **options):
        return playing(tmp_path, *arguments, **options)

    return run


@pytest.fixture(scope="session")
def played(tmp_path_factory):
    """One server for all tests; when they are done it ends as it should and has complained of nothing."""
    with playing(tmp_path_factory.mktemp("play"), "--port", "0") as server:
        yield server
        assert server.end() == 1  # Ctrl-C
        assert "Traceback" not in server.errors.read_text()


@pytest.fixture(scope="session")
def server(played):
    """The address of a server of the playground, as http://127.0.0.1:PORT."""
    return played.url


class Threaded:
    """Any application behind our guard, our connections and real sockets, in a thread of this process.

    Its clock goes on as usual, and :meth:`skip` moves it ahead.
    """

    def __init__(self, app):
        from safereplay.web.serving import Server, listen

        self.listener = listen("127.0.0.1", 0)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = Server(app, "127.0.0.1", self.port)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        wait_until(lambda: self.server.started or not self.thread.is_alive())

    def _run(self):
        async def serve():
            self.loop = asyncio.get_running_loop()
            await self.server.serve([self.listener])

        with asyncio.Runner(loop_factory=SkippingLoop) as runner:
            runner.run(serve())

    def skip(self, seconds):
        """Move the server's clock ahead, and let happen what is due."""
        asyncio.run_coroutine_threadsafe(self.loop.pass_by(seconds), self.loop).result(END)

    def tasks(self):
        """How many tasks there are in the server's loop."""

        async def count():
            return len(asyncio.all_tasks()) - 1

        return asyncio.run_coroutine_threadsafe(count(), self.loop).result(END)

    def end(self):
        self.server.should_exit = True
        self.thread.join(END)
        assert not self.thread.is_alive()


@pytest.fixture(scope="session")
def threaded():
    """The class of servers in threads, for fixtures that outlive a test."""
    return Threaded


@pytest.fixture
def serve_in_thread():
    """``serve_in_thread(app)``: a :class:`Threaded` server until the test ends."""
    servers = []

    def run(app):
        servers.append(Threaded(app))
        return servers[-1]

    yield run
    for server in servers:
        with suppress(RuntimeError):
            server.end()
