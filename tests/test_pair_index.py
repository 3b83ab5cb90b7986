"""The sampling core: exact draws, exact statistics, under everything that can happen to a memory."""

import pickle
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import safereplay as sr
from safereplay.kernels import layers as lay
from safereplay.kernels.layers import is_sound

SCHEMES = [
    sr.EntropicReplay(2.0),
    sr.EntropicReplay(-6.0),
    sr.ScoreReplay(2.0),
    sr.ScoreReplay(-1.5),
    sr.ScoreReplay(0.0),
    sr.VarianceReplay(5.0),
    sr.Scheme(),
]
MIXINGS = ["matched", "literal"]
QUICK = (sr.EntropicReplay(2.0), sr.ScoreReplay(2.0))


def distance(index, draws=400_000):
    """Total variation between draws and the exact p̃, over what it is on average for draws from p̃ itself."""
    p = index.distribution()
    drawn = np.bincount(index.draw(draws), minlength=index.capacity) / draws
    floor = 0.5 * np.sqrt(2 / np.pi * p * (1 - p) / draws).sum()
    return 0.5 * np.abs(p - drawn).sum() / floor


def busy(scheme, mixing="matched", capacity=300, steps=1500, seed=0, scale=(0.0, 1.0, 1.0, 20.0, 1e3)):
    """An index after many rounds of everything: rings that wrap, drops, new values, values not yet known, outliers."""
    rng = np.random.default_rng(seed)
    index = sr.PairIndex(capacity, scheme, 0.7, mixing, seed)
    for t in range(steps):
        m = rng.integers(1, 5)
        x = rng.normal(size=m) * rng.choice(scale, m)
        x[rng.random(m) < 0.05] = np.nan
        index.put((np.arange(m) + 3 * t) % capacity, rng.integers(0, 12, m), x)
        if t % 7 == 0:
            index.drop(rng.integers(0, capacity, 2))
        if t % 5 == 0:
            held = np.flatnonzero(index.is_held(np.arange(capacity)))
            index.value(rng.choice(held, 2), rng.normal(size=2))
    return index


@pytest.mark.parametrize(
    ("scheme", "mixing"),
    [
        pytest.param(scheme, mixing, marks=[] if scheme in QUICK else pytest.mark.slow)
        for scheme in SCHEMES
        for mixing in MIXINGS
    ],
    ids=repr,
)
def test_what_is_drawn_is_the_exact_distribution_after_everything_that_can_happen(scheme, mixing):
    """Seed 0, 400,000 draws: the distance is within 20 % of what the draws' own noise gives (0.7 to 1.2 were seen)."""
    index = busy(scheme, mixing)
    assert abs(index.distribution().sum() - 1) < 1e-12
    assert distance(index) < 1.2


def test_the_distance_above_would_see_another_tilt():
    index = busy(sr.ScoreReplay(2.0))
    state = index.state_dict()
    other = sr.PairIndex(index.capacity)
    other.load_state_dict({**state, "scheme": sr.ScoreReplay(2.2).to_dict()})
    p, q = index.distribution(), other.distribution()
    floor = 0.5 * np.sqrt(2 / np.pi * p * (1 - p) / 400_000).sum()
    assert 0.5 * np.abs(p - q).sum() > 1.5 * floor


@pytest.mark.parametrize("mixing", MIXINGS)
def test_p_tilde_is_the_sum_in_the_definition(mixing):
    """Three pairs by hand: ρ = v·u, ŵ ∝ e^{−β(x − x̄)/σ}; literal: a share v by W/ΣW."""
    keys, x = [5, 5, 5, 9, 9, 4], np.array([1.0, 1.0, -2.0, 3.0, 5.0, 7.0])
    index = sr.PairIndex(6, sr.ScoreReplay(1.5), 0.6, mixing)
    index.put(np.arange(6), keys, x)
    expected = np.zeros(6)
    for key, share in ((5, 1 / 2), (9, 1 / 3), (4, 1 / 6)):
        at = [i for i, k in enumerate(keys) if k == key]
        rho, w = 0.0, np.ones(len(at)) / len(at)
        if x[at].std() > 0:
            w = np.exp(-1.5 * (x[at] - x[at].mean()) / x[at].std())
            w, rho = w / w.sum(), 0.6
        if mixing == "matched":
            expected[at] = share * ((1 - rho) / len(at) + rho * w)
        else:
            expected[at] = 0.4 / 6 + (0.6 * 0.5 * w if rho else 0.0)  # two of the three pairs have weight
    np.testing.assert_allclose(index.distribution(), expected, rtol=1e-12)


