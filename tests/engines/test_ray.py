"""The engine ray: the same rows as anywhere, whatever is lost on the way.

Ray's own warnings of what is to come are let through: they are not ours to mend.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from small_sweeps import SMALL
from waiting import END, wait_until

import safereplay as sr
from safereplay.engines import ray as engine_module
from safereplay.engines import work
from safereplay.engines.ray import AHEAD, ATTEMPTS, RayEngine
from safereplay.engines.spec import load_spec

try:
    engine_module._ray()  # quietly
except sr.MissingExtra as error:
    pytest.skip(str(error), allow_module_level=True)

pytestmark = [pytest.mark.filterwarnings("default:::ray"), pytest.mark.filterwarnings("default::ResourceWarning")]

EVERYTHING = {
    "episodes": 300,
    "seeds": 3,
    "keep": ["Q", "policy", "verdict", "risk", "visits", "curves"],
    "curves": 4,
    "models": {"cliff": {"gamma": [0.9, 0.95]}, "volatile": {}, "lake": {"source": "FrozenLake-v1"}},
    "learners": {
        "q": {},
        "replay": {"v": [0.3, 0.8], "mixing": ["literal", "matched"]},
        "worst-transition": {},
    },
}


@pytest.fixture(scope="module")
def engine():
    engine = RayEngine(workers=2)
    yield engine
    engine.close()


def chunks_of(spec, size):
    runs = list(spec.runs())
    return [tuple(runs[k : k + size]) for k in range(0, len(runs), size)]


def as_bytes(table):
    """Every bit of a table: to Arrow's own ``equals`` a nan differs from itself."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def test_every_chunk_comes_back_once_with_the_very_rows_of_doing_it_here(engine):
    """Three learners, both mixings, three models of which one has no layout, two discounts; all that can be kept."""
    spec = load_spec(EVERYTHING)
    chunks = chunks_of(spec, 7)
    found = {done.chunk[0].id: done for done in engine.finish(iter(chunks), spec.terms)}
    assert len(found) == len(chunks) > 10
    for chunk in chunks:
        done = found[chunk[0].id]
        assert as_bytes(done.table) == as_bytes(work.perform(chunk, spec.terms))
        assert done.chunk is chunk
        assert done.seconds > 0.0


@pytest.mark.slow
def test_chunks_are_pulled_only_as_there_is_room(engine):
    spec, pulled, finished = load_spec(SMALL), [], 0

    def counted():
        for chunk in chunks_of(spec, 1):
            pulled.append(chunk)
            yield chunk

    for _ in engine.finish(counted(), spec.terms):
        finished += 1
        assert len(pulled) <= finished + AHEAD * 2
    assert finished == len(pulled) == len(spec)


def test_no_chunks_is_no_work(engine):
    assert list(engine.finish(iter(()), load_spec(SMALL).terms)) == []


@pytest.mark.slow
def test_a_models_table_is_sent_once_for_all_its_discounts_and_chunks(engine, monkeypatch):
    sent, put = [], engine._ray.put

    def counted(value):
        sent.append(value)
        return put(value)

    monkeypatch.setattr(engine._ray, "put", counted)
    spec = load_spec({**SMALL, "models": {"cliff": {"gamma": [0.5, 0.6, 0.7], "slip": 0.123}}})
    assert len(list(engine.finish(iter(chunks_of(spec, 1)), spec.terms))) == len(spec)
    assert len(sent) == 1


def test_a_sweep_leaves_the_engine_ready_for_the_next(engine, tmp_path):
    first = sr.sweep(SMALL, tmp_path / "here", quiet=True).table()
    kept = type("Kept", (), {name: getattr(engine, name) for name in ("name", "seconds", "least", "most", "workers")})
    kept.finish, kept.close = staticmethod(engine.finish), staticmethod(lambda: None)
    assert sr.sweep(SMALL, tmp_path / "there", kept(), quiet=True).table().equals(first)


# -- one's own classes, and errors ---------------------------------------------------------------------------------------

