"""Workers answer, are killed when they are late, and leave nothing behind."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from waiting import HOUR, happens, run_held, wait_until
from web_jobs import HELD

pytest.importorskip("uvicorn", reason="the playground needs the extra web")

from safereplay.web import workers
from safereplay.web.workers import Busy, Failed, Lost, Refused, TooSlow, Unanswered, WorkerPool

REGISTRY = "web_jobs:JOBS"


def with_pool(test, size=2, **options):
    """Run ``await test(pool)`` with a pool that is ready; afterwards none of its processes is left. Its clock stands still."""
    seen = set()

    async def run():
        async with WorkerPool(size, REGISTRY, **options) as pool:
            await happens(lambda: len(pool._idle) == size)
            try:
                return await test(pool)
            finally:
                seen.update(worker.pid for worker in pool._workers)

    threads = threading.active_count()
    result = run_held(run())
    assert not [pid for pid in seen if Path(f"/proc/{pid}").exists()]
    assert threading.active_count() == threads
    return result


async def outcome(pool, name, seconds=HOUR, **arguments):
    """The answer as Python sees it, or the exception."""
    try:
        return json.loads(await pool.call(name, arguments, seconds))
    except Unanswered as error:
        return error


class Held:
    """A question that is begun, and works until it is let go."""

    def __init__(self, folder, name="held"):
        self.began, self.end = folder / f"{name} began", folder / f"{name} end"
        self.files = {"began": str(self.began), "end": str(self.end)}

    async def ask(self, pool, job="hold", seconds=HOUR):
        """The outcome, some time; returns when a worker is at it."""
        asked = asyncio.ensure_future(outcome(pool, job, seconds, **self.files))
        await happens(self.began.exists)
        return asked

    def let_go(self):
        self.end.touch()


@pytest.fixture
def held(tmp_path):
    return Held(tmp_path)


def clock():
    return asyncio.get_running_loop()


async def pids(pool, count=8):
    return {(await outcome(pool, "echo"))["pid"] for _ in range(count)}


def test_an_answer_is_the_jobs_result_as_json():
    async def ask(pool):
        return await pool.call("echo", {"x": 1.5, "text": "γ \ud800"}, 5)

    answer = with_pool(ask)
    assert isinstance(answer, bytes)
    assert json.loads(answer).items() >= {"x": 1.5, "text": "γ \ud800"}.items()


@pytest.mark.parametrize(
    ("job", "kind", "status", "sentence"),
    [
        ("refuse", Refused, 422, "v must be in [0, 1), got 2?"),
        ("fail", Failed, 500, "unexpected error in the server; its log has the traceback"),
        ("nan", Failed, 500, "unexpected error in the server; its log has the traceback"),
        ("no such job", Failed, 500, "unexpected error in the server; its log has the traceback"),
    ],
)
def test_an_error_comes_back_as_a_sentence_and_the_worker_lives_on(job, kind, status, sentence):
    async def ask(pool):
        before = await pids(pool)
        return before, await outcome(pool, job), await pids(pool)

    before, error, after = with_pool(ask, size=1)
    assert type(error) is kind
    assert (error.status, str(error)) == (status, sentence)
    assert before == after


def test_what_fails_is_in_the_log_with_its_traceback(caplog):
    with_pool(lambda pool: outcome(pool, "fail"), size=1)
    assert "ZeroDivisionError: by zero" in caplog.text


def test_a_late_answer_is_a_422_that_names_the_limit_and_its_worker_is_replaced(held):
    async def ask(pool):
        (before,) = await pids(pool)
        asked = await held.ask(pool, "spin", 10.0)
        await clock().pass_by(9.9)
        early = asked.done()
        await clock().pass_by(0.1)
        return before, early, await asked, await pids(pool)

    before, early, error, after = with_pool(ask, size=1)
    assert not early
    assert type(error) is TooSlow
    assert (error.status, str(error)) == (
        422,
        "the answer takes longer than the limit of 10 s; try a smaller problem",
    )
    assert before not in after
    assert not Path(f"/proc/{before}").exists()


def test_a_worker_that_is_being_replaced_keeps_nobody_waiting(held, monkeypatch, tmp_path):
    async def ask(pool):
        before = {worker.pid for worker in pool._workers}
        monkeypatch.setenv(HELD, str(tmp_path / "never"))  # the newcomer goes on importing
        late = await held.ask(pool, "spin")
        survivor = await outcome(pool, "echo")
        await clock().pass_by(HOUR)
        await late
        await happens(lambda: {worker.pid for worker in [*pool._workers]} - before)
        answer = await outcome(pool, "echo")
        return survivor["pid"] == answer["pid"], [worker.ready for worker in pool._workers].count(False)

    assert with_pool(ask, size=2) == (True, 1)


@pytest.mark.parametrize("job", ["crash", "leave"])
def test_a_worker_that_dies_is_replaced_and_its_client_hears_of_it(job):
    async def ask(pool):
        before = await pids(pool)
        return before, await outcome(pool, job), await pids(pool)

    before, error, after = with_pool(ask, size=1)
    assert type(error) is Lost
    assert error.status == 503
    assert "died" in str(error)
    assert len(after) == 1
    assert before.isdisjoint(after)


def test_a_worker_that_dies_at_rest_is_replaced_before_anybody_notices():
    async def ask(pool):
        (before,) = await pids(pool)
        os.kill(before, 9)
        await happens(lambda: before not in {worker.pid for worker in [*pool._workers]})
        return before, await pids(pool)

    before, after = with_pool(ask, size=1)
    assert before not in after


def test_the_event_loop_runs_on_while_an_answer_is_worked_out(held):
    """The work ends only when the loop, which has gone round a hundred times, lets it go."""

    async def ask(pool):
        asked = await held.ask(pool)
        for _ in range(100):
            await asyncio.sleep(0)
        early = asked.done()
        held.let_go()
        return early, await asked

    early, answer = with_pool(ask, size=1)
    assert not early
    assert "pid" in answer


def test_a_hundred_questions_at_once_are_all_answered():
    async def ask(pool):
        return await asyncio.gather(*(outcome(pool, "echo", number=k) for k in range(100)))

    found = with_pool(ask, size=2, queue=100)
    assert [answer["number"] for answer in found] == list(range(100))
    assert len({answer["pid"] for answer in found}) == 2


def test_a_queue_that_is_full_says_so_at_once(held):
    async def ask(pool):
        slow = [await held.ask(pool)]  # one works, three wait
        slow += [asyncio.ensure_future(outcome(pool, "echo")) for _ in range(3)]
        await happens(lambda: len(pool._waiting) == 3)
        error = await outcome(pool, "echo")
        early = [one.done() for one in slow]
        held.let_go()
        return error, early, await asyncio.gather(*slow)

    error, early, others = with_pool(ask, size=1, queue=3)
    assert type(error) is Busy
    assert (error.status, str(error)) == (429, "3 requests are waiting already; try again in a moment")
    assert early == [False] * 4
    assert all("pid" in other for other in others)


def test_waiting_for_a_worker_is_bounded_and_is_not_taken_from_the_answer(held, tmp_path):
    """The second waits for 10 s in vain. The third waits for 8 s and works for 8 s, of 10 s each."""
    third = Held(tmp_path, "third")

    async def ask(pool):
        slow = await held.ask(pool)
        never = asyncio.ensure_future(outcome(pool, "echo", 10.0))
        await happens(lambda: len(pool._waiting) == 1)
        await clock().pass_by(10.0)
        never = await never
        late = asyncio.ensure_future(outcome(pool, "hold", 10.0, **third.files))
        await happens(lambda: len(pool._waiting) == 1)
        await clock().pass_by(8.0)
        held.let_go()
        await happens(third.began.exists)
        await clock().pass_by(8.0)
        third.let_go()
        return never, await late, await slow

    never, late, slow = with_pool(ask, size=1)
    assert type(never) is Busy
    assert str(never) == "all workers were busy for 10 s; try again in a moment"
    assert "pid" in late
    assert "pid" in slow


async def cancelled(asked):
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked


def test_work_that_nobody_waits_for_is_stopped_after_its_grace(held):
    """Of half a second from its start 0.3 are over when its client leaves."""

    async def ask(pool):
        (before,) = await pids(pool)
        asked = await held.ask(pool, "spin")
        await clock().pass_by(0.3)
        await cancelled(asked)
        await clock().pass_by(0.1)
        still = not next(iter(pool._workers)).killed
        await clock().pass_by(0.1)
        return before, still, await pids(pool)

    before, still, after = with_pool(ask, size=1, grace=0.5)
    assert still  # its grace is not over
    assert before not in after


def test_short_work_that_nobody_waits_for_ends_and_its_worker_is_kept(held):
    async def ask(pool):
        before = await pids(pool)
        await cancelled(await held.ask(pool))
        held.let_go()
        return before, await pids(pool)

    before, after = with_pool(ask, size=1, grace=0.5)
    assert before == after


def test_whoever_gives_up_waiting_takes_no_worker_along(held):
    async def ask(pool):
        slow = await held.ask(pool)
        waiting = [asyncio.ensure_future(pool.call("echo", {}, HOUR)) for _ in range(20)]
        await happens(lambda: len(pool._waiting) == 20)
        for k, one in enumerate(waiting):
            if k % 2:
                one.cancel()
        held.let_go()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        await slow
        return answers, len(pool._waiting), len(pool._idle)

    answers, waiting, idle = with_pool(ask, size=1)
    assert [isinstance(a, bytes) for a in answers] == [True, False] * 10
    assert (waiting, idle) == (0, 1)


def test_a_caller_that_gives_up_as_its_worker_comes_hands_it_on():
    """Cancelled between the worker's coming and the caller's waking."""

    async def ask(pool):
        worker = await pool._free()
        asked = asyncio.ensure_future(pool.call("echo", {}, HOUR))
        await asyncio.sleep(0)
        pool._offer(worker)
        await cancelled(asked)
        return await outcome(pool, "echo")

    assert "pid" in with_pool(ask, size=1)


def test_large_answers_come_whole():
    async def ask(pool):
        return await asyncio.gather(*(outcome(pool, "big", size=3_000_000) for _ in range(4)))

    assert [len(answer["text"]) for answer in with_pool(ask)] == [3_000_000] * 4


def test_blas_gets_one_thread_and_ctrl_c_is_ignored():
    async def ask(pool):
        return await outcome(pool, "threads"), await outcome(pool, "handlers")

    threads, handlers = with_pool(ask, size=1)
    assert threads == {"threads": 2, "OMP": "1"}  # its own, and the one that watches for the server's end
    assert handlers == {"ignored": True}


def test_every_worker_warms_up_once_and_so_does_its_replacement(held, tmp_path):
    async def run():
        async with WorkerPool(2, REGISTRY) as pool:
            pool.warm("hold", held.files)
            pool.warm("fail", {})  # a warm-up that fails stops nobody
            held.let_go()  # and nobody has waited for it until now
            await happens(lambda: len(pool._idle) == 2 and all(worker.warmed == 2 for worker in [*pool._workers]))
            late = await Held(tmp_path, "late").ask(pool, "spin")
            await clock().pass_by(HOUR)
            assert type(await late) is TooSlow
            await happens(lambda: len(pool._idle) == 2 and all(worker.warmed == 2 for worker in [*pool._workers]))
            return [worker.warmed for worker in pool._workers]

    assert run_held(run()) == [2, 2]


def test_a_registry_that_cannot_be_imported_is_tried_again_ever_more_slowly(caplog):
    """After 0.2, 0.4, 0.8, ... seconds, at most 30, and a question waits for no longer than a server may take to start."""

    async def run():
        rests = []
        async with WorkerPool(1, "no_such_module:JOBS") as pool:
            asked = asyncio.ensure_future(outcome(pool, "echo"))
            for tries, known in ((1, 1), (2, 2), (3, 20), (21, 21)):
                await happens(lambda n=tries: pool._stillborn == n and pool._rests)
                (rest,) = pool._rests
                rests.append(round(rest.when() - clock().time(), 9))
                pool._stillborn = known
                assert not asked.done()
                await clock().pass_by(rests[-1])
            await clock().pass_by(workers.STARTING)
            return rests, await asked

    rests, error = run_held(run())
    assert rests == [0.2, 0.4, 0.8, workers.LONGEST_REST]
    assert type(error) is Busy
    assert str(error) == "the server is still starting; try again in a moment"
    assert "a worker died before it was ready" in caplog.text


def test_what_is_compiled_first_is_not_on_the_clock_of_a_question(held):
    async def run():
        async with WorkerPool(1, REGISTRY) as pool:
            pool.warm("hold", held.files)
            asked = asyncio.ensure_future(outcome(pool, "echo", 10.0, number=1))
            await happens(held.began.exists)
            await clock().pass_by(100.0)
            held.let_go()
            return await asked

    assert run_held(run())["number"] == 1


def test_a_warm_up_leaves_a_worker_for_requests(held):
    async def run():
        async with WorkerPool(2, REGISTRY) as pool:
            pool.warm("hold", held.files)
            await happens(held.began.exists)
            answers = [await outcome(pool, "echo", 10.0) for _ in range(3)]
            held.let_go()
            return {answer["pid"] for answer in answers}, {worker.pid for worker in pool._workers}

    answering, all_of_them = run_held(run())
    assert len(answering) == 1
    assert answering < all_of_them


@pytest.mark.parametrize("job", ["compile_begun", "compile_nested"])
def test_compiling_is_not_on_the_clock_of_a_question(job, held, tmp_path):
    """Of 10 s, 8 are over when compiling begins. It takes 100 s, and then 2 s are left."""
    compiled = Held(tmp_path, "compiled")

    async def run():
        async with WorkerPool(1, "compile_jobs:JOBS") as pool:
            await happens(lambda: len(pool._idle) == 1)
            files = held.files | {"compiling": str(compiled.began), "compiled": str(compiled.end)}
            asked = asyncio.ensure_future(outcome(pool, job, 10.0, **files))
            await happens(held.began.exists)
            await clock().pass_by(8.0)
            before = pool.compiling
            held.let_go()
            await happens(lambda: pool.compiling)
            await clock().pass_by(100.0)
            during = asked.done()
            compiled.let_go()
            await happens(lambda: not pool.compiling)
            await clock().pass_by(1.9)
            after = asked.done()
            await clock().pass_by(0.2)
            return before, during, after, await asked

    before, during, after, error = run_held(run())
    assert (before, during, after) == (False, False, False)
    assert type(error) is TooSlow
    assert str(error).startswith("the answer takes longer than the limit of 10 s")


def test_compiling_has_a_limit_too(held, tmp_path):
    compiled = Held(tmp_path, "compiled")

    async def run():
        async with WorkerPool(1, "compile_jobs:JOBS") as pool:
            await happens(lambda: len(pool._idle) == 1)
            files = held.files | {"compiling": str(compiled.began), "compiled": str(compiled.end)}
            held.let_go()
            asked = asyncio.ensure_future(outcome(pool, "compile_begun", 10.0, **files))
            await happens(lambda: pool.compiling)
            await clock().pass_by(workers.WARMING - 0.1)
            early = asked.done()
            await clock().pass_by(0.2)
            return early, await asked

    early, error = run_held(run())
    assert not early
    assert type(error) is TooSlow


def test_compiling_for_a_client_that_left_goes_on(held, tmp_path):
    """Otherwise a dial that is dragged would never be compiled. Its grace runs on afterwards."""
    compiled = Held(tmp_path, "compiled")

    async def run():
        async with WorkerPool(1, "compile_jobs:JOBS", grace=0.5) as pool:
            await happens(lambda: len(pool._idle) == 1)
            files = held.files | {"compiling": str(compiled.began), "compiled": str(compiled.end)}
            held.let_go()
            asked = asyncio.ensure_future(pool.call("compile_begun", files, 10.0))
            await happens(lambda: pool.compiling)
            await cancelled(asked)
            await clock().pass_by(100.0)
            (worker,) = pool._workers
            during = worker.killed
            compiled.let_go()
            await happens(lambda: not pool.compiling)
            await clock().pass_by(0.6)
            return during, worker.killed

    assert run_held(run()) == (False, True)


def test_what_is_loaded_from_the_cache_is_not_compiled(in_new_process, tmp_path):
    file = tmp_path / "program.py"
    file.write_text("""
