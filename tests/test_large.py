"""Memory of large runs: stated beforehand, and kept near that."""

import re

import numpy as np
import pytest

import safereplay as sr
from safereplay import arrays, footprints
from safereplay.footprints import Part

REPLAY = sr.ReplayQLearning(sr.VarianceReplay(0.5))

MEASURED = """
import ctypes, gc, sys
import numpy as np
import safereplay as sr

n_states, name, seeds, snapshots = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
learner = getattr(sr, name)()
rng, n_pairs = np.random.default_rng(0), 4 * n_states
pair, p = np.repeat(np.arange(n_pairs), 2), rng.uniform(0.2, 0.8, n_pairs)
ends = rng.random(2 * n_pairs) < 0.02
columns = pair // 4, pair % 4, np.column_stack((p, 1 - p)).ravel(), rng.integers(n_states, size=2 * n_pairs)
rows = np.column_stack((*columns, rng.normal(size=2 * n_pairs), ends, np.zeros(2 * n_pairs)))
mdp = sr.TabularMDP.from_outcomes(n_states, 4, rows)
sr.learn(sr.grids.cliff(), learner, 10, 2, snapshots=1)  # what compiling takes is not the run's
del pair, p, ends, columns, rows
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak begins here

def held(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field)) * 1024

before = held("VmRSS")
learned = sr.learn(mdp, learner, n_states // 10, seeds, snapshots=snapshots, threads=2, quiet=True)
print(held("VmHWM") - before, sr.footprint(mdp, learner, seeds, snapshots, threads=2).total, learned.visits.sum())
"""


def measured(in_new_process, *arguments):
    """The peak of memory over what was there, and the footprint that was stated."""
    printed = in_new_process(MEASURED, *arguments, MALLOC_MMAP_THRESHOLD_="65536")  # what is freed is given back
    peak, stated, steps = map(int, printed.split())
    assert steps > 4 * arguments[0] * arguments[2]  # enough to touch every page
    return peak, stated


@pytest.mark.parametrize(
    "learner",
    ["ReplayQLearning", *(pytest.param(name, marks=pytest.mark.slow) for name in ("QLearning", "WorstTransition"))],
)
def test_a_hundred_thousand_states_take_the_memory_that_is_stated(in_new_process, learner):
    """Within 20 % and 8 MiB: of 16 to 63 MiB."""
    peak, stated = measured(in_new_process, 100_000, learner, 1, 0)
    assert 0.85 * stated < peak < 1.2 * stated + 2**23


@pytest.mark.slow
def test_snapshots_and_seeds_take_the_memory_that_is_stated(in_new_process):
    """Five seeds, two at a time, three snapshots each: 0.4 GiB, within 15 %."""
    peak, stated = measured(in_new_process, 100_000, "ReplayQLearning", 5, 3)
    assert stated > 2**28
    assert 0.85 * stated < peak < 1.15 * stated


@pytest.mark.slow
@pytest.mark.parametrize(("learner", "most"), [("QLearning", 56), ("ReplayQLearning", 170)])
def test_a_million_states_take_the_memory_that_is_stated(in_new_process, learner, most):
    """4·10⁶ pairs of two outcomes, within 15 %; and no more bytes per pair than it was when this was written."""
    peak, stated = measured(in_new_process, 1_000_000, learner, 1, 0)
    assert 0.85 * stated < peak < 1.15 * stated
    assert stated / 4e6 <= most


# -- nothing is copied --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("learner", [sr.QLearning(), REPLAY, sr.WorstTransition()], ids=lambda x: x.describe())
def test_results_are_the_arrays_that_the_runs_wrote_into(monkeypatch, learner, seeds):
    made, make_room = [], footprints.make_room

    def noted(*arguments):
        made.append(make_room(*arguments))
        return made[-1]

    monkeypatch.setattr(footprints, "make_room", noted)
    learned = sr.learn(sr.grids.cliff(), learner, 50, seeds, snapshots=2)
    (kept,) = made
    given = [(learned.Q, kept.Q), (learned.visits, kept.counts), (learned.replays, kept.counts)]
    given += [(learned.w, kept.w), (learned.seen, kept.seen), (learned.replayed, kept.replayed)]
    shots = learned.snapshots
    given += [(shots.Q, kept.shots), (shots.visits, kept.shot_visits), (shots.w, kept.shot_w)]
    for mine, theirs in given:
        assert (mine is None and theirs is None) or np.shares_memory(mine, theirs)