MINE = """
import os, signal, sys
from dataclasses import dataclass
from pathlib import Path
import safereplay as sr

@dataclass(frozen=True)
class GapReplay{n}(sr.Scheme):
    beta: float = 1.0
    @staticmethod
    def pair_weight(r_max, r_min):
        return r_max - r_min
    @staticmethod
    def log_tilt(r, beta):
        return -beta * r

@dataclass(frozen=True)
class Endless{n}(sr.Scheme):
    @staticmethod
    def pair_weight(var):
        return 1.0 / (var - var)
    @staticmethod
    def log_tilt(r):
        return r

@dataclass(frozen=True)
class Deadly{n}(sr.QLearning):
    note: str = ""
    times: int = 1
    def __post_init__(self):
        super().__post_init__()
        died = len(list(Path(self.note).iterdir()))
        if "default_worker" in sys.argv[0] and died < self.times:
            (Path(self.note) / str(died)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch, request):
    """A module of somebody's own beside a spec, under a name that no other test has used."""
    n = abs(hash(request.node.name)) % 10**9
    (tmp_path / f"mine{n}.py").write_text(MINE.replace("{n}", str(n)))
    monkeypatch.setattr(sys, "path", [*sys.path])

    def spec(**tables):
        text = json.dumps({**SMALL, "import": [f"mine{n}"], **tables}).replace("{n}", str(n))
        (tmp_path / "spec.json").write_text(text)
        monkeypatch.chdir(tmp_path)
        return load_spec(json.loads(text))

    return spec


@pytest.mark.slow
def test_classes_of_ones_own_are_found_on_the_workers(engine, mine):
    spec = mine(learners={"replay": {"scheme": {"kind": "GapReplay{n}", "beta": 2.0}}}, models={"cliff": {}})
    chunk = tuple(spec.runs())
    (done,) = engine.finish(iter([chunk]), spec.terms)
    assert done.table.equals(work.perform(chunk, spec.terms))


@pytest.mark.slow
def test_an_error_of_ours_comes_back_as_itself_and_at_once(engine, mine, monkeypatch):
    sent, send = [], RayEngine._send
    monkeypatch.setattr(RayEngine, "_send", lambda self, *rest: (sent.append(rest), send(self, *rest)))
    spec = mine(learners={"replay": {"scheme": {"kind": "Endless{n}"}}}, models={"cliff": {}})
    chunk = tuple(spec.runs())
    words = (
        r"^pair_weight of Endless\d+ must be finite and at least 0, got inf; in replay\(v=0\.5\) on cliff with seed 0$"
    )
    with pytest.raises(sr.BadInput, match=words) as caught:
        list(engine.finish(iter([chunk]), spec.terms))
    assert type(caught.value) is sr.BadInput
    assert len(sent) == 1


def test_an_error_that_is_not_ours_comes_back_as_itself(engine):
    spec = load_spec(SMALL)
    with pytest.raises(TypeError):
        list(engine.finish(iter(chunks_of(spec, 2)), spec.terms._replace(episodes="many")))


@pytest.mark.slow
def test_a_chunk_whose_worker_dies_is_done_again(engine, mine, tmp_path, caplog):
    note = tmp_path / "deaths"
    note.mkdir()
    spec = mine(learners={"d": {"kind": "Deadly{n}", "note": str(note), "times": 2}}, models={"cliff": {}})
    chunk = tuple(spec.runs())
    (done,) = engine.finish(iter([chunk]), spec.terms)
    assert len(list(note.iterdir())) == 2
    assert done.table.equals(work.perform(chunk, spec.terms))
    assert sum("a worker was lost" in line for line in caplog.messages) == 2


@pytest.mark.slow
def test_a_chunk_that_loses_every_worker_is_given_up_in_a_line(engine, mine, tmp_path):
    note = tmp_path / "deaths"
    note.mkdir()
    spec = mine(learners={"d": {"kind": "Deadly{n}", "note": str(note), "times": 99}}, models={"cliff": {}}, seeds=1)
    words = rf"^1 run of Q-learning on cliff must finish on the cluster, got {ATTEMPTS} lost workers; the last: Worker"
    with pytest.raises(sr.SafeReplayError, match=words) as caught:
        list(engine.finish(iter([tuple(spec.runs())]), spec.terms))
    assert "\n" not in str(caught.value)
    assert len(list(note.iterdir())) == ATTEMPTS


def test_a_worker_with_other_code_refuses(engine, monkeypatch):
    spec = load_spec(SMALL)
    monkeypatch.setattr(engine_module, "__version__", "0.0.7")
    with pytest.raises(sr.BadInput, match=r"^safereplay on every node must be 0\.0\.7 \(kernels \w{8}\), got '0\.2"):
        list(engine.finish(iter(chunks_of(spec, 1)), spec.terms))


