"""Every world does what it says: the table of the package, worked out again."""

import re
from inspect import signature

import numpy as np
import pytest

import safereplay as sr
from safereplay import catalog, worlds
from safereplay.errors import BadInput
from safereplay.theory.constrained import ceiling

ROWS = {
    row[0]: row[1:]
    for row in (line.split() for line in worlds.__doc__.splitlines())
    if row and row[0] in catalog.WORLDS
}
OWN = [name for name in ROWS if catalog.WORLDS[name].home.startswith("worlds:")]
FIRST_WORDS = {
    "reward": "Danger from rewards",
    "transition": "Danger from transitions",
    "delayed": "Danger that comes late",
    "rare": "Danger that is rare",
    "exploration": "Danger from exploring",
    "none": "No danger",
    "caution": "Caution is wrong",
}


def numbers(mdp):
    """Best mean; mean and P of Q*, of the safest, and of the paper's scheme."""
    best, safest = (ceiling(mdp, max_p_unsafe=limit, start=mdp.origin) for limit in (1.0, 0.0))
    found = [best.value]
    policies = [sr.exact(mdp, sr.QLearning()), sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v=0.5)]
    bold, replayed = (sr.evaluate(mdp, Q.argmax(1), start=mdp.origin) for Q in policies)
    assert bold.p_never == replayed.p_never == 0.0
    for mean, p in ((bold.mean, bold.p_unsafe), (safest.value, safest.best), (replayed.mean, replayed.p_unsafe)):
        found += [mean, p]
    return found


def test_the_table_has_worlds_of_every_danger():
    assert len(ROWS) >= 19
    assert {row[0] for row in ROWS.values()} == set(FIRST_WORDS)


@pytest.mark.parametrize("name", list(ROWS))
def test_the_table_is_true(name):
    danger, states, *written = ROWS[name]
    mdp = catalog.world(name)()
    assert danger == catalog.WORLDS[name].danger
    assert mdp.n_states == int(states)
    assert numbers(mdp) == pytest.approx([float(x.replace("∞", "inf")) for x in written], abs=5.001e-4)


@pytest.mark.parametrize("name", list(ROWS))
def test_danger_is_where_it_is_said_to_be(name):
    """Where harm can be had, Q* runs a risk that the safest avoids; a control has no risk worth running."""
    danger = catalog.WORLDS[name].danger
    mdp = catalog.world(name)()
    best, _, p_bold, _, p_safest, replay_mean, p_replay = numbers(mdp)
    moves = [
        len(set(zip(*mdp.outcomes(s, a)[1:4:2], strict=True)))
        for s, a in zip(*np.divmod(np.unique(mdp.pair), mdp.n_actions), strict=True)
    ]
    if danger == "reward":
        assert max(moves) == 1, "where a step leads is certain"
    if danger in ("reward", "transition", "rare", "delayed"):
        assert p_bold > p_safest + 0.02
    if danger in ("none", "exploration"):
        assert p_bold == p_safest == p_replay == 0.0
    if danger == "caution":
        assert p_replay >= p_bold
        assert replay_mean < best


@pytest.mark.parametrize("name", OWN)
def test_the_first_line_says_where_the_danger_comes_from(name):
    first = catalog.world(name).__doc__.splitlines()[0]
    assert re.match(FIRST_WORDS[catalog.WORLDS[name].danger], first), first
    assert ">>>" in catalog.world(name).__doc__


@pytest.mark.parametrize("name", OWN)
def test_worlds_are_small_can_be_saved_and_start_where_they_say(name, tmp_path):
    mdp = catalog.world(name)()
    assert mdp.n_states <= (500 if name == "taxi" else 200)
    assert mdp.start[mdp.origin] > 0
    assert sr.TabularMDP.load(mdp.save(tmp_path / "world.npz")) == mdp


@pytest.mark.parametrize("name", OWN)
def test_an_option_that_is_only_a_word_is_refused_by_its_name(name):
    make = catalog.world(name)
    for option in signature(make).parameters:
        with pytest.raises(BadInput, match=option):
            make(**{option: "x"})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lake", {"size": "9x9"}, "unknown size '9x9'"),
        ("lake", {"slippery": 2}, "slippery must"),
        ("cliff_walking", {"slippery": "no"}, "slippery must"),
        ("market", {"days": 0}, "days must be"),
        ("market", {"bond": "x"}, r"bond must list pairs \(probability, reward\), got 'x'"),
        ("market", {"stock": [[0.5, 1.0]]}, "p of stock must sum to 1, got 0.5"),
        ("two_gambles", {"small": 3}, r"small must list pairs \(probability, reward\), got 3"),
        ("flood", {"noise": "x"}, "noise must be a number, got 'x'"),
        ("fog", {"noise": "x"}, "noise must be a number, got 'x'"),
        ("fog", {"step": "x"}, "step must be a number, got 'x'"),
        ("river", {"current": 1.5}, "current must be in"),
        ("late_cliff", {"delay": 0}, "delay must be"),
        ("insurance", {"p": 0.0}, "p must be in"),
        ("insurance", {"premium": float("nan")}, "premium must be"),
        ("flood", {"rate": 1.0}, "rate must be in"),
        ("windfall", {"rounds": 0}, "rounds must be"),
        ("betting_game", {"win": 1.0}, r"win must be in \(0, 1\), got 1"),
        ("betting_game", {"money": 0}, "money must be at least 1, got 0"),
        ("guarded_maze", {"p": 1.5}, r"p must be in \[0, 1\], got 1.5"),
        ("guarded_maze", {"fee": 0.0}, "fee must be in"),
    ],
)
def test_what_no_world_can_be_is_refused(name, options, message):
    with pytest.raises(BadInput, match=message):
        catalog.world(name)(**options)