def test_rows_of_different_runs_share_no_cache_line():
    kept = footprints.make_room(sr.grids.volatile(), REPLAY.recipe(sr.EpsilonGreedy(), sr.PowerStep()), 3, 0)
    for array in (kept.Q, kept.counts, kept.seen, kept.replayed, kept.w):
        starts = [array[k].__array_interface__["data"][0] for k in range(3)]
        assert all(starts[k + 1] - (starts[k] + array[k].nbytes) >= 128 for k in range(2))
        assert all(array[k].flags.c_contiguous for k in range(3))


def test_a_models_memory_keeps_no_ones_and_refuses_to_have_them_changed():
    memory = arrays.model_memory(sr.grids.cliff())
    assert memory.distinct.strides == (0,)
    assert (memory.distinct == 1.0).all()
    with pytest.raises(ValueError, match="read-only"):
        memory.distinct[0] = 2.0


def test_learning_leaves_nothing_on_the_model():
    """``pair`` is worked out on demand and stays: 8 bytes per outcome that a run does not need."""
    mdp = sr.grids.from_map("S..\n..G", slip=0.2)
    assert "pair" not in vars(mdp.with_gamma(0.9))
    variant = mdp.with_gamma(0.5)
    sr.learn(variant, REPLAY, 10, 2)
    assert "pair" not in vars(variant)


def test_counts_become_whole_numbers_in_their_own_place(monkeypatch):
    monkeypatch.setattr(footprints, "PIECE", 7)
    wanted = np.array([0, 1, 5, 2**40, 2**53 - 1] * 5)
    counts = np.zeros(25, np.int64)
    counts.view(np.float64)[:] = wanted
    footprints.make_whole(counts)
    assert counts.tolist() == wanted.tolist()


@pytest.mark.parametrize("piece", [1, 2, 3, 1000])
def test_the_sampling_tables_are_the_same_laid_out_in_any_pieces(monkeypatch, piece):
    rows = [(0, 0, 0.3, 1, -1.0), (0, 0, 0.3, 1, -1.0, False, True), (0, 0, 0.4, 0, 2.0), (0, 1, 1.0, 2, -1.0, True)]
    rows += [(1, 0, 0.5, 1, -1.0), (1, 0, 0.5, 1, -1.0, False, True), (1, 1, 1.0, 0, -1.0)]
    mdp = sr.TabularMDP.from_outcomes(4, 2, rows)  # states 2 and 3 end: their rows are empty
    monkeypatch.setattr(arrays, "PIECE", piece)
    model = arrays.sampling_model(mdp)
    assert model.slot.tolist() == [0, 0, 2, 3, 4, 4, 6]
    assert model.p_cum.tolist() == pytest.approx([0.3, 0.6, 1.0, 1.0, 0.5, 1.0, 1.0])


# -- what is stated -----------------------------------------------------------------------------------------------------


def test_the_parts_of_a_footprint_are_what_the_arrays_take():
    mdp = sr.grids.cliff()
    for learner in (sr.QLearning(), REPLAY, sr.WorstTransition(), sr.ReplayQLearning(sr.ErrorReplay())):
        recipe = learner.recipe(sr.EpsilonGreedy(), sr.PowerStep())
        kept = footprints.make_room(mdp, recipe, 1, 4)
        stated = sr.footprint(mdp, learner, 3, 4, threads=2)
        assert stated.bytes_of(stated.kept) == sum(x.nbytes for x in kept if x is not None)
        memory = arrays.model_memory(mdp, recipe.remembers, recipe=recipe)
        used = memory.used.nbytes if recipe.remembers else 0
        model = arrays.sampling_model(mdp)
        shared = model.p_cum.nbytes + model.slot.nbytes + 16 * mdp.n_states + used
        assert stated.bytes_of(stated.shared) == shared
        tree = 16 * mdp.n_pairs if recipe.replays else 0
        stats = memory.stats.nbytes if recipe.remembers else 0
        assert stated.bytes_of(stated.working) == stats + tree + memory.unsafe.nbytes + 8 * mdp.n_states
        parts = 3 * stated.bytes_of(stated.kept) + 2 * stated.bytes_of(stated.working)
        assert stated.total == parts + shared


