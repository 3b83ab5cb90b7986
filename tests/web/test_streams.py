import asyncio
import gc
import threading
import weakref
from contextlib import aclosing

import numpy as np
import pytest
from strikes import at_call
from waiting import END, happens, run_held

import safereplay as sr
from safereplay.web import answers as streams
from safereplay.web.answers import Store, Streams, Target
from safereplay.web.learners import learner_of
from safereplay.web.state import LearnLink

QUICK = {"pace": 40, "learner": "replay,mixing:matched"}


async def exact(link):
    learner = learner_of(link.to_world(), link.to_side())
    return Target(learner, sr.exact(link.to_world().mdp(), learner))


async def zeros(link):
    return Target(learner_of(link.to_world(), link.to_side()), np.zeros((link.to_world().mdp().n_states, 4)))


def listen(link, many=10_000, source=None):
    async def listening():
        found = []
        async with aclosing((source or Streams(exact)).frames(link)) as events:
            async for event in events:
                found.append(event)
                if len(found) > many:
                    break
        return found

    return asyncio.run(listening())


def frames(events):
    return [content for name, content, _ in events if name == "frame"]


def test_a_stream_is_the_run_that_the_public_api_makes():
    link = LearnLink(by=700, until=2_000, seeds=2, **QUICK)
    events = listen(link)
    assert [name for name, _, _ in events] == ["preparing", "frame", "frame", "frame", "done"]
    assert [number for *_, number in events] == [None, 700, 1400, 2000, 2000]
    mdp, learner = sr.grids.cliff(), sr.ReplayQLearning(mixing="matched")
    first, other = (sr.Stepper(mdp, learner, seed, sr.EpsilonGreedy(0.1)).run(2_000) for seed in range(2))
    last = frames(events)[-1]
    np.testing.assert_allclose(last["Q"], first.Q, rtol=1e-5)
    assert last["episodes"] == first.episodes
    assert last["seeds"][1]["gap"] == pytest.approx(other.gap(sr.exact(mdp, learner)), rel=1e-4)
    free = ~mdp.is_terminal
    assert np.array(last["seeds"][1]["policy"])[free].tolist() == other.policy[free].tolist()
    risk = sr.evaluate(mdp, first.policy, start=mdp.origin)
    assert last["risk"]["p_unsafe"] == pytest.approx(risk.p_unsafe)


def test_the_trace_is_of_the_last_iterations():
    (frame,) = frames(listen(LearnLink(by=5_000, until=5_000, pace=40, learner="replay"), source=Streams(zeros)))
    stepper = sr.Stepper(sr.grids.cliff(), sr.ReplayQLearning(), 0, sr.EpsilonGreedy(0.1))
    stepper.run(5_000 - streams.TRACED)
    expected = [[e.s, e.a, e.r, e.s_next, e.terminal, e.replayed] for e in stepper.trace(streams.TRACED)]
    assert frame["trace"] == expected
    assert {entry[5] for entry in frame["trace"]} == {0, 1}
    assert frame["at"] == stepper.state


@pytest.mark.parametrize("kept", [True, False], ids=["runs that were kept", "runs made again"])
def test_going_on_is_the_same_as_not_having_stopped(kept):
    whole = frames(listen(LearnLink(by=500, until=2_000, **QUICK)))
    source = Streams(exact)
    first = frames(listen(LearnLink(by=500, until=2_000, frames=2, **QUICK), source=source))
    source = source if kept else Streams(exact)
    rest = frames(listen(LearnLink(by=500, until=2_000, since=1_000, **QUICK), source=source))
    assert first + rest == whole


OTHERS = [
    "mean-variance",
    "error-states",
    "lagrangian",
    "window",
    "prioritised",
    "recent",
    "combined",
    "backward",
    "dyna",
]


@pytest.mark.parametrize("learner", OTHERS)
def test_learners_with_loops_of_their_own_run_as_the_public_api_runs_them(learner):
    """An iteration is an update there, too; there is no trace of them. After as many episodes, Q is that of sr.learn."""
    link = LearnLink(learner=learner, by=1_500, until=3_000, pace=40, seeds=2)
    whole = frames(listen(link, source=Streams(no_limit)))
    assert [(frame["t"], frame["trace"], frame["at"]) for frame in whole] == [(1_500, [], None), (3_000, [], None)]
    rest = frames(listen(link.model_copy(update={"since": 1_500}), source=Streams(no_limit)))
    assert rest == whole[1:]
    assert [seed["gap"] for seed in whole[-1]["seeds"]] == [None, None]
    mdp, made = sr.grids.cliff(), learner_of(link.to_world(), link.to_side())
    run = streams.Untraced(mdp, made, 1, sr.EpsilonGreedy(0.1)).run(700).run_episodes(40)
    learned = sr.learn(mdp, made, run.episodes, [1], sr.EpsilonGreedy(0.1), quiet=True)
    assert (learned.Q[0] == run.Q).all()


