import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from waiting import END

import safereplay as sr
import safereplay.paper.report as reproduction
from safereplay._processes import processes
from safereplay.errors import CannotWrite
from safereplay.paper import experiments
from safereplay.paper.experiments import Effort, Work

TINY = Effort(
    seeds=2,
    episodes=2_000,
    dose_seeds=2,
    long_episodes=4_000,
    sweep_step=0.25,
    map_seeds=1,
    map_steps=2_400,
    map_points=2,
    curve_seeds=1,
    snapshots=6,
    tune_episodes=2_000,
    random_models=4,
    random_steps=12_000,
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A whole reproduction, as small as it can be."""
    folder = tmp_path_factory.mktemp("reproduction")
    heard = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "QUICK", TINY)
        verdicts = reproduction.reproduce(folder, True, lambda *told: heard.append(told), processes(1))
    return folder, verdicts, heard


def test_it_writes_the_report_the_claims_and_both_forms_of_each_figure(report):
    folder, _, _ = report
    assert {"report.html", "report.md", "claims.json", "figures"} == {p.name for p in folder.iterdir()}
    names = {p.stem for p in (folder / "figures").glob("*.svg")}
    assert names == {p.stem for p in (folder / "figures").glob("*.png")}
    assert {"figure-1", "figure-2", "kappa", "gaskett", "maps-cliff", "maps-volatile", "curves", "td-errors"} <= names


def test_every_picture_is_in_the_page_and_nothing_is_fetched(report):
    folder, _, _ = report
    page = (folder / "report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == page.count("<img") >= 12
    assert "http" not in page.replace("http://www.w3.org", "")


def test_claims_have_the_fields_that_others_rely_on(report):
    folder, verdicts, _ = report
    claims = json.loads((folder / "claims.json").read_text())
    assert [list(c) for c in claims] == [["id", "claim", "grid", "expected", "observed", "holds", "evidence"]] * len(
        verdicts
    )
    assert all(isinstance(c["holds"], bool) and c["evidence"] for c in claims)


def test_progress_only_grows_and_names_each_stage(report):
    _, _, heard = report
    shares = [done for _, done in heard]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert {stage.label for stage in reproduction.STAGES} <= {label for label, _ in heard}


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="file must be a folder that can be written to, got 'File exists'"):
        reproduction.reproduce(tmp_path / "file")


@pytest.mark.slow
def test_the_paper_holds_where_it_holds_and_not_where_it_does_not():
    """The eight claims of Section 5 at the defaults (20 seeds, 50,000 episodes), from the same code as the report."""
    effort = Effort(sweep_step=0.1, long_episodes=100_000)
    work = Work(lambda done: None)
    cast, kappa, gaskett = (
        experiments.run_cast(effort, work),
        experiments.run_kappa(effort, work),
        experiments.run_gaskett(effort, work),
    )
    for grid in experiments.GRIDS:
        assert cast.counts(grid, "Q-learning")["risky"] >= 19
        assert cast.counts(grid, "replay")["safe"] >= 19
        assert cast.counts(grid, "Mihatsch–Neuneier")["safe"] >= 19
    assert cast.counts("volatile", "Gaskett")["risky"] >= 19
    assert cast.counts("cliff", "Gaskett")["safe"] >= 19
    assert cast.counts("volatile", "worst transition")["risky"] >= 19
    assert kappa.band("volatile", "safe") == (0.3, 0.9)
    assert kappa.band("cliff", "safe") == (0.5, 0.8)
    assert gaskett.band("volatile", "safe") is None
    assert gaskett.band("cliff", "safe") == (0.1, 0.3)


def test_a_job_is_the_same_whatever_runs_beside_it():
    work = Work(lambda done: None)
    again = [experiments.run_cast(TINY, work) for _ in range(2)]
    for key, runs in again[0].runs.items():
        assert (runs.Q == again[1].runs[key].Q).all()


def test_a_job_that_fails_stops_the_rest(monkeypatch):
    """The others that have begun go on until the rest is called off."""
    begun, called_off, shutdown = [], threading.Event(), ThreadPoolExecutor.shutdown

    def noted(pool, wait=True, *, cancel_futures=False):
        shutdown(pool, wait=False, cancel_futures=cancel_futures)
        called_off.set()
        shutdown(pool, wait=wait)

    def job(k):
        begun.append(k)
        if k == 0:
            raise ValueError("no luck")
        assert called_off.wait(END)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", noted)
    work = Work(lambda done: None)
    with pytest.raises(ValueError, match="no luck"):
        work.map(job, list(range(5_000)))
    assert len(begun) <= work.threads + 1


@pytest.mark.parametrize(("kappa", "lengths"), [(0.0, 1), (0.3, 1), (0.6, 1), (0.95, 2)])
def test_a_run_of_a_sweep_ends_early_only_with_the_verdict_of_the_whole_run(kappa, lengths, monkeypatch):
    """The cliff, 500,000 episodes as in the full study, seed 0; at κ = 0.95 learning takes longer than a tenth of them."""
    mdp, learner, ran, learn = sr.grids.cliff(), sr.RiskSensitive(kappa), [], experiments.learn
    whole = experiments.run(mdp, learner, 500_000, 1).verdicts[0]

    def counted(mdp, learner, episodes, *rest, **more):
        ran.append(episodes)
        return learn(mdp, learner, episodes, *rest, **more)

    monkeypatch.setattr(experiments, "learn", counted)
    assert experiments.long_verdict(mdp, learner, 500_000, whole) == whole
    assert ran == [100_000, 500_000][:lengths]


def test_a_run_of_a_sweep_that_disagrees_with_its_limit_goes_on_to_its_end():
    assert experiments.long_verdict(sr.grids.cliff(), sr.QLearning(), 20_000, "jumps") == "risky"