@pytest.mark.slow
def test_a_class_that_differs_between_nodes_is_refused(engine, mine, monkeypatch):
    spec = mine(learners={"replay": {"scheme": {"kind": "GapReplay{n}"}}}, models={"cliff": {}})
    monkeypatch.setattr(engine_module, "own_code", lambda kind: "another")
    with pytest.raises(
        sr.BadInput, match=r"GapReplay\d+ of mine\d+ must be the same on every node, got 'other code on"
    ):
        list(engine.finish(iter([tuple(spec.runs())]), spec.terms))


def test_a_class_that_workers_cannot_import_is_refused(engine):
    spec = load_spec(SMALL)
    run = next(spec.runs())
    loose = type("Loose", (sr.QLearning,), {"__module__": "__main__"})
    chunk = (run._replace(point=run.point._replace(learner=loose())),)
    with pytest.raises(sr.BadInput, match=r"^Loose must be in a module that workers can import, got '__main__'$"):
        list(engine.finish(iter([chunk]), spec.terms))


@pytest.mark.slow
def test_leaving_early_cancels_what_runs(engine):
    """One run of ages on each CPU: the next chunk is only done if they are told to stop."""
    spec, ages = load_spec(SMALL), load_spec({**SMALL, "episodes": 10**12})
    results = engine.finish(iter(chunks_of(spec, 1)[:1] + chunks_of(ages, 1)[:4]), ages.terms._replace(episodes=10**12))
    results.close()  # before anything was asked for
    results = engine.finish(iter(chunks_of(spec, 2)), spec.terms)
    next(results)
    results.close()
    assert len(list(engine.finish(iter(chunks_of(spec, 2)[:2]), spec.terms))) == 2


# -- the cluster itself -------------------------------------------------------------------------------------------------


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        sr.MissingExtra, match=r"the engine ray needs Ray; install it with: pip install 'safereplay\[ray"
    ):
        RayEngine()


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:1", "127.0.0.1:x", "", 3, "ray://127.0.0.1:1"])
def test_an_address_where_no_cluster_answers_is_refused_before_ray_looks_for_one(address, monkeypatch):
    """Ray itself would try for a minute."""
    monkeypatch.setattr(RayEngine, "_start", lambda *_: pytest.fail("Ray was asked"))
    with pytest.raises(sr.BadInput, match=r"^address must be HOST:PORT where a Ray cluster listens, or auto, got"):
        RayEngine(address=address)


def test_workers_must_be_a_whole_number():
    with pytest.raises(sr.BadInput, match="threads must be at least 1, got 0"):
        RayEngine(workers=0)


LOCAL = """
import json, os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
import safereplay as sr
from safereplay.engines.ray import RayEngine
from strikes import at_call
RayEngine.seconds = 0.5
at_call("safereplay.engines.sweeps:Store.add", 3, lambda *_: os.killpg(0, signal.SIGINT))
spec, out = json.loads(sys.argv[1]), sys.argv[2]
done = sr.sweep(spec, out, engine="ray", threads=2, quiet=True)
print(json.dumps([done.done, done.interrupted]), flush=True)
"""


@pytest.fixture
def short_folder():
    """A folder whose name leaves room for those of Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:
        yield folder


def descendants(session):
    """Processes of a session that live."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_leaves_no_process_and_no_file(tmp_path, short_folder):
    """The keys go to every process of the terminal, when two chunks are written and the third is about to be."""
    (tmp_path / "cwd").mkdir()
    spec = {**SMALL, "episodes": 100_000, "seeds": 60, "models": {"cliff": {}}, "keep": ["Q", "verdict"]}
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", LOCAL, json.dumps(spec), str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path / "cwd",
        env={**os.environ, "TMPDIR": short_folder, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
    )
    printed, complaints = child.communicate(timeout=END)
    assert child.returncode == 0, complaints
    done, interrupted = json.loads(printed)
    assert interrupted
    assert complaints == ""
    assert sr.read_sweep(tmp_path / "out").num_rows == done > 0
    assert list((tmp_path / "cwd").iterdir()) == os.listdir(short_folder) == []
    wait_until(lambda: descendants(child.pid) == [])