def test_a_footprint_reads_as_a_line_and_as_plain_types():
    stated = sr.footprint(sr.grids.cliff(), REPLAY, seeds=4, snapshots=2, threads=8)
    assert str(stated).endswith(
        "56 B per pair + 40 B per outcome kept × 4 seeds, 32 B per pair + 8 B per state working × 4 runs at a time, "
        "8 B per pair + 12 B per outcome + 16 B per state shared"
    )
    assert stated.kept == Part(56, 40, 0)
    assert stated.to_dict()["working"] == {"pair": 32, "outcome": 0, "state": 8}
    assert stated.to_dict()["total"] == stated.total


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mdp": "cliff"}, "mdp must be a TabularMDP, got 'cliff'"),
        ({"learner": 3}, "learner must be a Learner, got 3"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"snapshots": -1}, "snapshots must be at least 0, got -1"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
    ],
)
def test_a_bad_argument_of_a_footprint_is_named(arguments, message):
    with pytest.raises(sr.BadInput, match=re.escape(message)):
        sr.footprint(**{"mdp": sr.grids.cliff(), "learner": sr.QLearning(), **arguments})


# -- what does not fit --------------------------------------------------------------------------------------------------


def meminfo(tmp_path, available):
    file = tmp_path / "meminfo"
    file.write_text(f"MemTotal:       24682416 kB\nMemAvailable:   {available // 1024} kB\nHugePages_Total:       0\n")
    return file


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"seeds": 1}, ""),
        ({"seeds": 3, "threads": 1}, "; try fewer seeds"),
        ({"seeds": 3, "threads": 2}, "; try fewer threads or fewer seeds"),
        ({"seeds": 1, "snapshots": 2}, "; try fewer snapshots"),
    ],
)
def test_runs_that_clearly_do_not_fit_are_refused_in_a_line(monkeypatch, tmp_path, arguments, hint):
    monkeypatch.setattr(footprints, "MEMINFO", meminfo(tmp_path, 3 * 2**10))
    monkeypatch.setattr(footprints, "MATTERS", 2**10)
    with pytest.raises(sr.BadInput, match=r"^runs must fit into the 3\.0 KiB of memory that are free, got") as caught:
        sr.learn(sr.grids.cliff(), REPLAY, 10, **arguments)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(f"16 B per state shared{hint}")


def test_runs_that_fit_or_are_small_are_not_refused(monkeypatch, tmp_path):
    need = sr.footprint(sr.grids.cliff(), REPLAY).total
    monkeypatch.setattr(footprints, "MATTERS", 2**10)
    monkeypatch.setattr(footprints, "MEMINFO", meminfo(tmp_path, need + 1024))
    sr.learn(sr.grids.cliff(), REPLAY, 10, 1)
    monkeypatch.setattr(footprints, "MEMINFO", meminfo(tmp_path, 0))
    monkeypatch.setattr(footprints, "MATTERS", need)
    sr.learn(sr.grids.cliff(), REPLAY, 10, 1)


def test_the_free_memory_is_what_the_system_says_and_no_more_than_its_limit(monkeypatch, tmp_path):
    monkeypatch.setattr(footprints, "CGROUP", tmp_path / "none")
    monkeypatch.setattr(footprints, "MEMINFO", meminfo(tmp_path, 2**30))
    assert footprints.free_memory() == 2**30
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(footprints, "CGROUP", limit)
    for text, free in (("max\n", 2**30), ("1048576\n", 2**20), (f"{2**40}\n", 2**30)):
        limit.write_text(text)
        assert footprints.free_memory() == free


@pytest.mark.parametrize("text", [None, "", "MemTotal: 3 kB\n", "MemAvailable: many kB\n", "no colon\n"])
def test_where_the_free_memory_is_unknown_nothing_is_refused(monkeypatch, tmp_path, text):
    file = tmp_path / "meminfo"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(footprints, "MEMINFO", file)
    assert footprints.free_memory() is None
    monkeypatch.setattr(footprints, "MATTERS", 0)
    sr.learn(sr.grids.cliff(), sr.QLearning(), 10, 1)
