import pytest

from safereplay.engines.spec import load_spec
from safereplay.engines.work import Chunks, Costs, ThreadsEngine

SPEC = {"episodes": 100, "seeds": 400, "models": {"cliff": {}}, "learners": {"q": {}, "replay": {"v": [0.5, 0.9]}}}


class Schedule:
    """A sweep whose runs take what ``cost`` says, done by workers that are always busy."""

    def __init__(self, cost, spec=SPEC, workers=4, **limits):
        self.study, self.cost = load_spec(spec), cost
        self.engine = ThreadsEngine(workers)
        vars(self.engine).update(limits)
        self.costs = Costs(self.study.terms)
        left = {}
        for _, point in self.study.points():
            group = self.costs.group(point)
            left[group] = left.get(group, 0.0) + len(self.study.seeds) * self.costs.units(point)
        self.chunks = Chunks(self.study.runs(), left, self.study.terms, self.engine, self.costs)

    def run(self):
        """(seconds of each chunk, when each worker finished)."""
        sizes, free = [], [0.0] * self.engine.workers
        for chunk in self.chunks:
            seconds = sum(self.cost(run) for run in chunk)
            sizes.append((chunk, seconds))
            k = free.index(min(free))
            free[k] += seconds
            self.costs.learn(chunk, seconds)
        return sizes, free


def by_v(run):
    replay = run.point.learner.replay
    return 0.05 / (1.0 - (0.0 if replay is None else replay[1]))


def test_every_run_is_in_exactly_one_chunk():
    sizes, _ = Schedule(by_v).run()
    seen = [run.id for chunk, _ in sizes for run in chunk]
    assert len(seen) == len(set(seen)) == 1200


def test_chunks_begin_small_then_take_what_the_engine_asks_for():
    sizes, _ = Schedule(by_v).run()
    assert len(sizes[0][0]) == 1
    middle = [seconds for _, seconds in sizes[5 : len(sizes) // 2]]
    assert max(middle) <= 5.0 + 0.5
    assert sum(seconds > 4.0 for seconds in middle) > len(middle) / 2


def test_cost_counts_not_the_number_of_runs():
    sizes, _ = Schedule(by_v).run()
    cheap = max(len(chunk) for chunk, _ in sizes if chunk[-1].point.learner.replay is None)
    dear = max(len(chunk) for chunk, _ in sizes if chunk[0].point.columns["v"] == 0.9)
    assert cheap >= 8 * dear


def test_towards_the_end_chunks_shrink_so_that_workers_finish_together():
    sizes, free = Schedule(by_v).run()
    assert max(free) - min(free) < 1.5
    assert sizes[-1][1] < 1.5


def test_a_first_run_that_had_to_compile_is_soon_forgotten():
    slow = []

    def cost(run):
        slow.append(run)
        return 0.01 + (60.0 if len(slow) == 1 else 0.0)

    sizes, _ = Schedule(cost, {**SPEC, "learners": {"q": {}}}).run()
    assert len(sizes) < 40


def test_an_engine_may_ask_for_many_runs_and_may_set_a_limit():
    sizes, _ = Schedule(by_v, least=100).run()
    assert all(len(chunk) >= 100 for chunk, _ in sizes[:-1] if chunk[0].point is chunk[-1].point)
    sizes, _ = Schedule(by_v, most=7).run()
    assert max(len(chunk) for chunk, _ in sizes) == 7


def test_a_chunk_of_large_runs_takes_no_more_memory_than_it_may():
    spec = {**SPEC, "keep": ["curves"], "curves": 100, "models": {"cliff": {"layout": "S" + "." * 998 + "G"}}}
    sizes, _ = Schedule(lambda run: 1e-6, spec).run()
    assert max(len(chunk) for chunk, _ in sizes) == (1 << 28) // (8 * 4_000 * 103)


def test_what_was_measured_is_what_is_expected():
    study = load_spec(SPEC)
    costs = Costs(study.terms)
    runs = list(study.runs())
    plain, replay = runs[0], runs[-1]
    assert costs.rate(costs.group(plain.point)) is None
    costs.learn((plain,) * 4, 2.0)
    assert costs.rate(costs.group(plain.point)) * costs.units(plain.point) == pytest.approx(0.5)
    costs.learn((replay,), 9.0)
    assert costs.rate(costs.group(replay.point)) * costs.units(replay.point) == pytest.approx(9.0)
    costs.learn((plain, replay), 19.0)  # both were twice as slow: half of that is believed
    assert costs.rate(costs.group(plain.point)) * costs.units(plain.point) == pytest.approx(0.75)