TWO_NODES = """
import contextlib, json, logging, os, signal, sys, tempfile
from pathlib import Path
os.environ |= {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_USAGE_STATS_ENABLED": "0"}
import safereplay as sr
from safereplay.engines import ray as engine_module
engine_module._ray()  # quiet from the start
logging.getLogger("ray").setLevel(logging.ERROR)
from ray.cluster_utils import Cluster
from strikes import at_call
from waiting import wait_until

spec, out = json.loads(sys.argv[1]), Path(sys.argv[2])
engine_module.RayEngine.most, engine_module.AHEAD = 1, 12
perform, held = engine_module._perform, out.with_name("held")  # five chunks are done, the others wait
held.mkdir()

def one_of_five(*arguments):
    from waiting import wait_until
    for k in range(5):
        with contextlib.suppress(FileExistsError):
            (held / f"done {k}").touch(exist_ok=False)
            return perform(*arguments)
    (held / str(os.getpid())).touch()
    wait_until((held / "go on").exists)
    return perform(*arguments)

engine_module._perform = one_of_five
lost, nodes = [], []
engine_module.LOG.addHandler(type("Lost", (logging.Handler,), {"emit": lambda self, record: lost.append(record)})())
engine_module.LOG.propagate = False
current = Path("/tmp/ray/ray_current_cluster")
was_there = current.exists()
current.parent.mkdir(exist_ok=True)
soon = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": soon, "temp_dir": folder}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    other = cluster.add_node(num_cpus=1)

    def parentage(entry):
        with contextlib.suppress(OSError):
            return int(entry.name), int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        return 0, 0

    def workers_of(raylet):
        return [pid for pid, parent in map(parentage, Path("/proc").glob("[0-9]*")) if parent == raylet]

    def kill(*_):
        nodes.append(int(engine_module._ray().cluster_resources()["CPU"]))
        raylet = other.all_processes["raylet"][0].process.pid
        wait_until(lambda: any((held / str(pid)).exists() for pid in workers_of(raylet)))
        workers = workers_of(raylet)
        for pid in [raylet, *workers]:  # a machine that goes takes its workers along
            os.kill(pid, signal.SIGKILL)
        (held / "go on").touch()

    at_call("safereplay.engines.sweeps:Store.add", 5, kill)
    done = sr.sweep(spec, out, engine="ray", address=cluster.address, quiet=True)
    cluster.shutdown()
if not was_there:
    current.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        current.parent.rmdir()
print(json.dumps([done.done, len(lost), nodes]))
"""


@pytest.mark.slow
def test_a_node_killed_during_a_sweep_costs_its_chunk_and_no_row(tmp_path, in_new_process):
    """Two nodes of one CPU; the second and its worker get SIGKILL while a chunk waits there. The dataset is that of threads."""
    spec = {**SMALL, "episodes": 200_000, "seeds": 8, "models": {"cliff": {}}, "keep": ["Q", "verdict", "risk"]}
    printed = in_new_process(TWO_NODES, json.dumps(spec), tmp_path / "ray")
    done, lost, nodes = json.loads(printed.splitlines()[-1])
    assert nodes == [2]
    assert lost >= 1
    here = sr.sweep(spec, tmp_path / "threads", quiet=True)
    assert done == here.done == here.runs
    assert sr.read_sweep(tmp_path / "ray").equals(here.table())


LARGE_WORLD = """
import importlib.util, json, os, sys
from pathlib import Path
import safereplay as sr
from safereplay.engines import ray as engine_module
engine_module._ray()  # quiet from the start
import logging
logging.getLogger("ray").setLevel(logging.ERROR)
spec, out, example = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
found = importlib.util.spec_from_file_location("two_nodes_example", example)
two_nodes = importlib.util.module_from_spec(found)
found.loader.exec_module(two_nodes)
engine_module.RayEngine.most = 1  # one run per chunk
perform, notes = engine_module._perform, out.with_name("notes")
notes.mkdir()

def noted(packed, terms, *models):
    import ray
    from pathlib import Path
    (mdp,) = models
    address = mdp.p.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, _, inode, *path = line.split()
        low, high = (int(x, 16) for x in span.split("-"))
        if low <= address < high:
            place = [inode, address - low + int(offset, 16), path]
    answer = perform(packed, terms, *models)
    own = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("RssAnon")]
    told = [ray.get_runtime_context().get_node_id(), *place, sorted(vars(mdp)), int(own[0].split()[1]) * 1024]
    (notes / packed["runs"][0][0]).write_text(json.dumps(told))
    return answer

engine_module._perform = noted
puts, put = [], engine_module._ray().put
engine_module._ray().put = lambda value: puts.append(value.r.size) or put(value)
with two_nodes.two_nodes(store=1 << 28) as cluster:
    done = sr.sweep(spec, out, engine="ray", address=cluster.address, quiet=True)
print(json.dumps([done.done, puts, [json.loads(note.read_text()) for note in notes.iterdir()]]))
"""


