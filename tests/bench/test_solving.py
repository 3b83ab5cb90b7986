import numpy as np
import pytest

from benchmarks.speed import solving
from safereplay.theory.solver import by_policies


@pytest.mark.slow  # mdpsolver's threads wait for each other by turning round, which takes long on busy cores
@pytest.mark.parametrize("kind", solving.MODELS)
def test_every_solver_solves_the_same_model_to_the_same_tolerance(kind):
    rows = solving.measure_solving(kind, 400, rounds=1)
    assert [row.solver.split(",")[0] for row in rows] == [
        "safereplay",
        *(p for p in solving.PEERS if p not in solving.missing()),
    ]
    assert all(row.error <= solving.TOLERANCE and row.seconds > 0.0 for row in rows)
    assert rows[0].ratio == 1.0


@pytest.mark.parametrize("peer", ["quantecon", pytest.param("mdpsolver", marks=pytest.mark.slow)])
def test_every_method_of_a_peer_finds_the_optimal_values(peer):
    pytest.importorskip(peer, reason=f"{peer} is not installed")
    mdp = solving.random_mdp(100)
    exact = by_policies(mdp, mdp.p).max(1)
    for method in solving.FORMS[peer](mdp):
        np.testing.assert_allclose(method.solve(), exact, rtol=0, atol=solving.TOLERANCE)


def test_the_end_is_a_state_that_stays_and_pays_nothing():
    mdp = solving.slippery_grid(9)
    P, R = solving.with_end(mdp)
    np.testing.assert_allclose(P.sum(1), 1.0)
    assert (P[-mdp.n_actions :, -1].toarray() == 1.0).all()
    assert (R[-mdp.n_actions :] == 0.0).all()


def test_peers_that_are_not_there_are_left_out(monkeypatch):
    monkeypatch.setattr(solving, "missing", lambda: ["mdpsolver"])
    ours, theirs = solving.measure_solving("random", 400, rounds=1)
    assert ours.solver == "safereplay"
    assert theirs.solver.startswith("quantecon")
    assert max(ours.error, theirs.error) <= solving.TOLERANCE


def test_a_method_that_took_long_enough_has_no_further_turn(monkeypatch):
    monkeypatch.setattr(solving, "missing", lambda: ["mdpsolver", "quantecon"])
    turns = []
    monkeypatch.setattr(solving, "seconds_of", lambda method: (turns.append(method.name) or 1.0, method.solve()))
    monkeypatch.setattr(solving, "ENOUGH", 1.5)
    assert solving.measure_solving("random", 100, rounds=5)[0].seconds == 1.0
    assert turns == ["safereplay"] * 2