def test_running_statistics_are_exact_however_often_slots_are_overwritten():
    """200,000 overwrites with outliers of 1e6 that come and go: as near to a fresh sum as rounding allows."""
    rng, n = np.random.default_rng(1), 50
    index = sr.PairIndex(n, sr.ScoreReplay(1.0))
    for _ in range(2000):
        x = rng.normal(size=100) + np.where(rng.random(100) < 0.01, 1e6, 0.0)
        index.put(rng.integers(0, n, 100), rng.integers(0, 2, 100), x)
    table, keys, held = index.pair_table(), index.key_of(np.arange(n)), index.x_of(np.arange(n))
    for key, mean, std in zip(table["key"], table["mean"], table["std"], strict=True):
        of = held[keys == key]
        assert mean == pytest.approx(of.mean(), rel=1e-9, abs=1e-9)
        assert std == pytest.approx(of.std(), rel=1e-9)


@pytest.mark.parametrize("scheme", [sr.ScoreReplay(1.0), sr.ScoreReplay(20.0), sr.VarianceReplay(0.5)], ids=repr)
def test_the_pool_is_never_overrun_when_large_pairs_are_layered_anew(scheme):
    """Pairs of up to 3,000 slots with rare outliers, and 2^k + 1 even values followed by one: all layers collapse into one."""
    rng = np.random.default_rng(0)
    index = sr.PairIndex(3000, scheme)
    for k in range(3000):
        index.put([k], [rng.integers(2)], [-100.0 if rng.random() < 0.01 else rng.normal()])
        assert index._here.heads[lay.POOL_TOP] <= index._here.pool.size
    for power in range(5, 11):
        index = sr.PairIndex(2 + 2**power, scheme)
        index.put(np.arange(1 + 2**power), np.zeros(1 + 2**power, int), np.linspace(0, 1, 1 + 2**power))
        index.put([1 + 2**power], [0], [-1e9])
        assert index._here.heads[lay.POOL_TOP] <= index._here.pool.size
        assert is_sound(index._here)


def test_a_variance_that_was_large_for_a_while_leaves_nothing_behind():
    """A constant slope (VarianceReplay): outliers up to 1e8 come and go between layerings."""
    rng = np.random.default_rng(0)
    index = sr.PairIndex(200, sr.VarianceReplay(1e-7))
    index.put(np.arange(200), np.zeros(200, int), rng.normal(size=200))
    for k in range(300):
        index.put([k % 200], [0], [rng.choice([1e8, 1e7, -1e8])])
        index.put([k % 200], [0], [rng.normal()])
    assert index.pair_table()["std"][0] == pytest.approx(index.x_of(np.arange(200)).std(), rel=1e-6)


def test_few_slots_far_below_the_capacity_are_found_at_once():
    index = sr.PairIndex(1000)
    index.put(np.arange(1000), np.zeros(1000, int), np.zeros(1000))
    index.drop(np.arange(10, 1000))
    assert index._here.heads[lay.HIGH] == 10
    assert set(index.draw(200)) == set(range(10))


def test_rho_is_zero_where_a_pair_is_never_drawn():
    index = sr.PairIndex(4, v=1.0, mixing="literal")
    index.put([0, 1, 2], [0, 0, 1], [0.0, 1.0, 5.0])
    assert index.rho([0, 2]).tolist() == [1.0, 0.0]