@pytest.mark.slow
def test_a_large_world_is_sent_once_to_each_node_and_its_workers_share_it(tmp_path, in_new_process):
    """10⁵ states on two nodes of one CPU: twelve chunks of either, one copy per node in memory that workers share, without
    what can be computed from it. A worker itself holds no more than the runs need. The dataset is that of threads."""
    side = 316
    world = tmp_path / "world.txt"
    world.write_text("\n".join(["S" + "." * (side - 1), *["." * side] * (side - 2), "." * (side - 2) + "XG"]) + "\n")
    models = {"world": {"source": str(world), "slip": 0.1, "gamma": [0.9, 0.99]}}
    learners = {"q": {}, "replay": {"v": [0.5]}}
    spec = {"episodes": 30, "seeds": 6, "keep": ["policy"], "models": models, "learners": learners}
    example = Path(__file__).parents[2] / "examples" / "two_nodes.py"
    printed = in_new_process(LARGE_WORLD, json.dumps(spec), tmp_path / "ray", example)
    done, puts, notes = json.loads(printed.splitlines()[-1])
    here = sr.sweep(spec, tmp_path / "threads", quiet=True)
    assert done == here.done == here.runs == 24 == len(notes)
    assert sr.read_sweep(tmp_path / "ray").equals(here.table())
    mdp = load_spec(spec).models[0].made
    assert puts == [mdp.r.size]
    places = {(node, inode, offset) for node, inode, offset, *_ in notes}
    assert len(places) == len({node for node, *_ in notes}) == 2
    for _, _, _, path, held, own in notes:
        assert "plasma" in path[0]
        assert "pair" not in held
        assert own < 2**28 + 2 * sr.footprint(mdp, sr.ReplayQLearning(), threads=1).total


def test_the_layout_of_a_model_is_not_sent_but_its_origin_is(engine, monkeypatch):
    sent, put = [], engine._ray.put
    monkeypatch.setattr(engine._ray, "put", lambda value: sent.append(value) or put(value))
    mdp = sr.grids.cliff(slip=0.321)
    mdp.pair  # noqa: B018 - computed once, and kept
    engine._model(mdp)
    (there,) = sent
    assert there.layout.cells == ()
    assert there.origin == mdp.origin
    assert "pair" not in vars(there)
    assert there.p is mdp.p


def test_a_chunk_that_no_node_has_memory_for_is_refused_in_a_line(engine, monkeypatch):
    spec = load_spec(SMALL)
    monkeypatch.setattr(engine_module, "MATTERS", 1_000)
    monkeypatch.setattr(engine, "_look", lambda: None)
    monkeypatch.setattr(engine, "_largest", 4096.0)
    with pytest.raises(
        sr.BadInput, match=r"^runs must fit into the 4\.0 KiB of memory of the largest node, got"
    ) as caught:
        list(engine.finish(iter(chunks_of(spec, 3)), spec.terms))
    assert "\n" not in str(caught.value)


def test_a_chunk_reserves_the_memory_that_it_needs(engine, monkeypatch):
    spec, reserved, options = load_spec(SMALL), [], engine._task.options
    monkeypatch.setattr(engine_module, "MATTERS", 1_000)
    monkeypatch.setattr(engine._task, "options", lambda **given: reserved.append(given["memory"]) or options(**given))
    (chunk,) = chunks_of(spec, len(spec))
    (done,) = engine.finish(iter([chunk]), spec.terms)
    assert done.table.num_rows == len(spec)
    assert reserved == [engine._need(chunk, spec.terms)]
    assert reserved[0] > sum(24 * run.point.mdp.n_pairs for run in chunk)


def test_a_model_with_goals_is_refused_in_one_line(engine):
    spec = load_spec({**SMALL, "models": {"goal_room": {}}, "learners": {"hindsight": {}}})
    with pytest.raises(sr.BadInput, match="model must be a plain TabularMDP on a cluster, got GoalMDP"):
        list(engine.finish(iter(chunks_of(spec, 1)), spec.terms))
