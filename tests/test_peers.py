import numpy as np
import pytest

from safereplay import peers
from safereplay.theory.solver import by_policies


@pytest.mark.slow  # mdpsolver's threads wait for each other by turning round, which takes long on busy cores
@pytest.mark.parametrize("kind", peers.MODELS)
def test_every_solver_solves_the_same_model_to_the_same_tolerance(kind):
    rows = peers.measure_solving(kind, 400, rounds=1)
    assert [row.solver.split(",")[0] for row in rows] == [
        "safereplay",
        *(p for p in peers.PEERS if p not in peers.missing()),
    ]
    assert all(row.error <= peers.TOLERANCE and row.seconds > 0.0 for row in rows)
    assert rows[0].ratio == 1.0


@pytest.mark.parametrize("peer", ["quantecon", pytest.param("mdpsolver", marks=pytest.mark.slow)])
def test_every_method_of_a_peer_finds_the_optimal_values(peer):
    pytest.importorskip(peer, reason=f"{peer} is not installed")
    mdp = peers.random_mdp(100)
    exact = by_policies(mdp, mdp.p).max(1)
    for method in peers.FORMS[peer](mdp):
        np.testing.assert_allclose(method.solve(), exact, rtol=0, atol=peers.TOLERANCE)


def test_the_end_is_a_state_that_stays_and_pays_nothing():
    mdp = peers.slippery_grid(9)
    P, R = peers.with_end(mdp)
    np.testing.assert_allclose(P.sum(1), 1.0)
    assert (P[-mdp.n_actions :, -1].toarray() == 1.0).all()
    assert (R[-mdp.n_actions :] == 0.0).all()


def test_peers_that_are_not_there_are_left_out(monkeypatch):
    monkeypatch.setattr(peers, "missing", lambda: ["mdpsolver"])
    ours, theirs = peers.measure_solving("random", 400, rounds=1)
    assert ours.solver == "safereplay"
    assert theirs.solver.startswith("quantecon")
    assert max(ours.error, theirs.error) <= peers.TOLERANCE