def test_a_pair_whose_outlier_was_overwritten_has_no_variance_at_all():
    index = sr.PairIndex(100, sr.ScoreReplay(1.0, floor=0.0))
    index.put(np.arange(100), np.zeros(100, int), np.full(100, 0.1))
    for _ in range(50):
        index.put([3], [0], [-1e9])
        index.put([3], [0], [0.1])
    assert index.pair_table()["std"].tolist() == [0.0]
    assert index.rho([0]).tolist() == [0.0]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 7), st.integers(0, 3), st.floats(-1e6, 1e6)), max_size=60),
    st.data(),
)
@settings(max_examples=150, deadline=None)
def test_whatever_happens_no_draw_belongs_to_another_pair(changes, data):
    """Against a dict as the model: what is held, each slot's pair and x, every drawn slot held; and the arrays stay whole."""
    mixing = data.draw(st.sampled_from(MIXINGS))
    index, model = sr.PairIndex(8, sr.ScoreReplay(3.0), 0.9, mixing), {}
    for kind, slot, key, x in changes:
        if kind == 0 or (kind == 1 and slot not in model):
            index.put([slot], [key], [x])
            model[slot] = key, x
        elif kind == 1:
            index.value([slot], [x])
            model[slot] = model[slot][0], x
        else:
            index.drop([slot])
            model.pop(slot, None)
        assert is_sound(index._here)
        assert len(index) == len(model)
        assert index.n_pairs == len({key for key, _ in model.values()})
        if model:
            slots = np.array(sorted(model))
            assert index.key_of(slots).tolist() == [model[s][0] for s in slots]
            assert index.x_of(slots).tolist() == [model[s][1] for s in slots]
            assert set(index.draw(20)) <= set(model)


def test_a_tilted_draw_stays_in_the_pair_of_its_anchor():
    """At v = 1 with every other pair without noise: the share of draws of each pair is that of its slots, to 4 standard errors."""
    rng = np.random.default_rng(0)
    keys, index = rng.integers(0, 20, 5000), sr.PairIndex(5000, sr.ScoreReplay(4.0), 1.0)
    index.put(np.arange(5000), keys, np.where(keys % 2, rng.normal(size=5000), 1.0))
    drawn = np.bincount(keys[index.draw(200_000)], minlength=20) / 200_000
    share = np.bincount(keys, minlength=20) / 5000
    assert (np.abs(drawn - share) < 4 * np.sqrt(share / 200_000)).all()
    assert index.tilted.mean() == pytest.approx(share[1::2].sum(), abs=0.005)


def test_a_rare_disaster_is_found_at_once():
    """One in 100,000, at β = 5 it is nearly all that the pair replays; no search through the others."""
    n = 100_000
    index = sr.PairIndex(n, sr.ScoreReplay(5.0), 0.5)
    x = np.ones(n)
    x[777] = -100.0
    index.put(np.arange(n), np.zeros(n, int), x)
    assert (index.draw(10_000) == 777).mean() == pytest.approx(0.5, abs=0.02)


def test_a_value_that_is_not_known_yet_is_drawn_but_not_tilted_to():
    index = sr.PairIndex(4, sr.ScoreReplay(1.0), 1.0)
    index.put([0, 1, 2, 3], [0, 0, 0, 0], [1.0, np.nan, -1.0, np.nan])
    low = np.exp(1.0) / (np.exp(1.0) + np.exp(-1.0))
    np.testing.assert_allclose(index.distribution(), [1 - low, 0.0, low, 0.0], atol=1e-12)
    assert index.pair_table()["n"].tolist() == [2]
    index.drop([0, 2])
    np.testing.assert_allclose(index.distribution(), [0.0, 0.5, 0.0, 0.5])
    index.value([1], [5.0])
    assert set(index.draw(100)) == {1, 3}


# -- the same bits -------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_draws_and_another_does_not():
    one, two = busy(sr.ScoreReplay(1.0)), busy(sr.ScoreReplay(1.0))
    assert (one.draw(1000) == two.draw(1000)).all()
    three = sr.PairIndex(300, seed=1)
    three.put(np.arange(300), np.zeros(300, int), np.arange(300.0))
    four = sr.PairIndex(300, seed=2)
    four.put(np.arange(300), np.zeros(300, int), np.arange(300.0))
    assert (three.draw(1000) != four.draw(1000)).any()


