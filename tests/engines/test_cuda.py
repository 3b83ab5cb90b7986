"""The GPU's engine where there is no GPU: its layout on the CPU, its kernel in numba's simulator."""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import safereplay as sr
from safereplay.engines import cuda, work
from safereplay.errors import MissingExtra

HELPER = Path(__file__).parent.parent / "helpers" / "simulated.py"

needs_numba_cuda = pytest.mark.skipif(
    importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed"
)


def a_run(mdp, learner, seed=0):
    point = work.Point("m", mdp, learner, sr.EpsilonGreedy(), sr.PowerStep(), {})
    return work.Run("", point, seed)


@pytest.mark.whole
@needs_numba_cuda
@pytest.mark.parametrize(("every", "cases"), [(9, 8), pytest.param(1, 59, marks=pytest.mark.slow)])
def test_in_the_simulator_learners_give_the_cpus_bits(every, cases):
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, HELPER, str(every)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert len(found) == cases
    assert {name: x for name, x in found.items() if x != 0.0} == {}


def test_pairs_with_one_reward_need_no_memory_under_the_papers_scheme():
    for mdp, kept in ((sr.grids.volatile(), 3), (sr.grids.cliff(), 23)):
        forgotten = cuda.forgettable(mdp, {sr.VarianceReplay(5.0), sr.VarianceReplay(-1.0)})
        rewards = [set(mdp.r[mdp.pair == i]) for i in range(mdp.n_pairs)]
        assert (~forgotten).sum() == kept
        assert forgotten.tolist() == [len(x) <= 1 for x in rewards]


@dataclass(frozen=True)
class Loud(sr.Scheme):
    """Weighs every pair that was seen by its mean reward."""

    @staticmethod
    def pair_weight(mean):
        return mean * mean


@dataclass(frozen=True)
class Fussy(sr.Scheme):
    """The paper's weights, with a tilt that is no number where the reward is −1."""

    @staticmethod
    def pair_weight(var):
        return var

    @staticmethod
    def log_tilt(r):
        return 1.0 / (r + 1.0) ** 2


def test_a_pair_whose_tilt_a_cpu_would_refuse_is_not_forgotten():
    mdp = sr.grids.cliff()
    forgotten = cuda.forgettable(mdp, {Fussy()})
    assert not forgotten[mdp.pair[mdp.r == -1.0]].any()


def test_a_scheme_that_weighs_certain_pairs_forgets_none_of_them():
    mdp = sr.grids.cliff()
    assert not cuda.forgettable(mdp, {sr.Scheme()}).any()
    assert not cuda.forgettable(mdp, {sr.VarianceReplay(), sr.Scheme()}).any()
    assert not cuda.forgettable(mdp, {Loud()})[mdp.pair[mdp.r != 0.0]].any()


@needs_numba_cuda
@pytest.mark.parametrize("learner", [sr.QLearning(), sr.ReplayQLearning(), sr.WorstTransition()])
def test_the_layout_moves_outcomes_but_changes_none(learner):
    mdp = sr.grids.cliff()
    plan = cuda.Layout.of([a_run(mdp, learner)])
    for i in range(mdp.n_pairs):
        old, new = slice(mdp.row[i], mdp.row[i + 1]), slice(plan.model.first[i], plan.model.stop[i])
        for name, column in (("r", mdp.r), ("s_next", mdp.s_next), ("ends", mdp.terminal)):
            assert getattr(plan.model, name)[new].tolist() == column[old].tolist()
    rows = plan.slots.row
    assert [plan.slots.pair[row] for row in rows[rows >= 0]] == np.flatnonzero(rows >= 0).tolist()
    if learner.replay is not None:
        assert (plan.model.stop[rows >= 0] <= plan.n_slots).all()


@needs_numba_cuda
def test_long_runs_come_first_and_batches_hold_no_more_than_the_memory(monkeypatch):
    monkeypatch.setattr(cuda, "_free_memory", lambda: 4.0 / cuda.ROOM)
    runs = [a_run(sr.grids.cliff(), sr.ReplayQLearning(v=v)) for v in (0.1, 0.9, 0.5, 0.9, 0.0)]
    assert list(cuda._batches(runs, 2)) == [[1, 3], [2, 0], [4]]


@needs_numba_cuda
def test_products_and_sums_are_rounded_one_by_one(monkeypatch):
    from safereplay.kernels import device

    asked = {}

    def compile_ir(ir, **options):
        asked.update(options)
        return b"mul.f64 a; add.f64 b; sub.rn.f64 c; fma.rn.f64 d; mul.f32 e;"

    monkeypatch.setattr(device.nvvm, "compile_ir", compile_ir)
    with device.rounded_one_by_one():
        code = device.nvvm.compile_ir("", opt=3)
    assert code == b"mul.rn.f64 a; add.rn.f64 b; sub.rn.f64 c; fma.rn.f64 d; mul.f32 e;"
    assert asked == {"opt": 3, "fma": False}
    assert device.nvvm.compile_ir is compile_ir


@pytest.mark.skipif(cuda.available() is None, reason="there is a GPU")
def test_without_a_gpu_the_engine_says_why():
    with pytest.raises(MissingExtra, match=r"engine 'cuda' must find a GPU, got none: (numba-cuda|no CUDA GPU)"):
        cuda.CudaEngine()


@needs_numba_cuda
def test_designed_replay_is_refused_on_a_gpu_with_the_engine_to_use():
    scheme = sr.DesignedReplay([(53, 19, True, -12.0, 1.0)])
    message = "learner must have numbers as dials on a GPU, no tables, got .*; use engine='threads'"
    with pytest.raises(sr.BadInput, match=message):
        cuda.Layout.of([a_run(sr.grids.cliff(), sr.ReplayQLearning(scheme, v=0.2, mixing="matched"))])