import numba
from safereplay._progress import on_compiling
said = []
on_compiling(lambda: said.append("begin"), lambda: said.append("end"))
inner = numba.njit(lambda x: x + 1)
@numba.njit(cache=True)
def outer(x):
    return inner(x)
outer(1)
print(*said)
""")
    found = [in_new_process(file, NUMBA_CACHE_DIR=str(tmp_path)).split() for _ in range(2)]
    assert found == [["begin", "end"], []]


def test_a_pool_that_starts_soon_starts_with_the_first_question():
    async def ask():
        pool = WorkerPool(1, REGISTRY)
        starting = asyncio.ensure_future(pool.start_soon(HOUR))
        await asyncio.sleep(0)
        assert not pool._workers
        try:
            found = await outcome(pool, "echo", word="hello")
            await starting
            return found
        finally:
            pool.close()

    assert run_held(ask())["word"] == "hello"


def test_closing_answers_whoever_still_waits(held):
    async def run():
        pool = WorkerPool(1, REGISTRY)
        pool.start()
        asked = [await held.ask(pool, "spin")]
        asked += [asyncio.ensure_future(outcome(pool, "echo")) for _ in range(2)]
        await happens(lambda: len(pool._waiting) == 2)
        pool.close()
        asked.append(asyncio.ensure_future(outcome(pool, "echo")))
        await happens(lambda: all(one.done() for one in asked))
        return [one.result() for one in asked]

    assert [type(error) for error in run_held(run())] == [Lost] * 4


def test_workers_end_when_the_server_is_killed(tmp_path):
    code = f"""
import asyncio, sys
from safereplay.web.workers import WorkerPool
from waiting import END, happens
async def main():
    async with WorkerPool(2, {REGISTRY!r}) as pool:
        asked = asyncio.ensure_future(pool.call("spin", {{"began": {str(tmp_path / "began")!r}}}, END))
        await happens(lambda: len(pool._idle) == 1 and all(w.ready for w in pool._workers))
        print(*(w.pid for w in pool._workers), flush=True)
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
    wait_until(lambda: not any(_runs(pid) for pid in workers))


def _runs(pid):
    """A process that ended may wait for its new parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