async def no_limit(link):
    return Target(learner_of(link.to_world(), link.to_side()), None)


def test_a_frame_says_the_way_of_each_seed_and_the_risk_of_the_first():
    (frame,) = frames(listen(LearnLink(by=50_000, until=50_000, pace=40, learner="q", seeds=2), source=Streams(zeros)))
    assert [seed["way"] for seed in frame["seeds"]] == ["edge", "edge"]
    assert list(frame["risk"]) == ["mean", "std", "p_unsafe", "p_never"]


def test_a_stream_that_pauses_says_so():
    events = listen(LearnLink(by=1, frames=1, **QUICK))
    assert [name for name, _, _ in events] == ["preparing", "frame", "paused"]
    assert len(events[1][1]["trace"]) == 1


def test_a_client_that_leaves_is_no_longer_counted():
    source = Streams(exact)
    listen(LearnLink(by=10, **QUICK), many=3, source=source)
    assert source.open == 0


def test_whoever_leaves_in_the_middle_of_a_frame_leaves_whole_runs_behind(monkeypatch):
    """Cancelled as a server cancels, at each seed of a frame; whoever goes on finds the runs that were promised."""
    link = LearnLink(by=5_000, until=2_000_000, seeds=9, **QUICK)
    source = Streams(exact)

    async def leave(seed):
        reached, left = threading.Event(), threading.Event()

        def pause(*_):
            reached.set()
            assert left.wait(END)

        async def listening():
            async for _ in source.frames(link):
                pass

        with monkeypatch.context() as patched:
            at_call("safereplay:Stepper.run", 1 + seed, pause, patched.setattr)
            task = asyncio.ensure_future(listening())
            await happens(reached.is_set)
            task.cancel()
            left.set()
            await asyncio.wait([task])
        assert task.cancelled()

    for seed in range(9):
        asyncio.run(leave(seed))
    assert len(source.store._runs) == 1  # of the same question, as far as all have come
    for runs in source.store._runs.values():
        assert {stepper.iterations for stepper in runs.steppers} == {runs.t}


def test_a_world_whose_risk_is_lost_to_rounding_can_be_learned():
    rows = "/".join(["20"] * 19 + ["S18G"])
    (frame,) = frames(listen(LearnLink(world="blank", map=rows, by=1, until=1, pace=40), source=Streams(zeros)))
    assert set(frame["risk"].values()) == {None}


def test_what_cannot_be_learned_is_said_in_the_stream():
    async def refusing(link):
        raise sr.BadInput("learner must have a limit, got none")

    events = listen(LearnLink(**QUICK), source=Streams(refusing))
    assert events[-1] == ("problem", {"detail": "learner must have a limit, got none"}, None)


@pytest.mark.parametrize(("many", "pause"), [(1, 0.04), (10, 10 * streams.SHARE)])
def test_more_streams_are_slower_streams(many, pause):
    """Between two frames the clock, which stands still otherwise, must move by just that much."""
    link = LearnLink(by=1, until=4, **QUICK)

    async def together():
        source, clock = Streams(exact), asyncio.get_running_loop()
        counts = [0] * many

        async def one(k):
            async with aclosing(source.frames(link)) as events:
                async for event in events:
                    counts[k] += event.name == "frame"

        tasks = [asyncio.ensure_future(one(k)) for k in range(many)]
        for t in range(1, 5):
            await happens(lambda t=t: counts == [t] * many)
            await clock.pass_by(0.99 * pause)
            assert counts == [t] * many
            await clock.pass_by(0.02 * pause)
        await asyncio.gather(*tasks)

    run_held(together())


def test_the_store_forgets_the_oldest():
    class Fake:
        def __init__(self, t):
            self.link, self.t = LearnLink(**QUICK), t

    store = Store(most=3)
    known = [Fake(t) for t in range(5)]
    dead = weakref.ref(known[0])
    for runs in known:
        store.keep(runs)
    assert store.take(LearnLink(since=1, **QUICK)) is None
    assert store.take(LearnLink(since=4, **QUICK)) is known[4]
    assert store.take(LearnLink(since=4, **QUICK)) is None
    del known, runs
    gc.collect()
    assert dead() is None