@pytest.mark.parametrize("mixing", MIXINGS)
def test_a_loaded_state_goes_on_as_if_nothing_had_happened(mixing):
    index = busy(sr.ScoreReplay(1.0), mixing)
    other = sr.PairIndex(300)
    other.load_state_dict(index.state_dict())
    copy = pickle.loads(pickle.dumps(index))  # noqa: S301 (what SB3 does to a buffer)
    for k in range(200):
        for i in (index, other, copy):
            i.put([k], [k % 5], [float(k % 3)])
        drawn = index.draw(32)
        assert (drawn == other.draw(32)).all()
        assert (drawn == copy.draw(32)).all()
        assert (other.tilted == index.tilted).all()
    assert distance(other) < 1.2


def test_compiled_and_plain_python_draw_the_same(tmp_path):
    code = """
import warnings; warnings.simplefilter("ignore")
import numpy as np, safereplay as sr
for mixing in ("matched", "literal"):
    rng = np.random.default_rng(0)
    index = sr.PairIndex(20, sr.ScoreReplay(2.0), 0.7, mixing, 5)
    for t in range(60):
        index.put([t % 20], [rng.integers(0, 3)], [rng.normal()])
    print(index.draw(50).tolist(), index.pair_table()["std"].tolist())
"""
    run = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**__import__("os").environ, **env},
        )
        for env in ({}, {"NUMBA_DISABLE_JIT": "1"})
    ]
    assert run[0].stdout == run[1].stdout


# -- what it costs -------------------------------------------------------------------------------------------------------


def test_memory_grows_with_what_is_held_and_stays_below_64_bytes_a_transition():
    """10^5 transitions of 10^4 pairs; a fresh one has its slots alone."""
    n = 100_000
    index = sr.PairIndex(n)
    assert index.nbytes < 30 * n
    rng = np.random.default_rng(0)
    for _ in range(3):  # overwritten, so that what was freed is reused
        index.put(np.arange(n), rng.integers(0, 10_000, n), rng.normal(size=n))
    assert index.nbytes < 64 * n


def test_pairs_that_are_gone_leave_no_trace():
    index = sr.PairIndex(1000)
    for k in range(50):
        index.put(np.arange(1000), np.arange(1000) + 1000 * k, np.zeros(1000))
    assert index.n_pairs == 1000
    assert len(index._here.pairs) <= 2048
    index.clear()
    assert (len(index), index.n_pairs) == (0, 0)


# -- bad input -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bent(sr.Scheme):
    @staticmethod
    def log_tilt(r):
        return -r * r


@dataclass(frozen=True)
class Worst(sr.Scheme):
    @staticmethod
    def pair_weight(r_min):
        return -r_min


@dataclass(frozen=True)
class Negative(sr.Scheme):
    @staticmethod
    def pair_weight(mean):
        return mean


def test_bad_arguments_get_one_line():
    for match, make in {
        r"capacity must be at least 1, got 0": lambda: sr.PairIndex(0),
        r"v must be in \[0, 1\], got 1.5": lambda: sr.PairIndex(5, v=1.5),
        r"unknown mixing 'matchd'; did you mean 'matched'\?": lambda: sr.PairIndex(5, mixing="matchd"),
        r"scheme must be a Scheme, got 3": lambda: sr.PairIndex(5, 3),
        r"Bent.log_tilt must be a straight line in r here, got a bend at r = 0": lambda: sr.PairIndex(5, Bent()),
        r"Worst.pair_weight must name only r, n, mean, var and its own dials here, got r_min": lambda: sr.PairIndex(
            5, Worst()
        ),
    }.items():
        with pytest.raises(sr.BadInput, match=match):
            make()
    index = sr.PairIndex(5)
    for match, act in {
        r"slots must be in 0..4, got 5": lambda: index.put([5], [0], [0.0]),
        r"slots must be in 0..4, got -1": lambda: index.drop([-1]),
        r"x must lie within ±1e\+100, got inf; at slot 2": lambda: index.put([1, 2], [0, 0], [0.0, np.inf]),
        r"slots must be held, got 4": lambda: index.value([4], [0.0]),
        r"keys must have shape \(2,\), as slots, got \(1,\)": lambda: index.put([0, 1], [0], [0.0, 0.0]),
        r"slots must be whole numbers, got \[0.5\]": lambda: index.put([0.5], [0], [0.0]),
        r"keys must be whole numbers, got array\(\[0.2\]\)": lambda: index.put([0], [0.2], [0.0]),
        r"batch must be at least 0, got -1": lambda: index.draw(-1),
        r"slots must be in 0..4, got -2": lambda: index.rho([0, -2]),
    }.items():
        with pytest.raises(sr.BadInput, match=match):
            act()
    assert len(index) == 1  # what came before the bad one was put
    with pytest.raises(sr.BadInput, match="slots held must number at least 1, got 0; nothing was put yet"):
        sr.PairIndex(5).draw(1)
    with pytest.raises(sr.BadInput, match="pair_weight must be at least 0 and finite"):
        sr.PairIndex(5, Negative()).put([0], [0], [-1.0])


