import dataclasses
import subprocess
import sys
import types

import pytest
from small_sweeps import SMALL, Impatient, everything, ids, note, parts, stamps

import safereplay as sr
from safereplay.engines.sweeps import Store
from safereplay.engines.work import ThreadsEngine


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The rows of an uninterrupted sweep."""
    return sr.sweep(SMALL, tmp_path_factory.mktemp("whole"), quiet=True).table()


class Stopping(Impatient):
    """An engine that is interrupted after some chunks."""

    def __init__(self, after, error=KeyboardInterrupt):
        super().__init__()
        self.after, self.error, self.closed = after, error, 0

    def finish(self, chunks, terms):
        for k, done in enumerate(super().finish(chunks, terms)):
            if k == self.after:
                raise self.error
            yield done

    def close(self):
        self.closed += 1


def test_the_dataset_says_what_learn_and_evaluate_say(whole):
    rows = whole.to_pylist()
    assert len(rows) == 54
    for row in rows[::6]:
        mdp = getattr(sr.grids, row["model"])(gamma=row["gamma"])
        learner = sr.QLearning() if row["kind"] == "QLearning" else sr.ReplayQLearning(v=row["v"])
        runs = sr.learn(mdp, learner, row["episodes"], [row["seed"]], quiet=True)
        risk = sr.evaluate(mdp, runs.policy[0], start=mdp.origin)
        assert row["policy"] == runs.policy[0].tolist()
        assert row["verdict"] == runs.verdicts[0]
        assert (row["mean"], row["p_unsafe"], row["cvar10"]) == (risk.mean, risk.p_unsafe, risk.cvar(0.1))
        assert row["beta"] == (None if learner.replay is None else 5.0)


@pytest.mark.parametrize("engine", [ThreadsEngine(1), ThreadsEngine(3), Impatient(2, 1)], ids=["1", "3", "one by one"])
def test_rows_are_the_same_however_the_work_is_cut(tmp_path, whole, engine):
    assert sr.sweep(SMALL, tmp_path, engine, quiet=True).table().equals(whole)


def test_the_default_folder_is_named_after_the_file(tmp_path, monkeypatch, whole):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text("episodes = 50\nseeds = 1\n[models.cliff]\n[learners.q]\n")
    found = sr.sweep("study.toml", quiet=True)
    assert str(found.folder) == "sweeps/study"
    assert (found.runs, found.done, found.already, found.interrupted) == (1, 1, 0, False)
    assert (tmp_path / "sweeps" / "study" / "spec.toml").read_text() == (tmp_path / "study.toml").read_text()
    assert found.to_dict() == {**dataclasses.asdict(found), "folder": "sweeps/study"}
    with pytest.raises(sr.BadInput, match="out must name a folder where the spec is not a file, got None"):
        sr.sweep(SMALL)


def test_an_interrupted_sweep_keeps_what_is_finished_and_goes_on(tmp_path, whole):
    engine = Stopping(after=5)
    first = sr.sweep(SMALL, tmp_path, engine, quiet=True)
    assert first.interrupted
    assert engine.closed == 1
    assert first.done == len(ids(tmp_path)) > 0
    kept = stamps(tmp_path)
    second = sr.sweep(SMALL, tmp_path, quiet=True)
    assert (second.interrupted, second.already) == (False, first.done)
    assert second.done == 54 - first.done
    assert kept.items() <= stamps(tmp_path).items()
    assert second.table().equals(whole)
    assert note(tmp_path)["runs"] == 54


def test_an_error_of_the_engine_keeps_what_is_finished_and_closes_it(tmp_path, whole):
    engine = Stopping(after=4, error=RuntimeError)
    with pytest.raises(RuntimeError):
        sr.sweep(SMALL, tmp_path, engine, quiet=True)
    assert engine.closed == 1
    assert ids(tmp_path)
    assert sr.sweep(SMALL, tmp_path, quiet=True).table().equals(whole)


def test_a_run_counts_only_when_its_part_is_in_place(tmp_path, monkeypatch):
    add = Store.add

    def failing(self, table):
        if len(self.done) > 6:
            raise KeyboardInterrupt
        add(self, table)

    monkeypatch.setattr(Store, "add", failing)
    found = sr.sweep(SMALL, tmp_path, Impatient(), quiet=True)
    assert found.interrupted
    assert found.done == len(ids(tmp_path))


def test_a_run_counts_when_the_interrupt_strikes_just_after_its_part_is_in_place(tmp_path, monkeypatch):
    write = Store._write

    def struck(self, name, table):
        write(self, name, table)
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "_write", struck)
    found = sr.sweep(SMALL, tmp_path, Impatient(), quiet=True)
    assert found.interrupted
    assert found.done == len(ids(tmp_path)) > 0


def test_an_engine_that_loses_runs_is_found_out(tmp_path):
    class Forgetful(Impatient):
        def finish(self, chunks, terms):
            results = super().finish(chunks, terms)
            next(results)
            yield from results

    with pytest.raises(sr.BadInput, match=r"the engine must finish every run, got \d+ of 54"):
        sr.sweep(SMALL, tmp_path, Forgetful(), quiet=True)


def test_an_engine_is_not_started_when_nothing_is_left(tmp_path, monkeypatch):
    sr.sweep(SMALL, tmp_path, quiet=True)
    engine = Stopping(after=0)
    assert sr.sweep(SMALL, tmp_path, engine, quiet=True).done == 0
    assert engine.closed == 0


def test_engines_are_named(tmp_path):
    with pytest.raises(sr.BadInput, match="unknown engine 'thread'; did you mean 'threads'"):
        sr.sweep(SMALL, tmp_path, "thread")
    with pytest.raises(sr.BadInput, match="address must go with the engine ray, got 'auto'"):
        sr.sweep(SMALL, tmp_path, address="auto")
    with pytest.raises(sr.BadInput, match="threads must be at least 1, got 0"):
        sr.sweep(SMALL, tmp_path, threads=0)
    assert everything(tmp_path) == []


def stand_in(monkeypatch, name, **content):
    module = types.ModuleType(f"safereplay.engines.{name}")
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_where_there_is_no_gpu_one_line_says_so_and_threads_go_on(tmp_path, monkeypatch, capsys, whole):
    stand_in(monkeypatch, "cuda", CudaEngine=None, available=lambda: "no CUDA driver was found")
    found = sr.sweep(SMALL, tmp_path, "cuda")
    said = capsys.readouterr().err.strip().splitlines()
    assert said == ["safereplay: no GPU can be used here (no CUDA driver was found): using threads"]
    assert found.table().equals(whole)


def test_a_gpu_that_is_there_is_used(tmp_path, monkeypatch, whole):
    made = []

    class Pretended(ThreadsEngine):
        def __init__(self):
            super().__init__(1)
            made.append(self)

    stand_in(monkeypatch, "cuda", CudaEngine=Pretended, available=lambda: None)
    assert sr.sweep(SMALL, tmp_path, "cuda", quiet=True).table().equals(whole)
    assert len(made) == 1


def test_ray_gets_the_number_of_workers_and_the_address(tmp_path, monkeypatch, whole):
    asked = []

    class Pretended(ThreadsEngine):
        def __init__(self, workers, address):
            super().__init__(1)
            asked.append((workers, address))

    stand_in(monkeypatch, "ray", RayEngine=Pretended)
    assert sr.sweep(SMALL, tmp_path, "ray", threads=2, address="auto", quiet=True).table().equals(whole)
    assert asked == [(2, "auto")]


def test_ones_own_learners_sweep_too(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "wary_of_mine.py").write_text(
        "import safereplay as sr\nfrom dataclasses import dataclass\n"
        "@dataclass(frozen=True)\nclass WaryOfMine(sr.Learner):\n"
        "    LABEL = 'wary'\n    DIALS = ('trust',)\n    trust: float = 0.5\n"
        "    @staticmethod\n    def update(q, r, best, alpha, gamma, trust):\n"
        "        target = r + gamma * best\n"
        "        return q + alpha * (target - q) * (1.0 if target < q else trust)\n"
    )
    text = 'import = ["wary_of_mine"]\nepisodes = 50\nseeds = 1\n[models.cliff]\n[learners.w]\nkind = "WaryOfMine"\n'
    (tmp_path / "study.toml").write_text(text + "trust = [0.1, 0.9]\n")
    rows = sr.sweep(tmp_path / "study.toml", tmp_path / "out", quiet=True).table().to_pylist()
    assert sorted(row["trust"] for row in rows) == [0.1, 0.9]
    assert rows[0]["mean"] != rows[1]["mean"] or rows[0]["policy"] != rows[1]["policy"]


# -- disks ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path):
    """Mounts a small disk of its own, or changes the one that is there; skips where that is not allowed."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
        return place

    yield mount
    subprocess.run(["umount", place], capture_output=True)


