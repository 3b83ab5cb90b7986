"""Workers answer, are killed when they are late, and leave nothing behind."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="the playground needs the extra web")

from safereplay.web import workers
from safereplay.web.workers import Busy, Crew, Failed, Lost, Refused, TooSlow, Unanswered

REGISTRY = "web_jobs:JOBS"


def with_crew(test, size=2, **options):
    """Run ``await test(crew)`` with a crew that is ready; afterwards none of its processes is left."""
    seen = set()

    async def run():
        async with Crew(size, REGISTRY, **options) as crew:
            await asyncio.gather(*(crew.call("sleep", {"nap": 0.2}, 20) for _ in range(size)))
            try:
                return await test(crew)
            finally:
                seen.update(worker.pid for worker in crew._workers)

    threads = threading.active_count()
    result = asyncio.run(run())
    assert not [pid for pid in seen if Path(f"/proc/{pid}").exists()]
    assert threading.active_count() == threads
    return result


async def outcome(crew, name, seconds=10.0, **arguments):
    """The answer as Python sees it, or the exception."""
    try:
        return json.loads(await crew.call(name, arguments, seconds))
    except Unanswered as error:
        return error


async def pids(crew, count=8):
    return {(await outcome(crew, "echo"))["pid"] for _ in range(count)}


def test_an_answer_is_the_jobs_result_as_json():
    async def ask(crew):
        return await crew.call("echo", {"x": 1.5, "text": "γ \ud800"}, 5)

    answer = with_crew(ask)
    assert isinstance(answer, bytes)
    assert json.loads(answer).items() >= {"x": 1.5, "text": "γ \ud800"}.items()


@pytest.mark.parametrize(
    ("job", "kind", "status", "sentence"),
    [
        ("refuse", Refused, 422, "v must be in [0, 1), got 2?"),
        ("fail", Failed, 500, "this could not be answered: the server met an error that it did not expect"),
        ("nan", Failed, 500, "this could not be answered: the server met an error that it did not expect"),
        ("no such job", Failed, 500, "this could not be answered: the server met an error that it did not expect"),
    ],
)
def test_an_error_comes_back_as_a_sentence_and_the_worker_lives_on(job, kind, status, sentence):
    async def ask(crew):
        before = await pids(crew)
        return before, await outcome(crew, job), await pids(crew)

    before, error, after = with_crew(ask, size=1)
    assert type(error) is kind
    assert (error.status, str(error)) == (status, sentence)
    assert before == after


def test_what_fails_is_in_the_log_with_its_traceback(caplog):
    with_crew(lambda crew: outcome(crew, "fail"), size=1)
    assert "ZeroDivisionError: by zero" in caplog.text


def test_a_late_answer_is_a_422_that_names_the_limit_and_its_worker_is_replaced():
    async def ask(crew):
        (before,) = await pids(crew)
        beginning = time.monotonic()
        error = await outcome(crew, "spin", 0.4)
        return before, error, time.monotonic() - beginning, await pids(crew)

    before, error, took, after = with_crew(ask, size=1)
    assert type(error) is TooSlow
    assert (error.status, str(error)) == (
        422,
        "an answer may take 0.4 s, and this one takes longer; ask for less at a time",
    )
    assert 0.4 <= took < 10.0
    assert before not in after
    assert not Path(f"/proc/{before}").exists()


def test_a_worker_that_is_being_replaced_keeps_nobody_waiting():
    async def ask(crew):
        before = {worker.pid for worker in crew._workers}
        late = asyncio.ensure_future(outcome(crew, "spin", 0.2))
        await asyncio.sleep(0.1)
        survivor = await outcome(crew, "echo")
        await late
        while len({worker.pid for worker in crew._workers} - before) < 1:
            await asyncio.sleep(0.001)
        answer = await outcome(crew, "echo")
        return survivor["pid"] == answer["pid"], [worker.ready for worker in crew._workers].count(False)

    assert with_crew(ask, size=2) == (True, 1)  # answered while the newcomer was still importing


@pytest.mark.parametrize("job", ["crash", "leave"])
def test_a_worker_that_dies_is_replaced_and_its_client_hears_of_it(job):
    async def ask(crew):
        before = await pids(crew)
        return before, await outcome(crew, job), await pids(crew)

    before, error, after = with_crew(ask, size=1)
    assert type(error) is Lost
    assert error.status == 503
    assert "died" in str(error)
    assert len(after) == 1
    assert before.isdisjoint(after)


def test_a_worker_that_dies_at_rest_is_replaced_before_anybody_notices():
    async def ask(crew):
        (before,) = await pids(crew)
        os.kill(before, 9)
        await asyncio.sleep(0.1)
        return before, await pids(crew)

    before, after = with_crew(ask, size=1)
    assert before not in after


def test_the_event_loop_runs_on_while_an_answer_is_worked_out():
    async def ask(crew):
        slow = asyncio.ensure_future(outcome(crew, "spin", 0.5))
        gaps, last = [], time.monotonic()
        while not slow.done():
            await asyncio.sleep(0.005)
            gaps.append(time.monotonic() - last)
            last = time.monotonic()
        return sorted(gaps)[len(gaps) // 2], len(gaps)

    median, ticks = with_crew(ask, size=1)
    assert median < 0.05
    assert ticks > 10


def test_a_hundred_questions_at_once_are_all_answered():
    async def ask(crew):
        return await asyncio.gather(*(outcome(crew, "echo", 20, number=k) for k in range(100)))

    found = with_crew(ask, size=2, queue=100)
    assert [answer["number"] for answer in found] == list(range(100))
    assert len({answer["pid"] for answer in found}) == 2


def test_a_queue_that_is_full_says_so_at_once():
    async def ask(crew):
        slow = [asyncio.ensure_future(outcome(crew, "sleep", nap=0.3)) for _ in range(4)]  # one works, three wait
        await asyncio.sleep(0.05)
        beginning = time.monotonic()
        error = await outcome(crew, "echo")
        took = time.monotonic() - beginning
        return error, took, await asyncio.gather(*slow)

    error, took, others = with_crew(ask, size=1, queue=3)
    assert type(error) is Busy
    assert (error.status, str(error)) == (429, "3 questions wait already; ask again in a moment")
    assert took < 1.0
    assert all("pid" in other for other in others)


def test_waiting_for_a_worker_is_bounded_and_is_not_taken_from_the_answer():
    async def ask(crew):
        slow = asyncio.ensure_future(outcome(crew, "sleep", nap=1.5))
        await asyncio.sleep(0.05)
        never = await outcome(crew, "echo", 0.2)
        late = await outcome(crew, "sleep", 2.0, nap=1.2)  # more than a second of waiting before it
        return never, late, await slow

    never, late, slow = with_crew(ask, size=1)
    assert type(never) is Busy
    assert str(never) == "every worker was busy for 0.2 s; ask again in a moment"
    assert "pid" in late
    assert "pid" in slow


def test_work_that_nobody_waits_for_is_stopped_after_its_grace():
    async def ask(crew):
        (before,) = await pids(crew)
        asked = asyncio.ensure_future(crew.call("spin", {}, 60))
        await asyncio.sleep(0.1)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await asyncio.sleep(0.05)
        still = Path(f"/proc/{before}").exists()
        return before, still, await pids(crew)

    before, still, after = with_crew(ask, size=1, grace=0.3)
    assert still  # its grace is not over
    assert before not in after


def test_short_work_that_nobody_waits_for_ends_and_its_worker_is_kept():
    async def ask(crew):
        before = await pids(crew)
        asked = asyncio.ensure_future(crew.call("sleep", {"nap": 0.2}, 60))
        await asyncio.sleep(0.05)
        asked.cancel()
        return before, await pids(crew)

    before, after = with_crew(ask, size=1, grace=0.5)
    assert before == after


def test_whoever_gives_up_waiting_takes_no_worker_along():
    async def ask(crew):
        slow = asyncio.ensure_future(outcome(crew, "sleep", nap=0.2))
        await asyncio.sleep(0.05)
        waiting = [asyncio.ensure_future(crew.call("echo", {}, 5)) for _ in range(20)]
        await asyncio.sleep(0)
        for k, one in enumerate(waiting):
            if k % 2:
                one.cancel()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        await slow
        return answers, len(crew._waiting), len(crew._idle)

    answers, waiting, idle = with_crew(ask, size=1)
    assert [isinstance(a, bytes) for a in answers] == [True, False] * 10
    assert (waiting, idle) == (0, 1)


def test_a_caller_that_gives_up_as_its_worker_comes_hands_it_on():
    """Cancelled between the worker's coming and the caller's waking."""

    async def ask(crew):
        worker = await crew._free()
        asked = asyncio.ensure_future(crew.call("echo", {}, 5))
        await asyncio.sleep(0)
        crew._offer(worker)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        return await outcome(crew, "echo", 2)

    assert "pid" in with_crew(ask, size=1)


def test_large_answers_come_whole():
    async def ask(crew):
        return await asyncio.gather(*(outcome(crew, "big", 20, size=3_000_000) for _ in range(4)))

    assert [len(answer["text"]) for answer in with_crew(ask)] == [3_000_000] * 4


def test_blas_gets_one_thread_and_ctrl_c_is_ignored():
    async def ask(crew):
        return await outcome(crew, "threads"), await outcome(crew, "handlers")

    threads, handlers = with_crew(ask, size=1)
    assert threads == {"threads": 2, "OMP": "1"}  # its own, and the one that watches for the server's end
    assert handlers == {"ignored": True}


def test_every_worker_warms_up_once_and_so_does_its_replacement():
    async def run():
        async with Crew(2, REGISTRY) as crew:
            beginning = time.monotonic()
            crew.warm("sleep", {"nap": 0.6})
            assert time.monotonic() - beginning < 0.5
            crew.warm("fail", {})  # a warm-up that fails stops nobody
            await outcome(crew, "spin", 1.0)
            while len(crew._idle) < 2:
                await asyncio.sleep(0.01)
            return [worker.warmed for worker in crew._workers]

    assert asyncio.run(run()) == [2, 2]


def test_a_registry_that_cannot_be_imported_is_tried_again_ever_more_slowly(caplog, monkeypatch):
    monkeypatch.setattr(workers, "STARTING", 2.5)

    async def run():
        async with Crew(1, "no_such_module:JOBS") as crew:
            return await outcome(crew, "echo"), crew._stillborn

    error, tries = asyncio.run(run())
    assert type(error) is Busy
    assert str(error) == "the server is still starting; ask again in a moment"
    assert 1 <= tries <= 6
    assert "a worker died before it was ready" in caplog.text


def test_what_is_compiled_first_is_not_on_the_clock_of_a_question():
    async def run():
        async with Crew(1, REGISTRY) as crew:
            crew.warm("sleep", {"nap": 0.5})
            return await outcome(crew, "echo", 0.3, number=1)

    assert asyncio.run(run())["number"] == 1


def test_closing_answers_whoever_still_waits():
    async def run():
        crew = Crew(1, REGISTRY)
        crew.start()
        asked = [asyncio.ensure_future(outcome(crew, "spin", 30)) for _ in range(3)]
        await asyncio.sleep(0.6)
        crew.close()
        return [await asyncio.wait_for(one, 2) for one in [*asked, asyncio.ensure_future(outcome(crew, "echo"))]]

    assert [type(error) for error in asyncio.run(run())] == [Lost] * 4


def test_workers_end_when_the_server_is_killed(soon):
    code = f"""
import asyncio, sys
from safereplay.web.workers import Crew
async def main():
    async with Crew(2, {REGISTRY!r}) as crew:
        asked = asyncio.ensure_future(crew.call("spin", {{}}, 60))
        while len(crew._idle) < 1 or not all(w.ready for w in crew._workers):
            await asyncio.sleep(0.01)
        print(*(w.pid for w in crew._workers), flush=True)
        await asked
asyncio.run(main())
"""
    path = os.pathsep.join(p for p in sys.path if p)
    server = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    with server, server.stdout:
        workers = [int(pid) for pid in server.stdout.readline().split()]
        server.kill()
    assert len(workers) == 2
    assert soon(lambda: not any(_runs(pid) for pid in workers))


def _runs(pid):
    """A process that ended may wait for its new parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