def test_a_state_that_was_tampered_with_is_refused_and_nothing_changes():
    index = busy(sr.ScoreReplay(1.0), "literal", steps=200)
    good = index.state_dict()
    rng, refused = np.random.default_rng(0), 0
    for name in ("slots", "pairs", "layers", "pool", "table", "heads"):
        for _ in range(30):
            state = {**good, name: good[name].copy()}
            raw = state[name].view(np.int32)
            raw[rng.integers(raw.size)] = rng.integers(-(2**31), 2**31)
            other = sr.PairIndex(300, mixing="literal")
            try:
                other.load_state_dict(state)
                for k in range(300):  # what was let through must be harmless
                    other.put([k], [k % 7], [float(k % 3)])
                    other.draw(3)
            except sr.BadInput:
                refused += 1
                assert len(other) == 0
    assert refused > 40  # most of the arrays is not in use yet
    for broken in ({"pool": good["pool"].astype(float)}, {"table": good["table"][:-1]}, {"slots": good["slots"][:-1]}):
        with pytest.raises(sr.BadInput, match="must"):
            sr.PairIndex(300).load_state_dict({**good, **broken})


def test_the_layers_of_a_pair_are_bounded_and_hold_near_equal_weights():
    index = busy(sr.ScoreReplay(5.0), capacity=2000, steps=4000)
    here = index._here
    for i in np.flatnonzero(here.pairs["held"][: here.heads[lay.PAIR_TOP]] > 0):
        bins, b = [], here.pairs[i]["first"]
        while b != lay.NONE:
            layer = here.layers[b]
            members = here.pool[layer["start"] : layer["start"] + layer["n"]]
            deep = here.pairs[i]["slope"] * (here.slots["x"][members] - here.pairs[i]["origin"])
            assert (deep >= layer["bin"]).all()
            assert layer["bin"] == lay.REACH or (deep < layer["bin"] + 1).all()
            bins.append(int(layer["bin"]))
            b = layer["next"]
        assert bins == sorted(set(bins))
        assert len(bins) <= 2 * lay.REACH + 1


@pytest.mark.parametrize(
    "scale", [[], [1.0], [np.nan, 1.0, 0.0], [-1.0, -1.0, 0.0], [0.0, 3.0, 0.0], [9.0, 1.0, 0.0]], ids=str
)
def test_a_state_whose_unit_does_not_fit_is_refused(scale):
    """Kernels index these arrays unchecked: a file may have been changed by anyone."""
    index = busy(sr.EntropicReplay(2.0))
    with pytest.raises(sr.BadInput, match="arrays that do not fit together"):
        sr.PairIndex(index.capacity).load_state_dict({**index.state_dict(), "scale": np.array(scale, float)})


def test_a_state_from_before_there_was_a_unit_goes_on_draw_by_draw():
    index = busy(sr.ScoreReplay(2.0))
    state = index.state_dict()
    del state["scale"]
    other = sr.PairIndex(index.capacity)
    other.load_state_dict(state)
    assert (other.draw(1000) == index.draw(1000)).all()


def test_a_state_with_a_pair_of_which_no_number_is_known_can_be_loaded():
    index = sr.PairIndex(4, v=0.9)
    index.put([0, 1, 2], [7, 7, 8], [1.0, -1.0, np.nan])
    index.draw(1)  # measures the unit, and builds the layers of all pairs
    other = sr.PairIndex(4)
    other.load_state_dict(index.state_dict())
    assert other.draw(100).tolist() == index.draw(100).tolist()