def test_a_full_disk_gets_one_line_and_everything_finished_is_kept(disk, whole):
    out = disk("size=256k") / "out"
    said = (
        r"must be writable, got 'No space left on device'; (\d+) runs are kept in .*out; "
        "run the same command to continue"
    )
    with pytest.raises(sr.CannotWrite, match=said):
        sr.sweep(SMALL, out, Impatient(2, 1), quiet=True)
    kept = stamps(out)
    assert 0 < len(ids(out)) < 54
    assert sr.read_sweep(out).num_rows == len(ids(out)) == len(parts(out))
    assert not [f for f in everything(out) if f.rsplit("/")[-1].startswith(".")]
    with pytest.raises(sr.CannotWrite, match="No space left on device"):
        sr.sweep(SMALL, out, Impatient(2, 1), quiet=True)
    disk("remount,size=64m")
    assert sr.sweep(SMALL, out, quiet=True).table().equals(whole)
    assert kept.items() <= stamps(out).items()


def test_a_read_only_folder_gets_one_line_and_stays_readable(disk, whole):
    out = disk("size=16m") / "out"
    sr.sweep(SMALL, out, Stopping(after=5), quiet=True)
    rows = sr.read_sweep(out).num_rows
    disk("remount,ro")
    with pytest.raises(
        sr.CannotWrite, match="out must be a folder that can be written to, got 'Read-only file system'"
    ):
        sr.sweep(SMALL, out)
    with pytest.raises(
        sr.CannotWrite, match="new must be a folder that can be written to, got 'Read-only file system'"
    ):
        sr.sweep(SMALL, out.parent / "new")
    assert sr.read_sweep(out).num_rows == rows > 0
    disk("remount,rw")
    assert sr.sweep(SMALL, out, quiet=True).table().equals(whole)
