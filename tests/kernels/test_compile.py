import json
import pickle
import shutil
import textwrap
from pathlib import Path

import numba
import pytest

import safereplay
from safereplay.kernels import compile as comp
from safereplay.kernels import memory as mem

OFFERED = ("r", "n", "mean", "var", "beta")


def package_function(source, **names):
    """A function that passes for one of the package's own."""
    namespace = {"__name__": "safereplay.somewhere", **names}
    exec(textwrap.dedent(source), namespace)  # noqa: S102
    return namespace["f"]


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (lambda: 4.5, 4.5),
        (lambda beta: beta, 5.0),
        (lambda beta, r: beta - 10 * r, -5.0),
        (lambda var, mean, r: 100 * r + 10 * mean + var, 134.0),
        (lambda beta, var, mean, n, r: r + 2 * n + 3 * mean + 4 * var + 5 * beta, 55.0),
        (lambda n: int(n), 2.0),
        (lambda n: n > 1.0, 1.0),
    ],
)
def test_a_bound_function_reads_what_it_names_from_the_tuple_in_any_order(function, value):
    bound = comp.bind(function, OFFERED)
    result = bound.call((1.0, 2.0, 3.0, 4.0, 5.0))
    assert result == value
    assert isinstance(result, float)


def test_a_bound_function_says_what_it_uses():
    bound = comp.bind(lambda r, var: r + var, OFFERED)
    assert bound.names == {"r", "var"}
    assert bound.uses("mean", "var")
    assert not bound.uses("mean", "beta")
    assert not comp.bind(lambda: 0.0, OFFERED).uses(*OFFERED)


def test_binding_the_same_function_again_is_free_and_gives_the_same_object():
    def tilt(r):
        return -r

    assert comp.bind(tilt, OFFERED) is comp.bind(tilt, OFFERED)
    assert comp.bind(tilt, OFFERED) is not comp.bind(tilt, (*OFFERED, "extra"))


def test_a_users_function_is_not_kept_on_disk_and_one_of_the_package_is():
    assert comp.bind(lambda r: r, OFFERED).digest is None
    own = comp.bind(package_function("def f(r): return -r"), OFFERED)
    assert own.digest is not None
    assert comp.digest_of([own]) is not None
    assert comp.digest_of([own, comp.bind(lambda r: r, OFFERED)]) is None


def digest(source, offered=OFFERED, **names):
    return comp.bind(package_function(source, **names), offered).digest


def test_the_same_code_has_the_same_digest_wherever_it_was_made():
    source = "def f(r, beta): return -beta * r"
    assert digest(source) == digest(source) is not None


@pytest.mark.parametrize(
    "changed",
    [
        "def f(r, beta): return beta * r",
        "def f(r, beta): return -beta * r + 1.0",
        "def f(beta, r): return -beta * r",
        "def f(mean, beta): return -beta * mean",
        "def f(r, beta): return -abs(beta) * r",
    ],
)
def test_a_change_of_a_functions_code_or_of_what_it_reads_changes_its_digest(changed):
    assert digest(changed) != digest("def f(r, beta): return -beta * r")


def test_a_constant_in_an_inner_function_counts():
    inner = "def f(r):\n    def g(x): return x * {}\n    return g(r)"
    assert digest(inner.format(2.0)) != digest(inner.format(3.0))


def test_what_is_on_offer_counts_since_it_decides_the_places_in_the_tuple():
    source = "def f(beta): return beta"
    assert digest(source) != digest(source, ("r", "n", "mean", "beta"))


def test_functions_that_differ_in_a_global_or_a_closed_over_value_never_share_code_on_disk():
    """Their code objects are equal, so they must differ in the digest or have none."""
    source = "def f(r): return SCALE * r"
    one, two = digest(source, SCALE=1.0), digest(source, SCALE=2.0)
    assert one is None or one != two
    source = "def make(scale):\n    def f(r): return scale * r\n    return f\nf = make({})"
    one, two = digest(source.format(1.0)), digest(source.format(2.0))
    assert one is None or one != two


def test_settings_are_part_of_the_digest():
    own = comp.bind(package_function("def f(r): return -r"), OFFERED)
    assert comp.digest_of([own], True) != comp.digest_of([own], False)
    assert comp.digest_of([own, own]) != comp.digest_of([own])


def test_the_source_digest_covers_every_kernel_file(tmp_path, monkeypatch):
    folder = tmp_path / "kernels"
    shutil.copytree(Path(comp.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(comp, "__file__", str(folder / "compile.py"))
    read = comp.source_digest.__wrapped__
    whole = read()
    assert whole == comp.source_digest()
    for file in folder.glob("*.py"):
        text = file.read_text()
        file.write_text(text + "\n# changed\n")
        assert read() != whole
        file.write_text(text)
    assert read() == whole


def test_kernels_are_ordinary_python_too():
    for function in (mem.weights, mem.locate, mem.insert, mem.squeeze, mem.draw):
        assert callable(function.py_func)


# -- the cache on disk, in processes of their own ---------------------------------------------------------------------

PROBE = """
import json, sys
import safereplay as sr
from safereplay import runs, schedules
learner = sr.ReplayQLearning(v=0.5)
mdp = sr.grids.volatile()
learned = sr.learn(mdp, learner, episodes=300, seeds=1)
recipe = learner.recipe(sr.EpsilonGreedy(), sr.PowerStep())
stats = runs.compiled_loop(recipe).stats
table = schedules._tabulate(sr.PowerStep().bound()).stats
weights = runs.mem.weights.stats
print(json.dumps({
    "home": sr.__file__,
    "hits": [sum(s.cache_hits.values()) for s in (stats, table, weights)],
    "misses": [sum(s.cache_misses.values()) for s in (stats, table, weights)],
    "Q": learned.Q.tolist(), "replays": int(learned.replays.sum()), "w": learned.w.tolist(),
}))
"""


@pytest.fixture
def copied_package(tmp_path, in_new_process):
    """The package copied to a folder of its own with an empty cache; a function that runs the probe in it."""
    home = tmp_path / "src" / "safereplay"
    shutil.copytree(Path(safereplay.__file__).parent, home, ignore=shutil.ignore_patterns("__pycache__"))

    def probe(**environment):
        out = in_new_process(PROBE, PYTHONPATH=str(home.parent), PYTHONDONTWRITEBYTECODE="1", **environment)
        found = json.loads(out)
        assert Path(found.pop("home")).parent == home
        return found

    probe.home = home
    return probe


@pytest.mark.slow
def test_a_second_process_compiles_nothing(copied_package):
    first, second = copied_package(), copied_package()
    assert first["misses"] == [1, 1, 1]
    assert second["misses"] == [0, 0, 0]
    assert second["hits"] == [1, 1, 1]
    assert first["Q"] == second["Q"]


@pytest.mark.slow
def test_the_cache_goes_where_numba_is_told_when_the_package_cannot_be_written_to(copied_package, tmp_path):
    place = {"NUMBA_CACHE_DIR": str(tmp_path / "elsewhere")}
    assert copied_package(**place)["misses"] == [1, 1, 1]
    assert copied_package(**place)["hits"] == [1, 1, 1]
    assert not list(copied_package.home.rglob("*.nbi"))


@pytest.mark.slow
def test_a_change_in_a_kernel_file_that_the_loop_only_calls_is_never_answered_with_old_code(copied_package):
    """memory.py changes, loop.py does not: numba's own time stamp would not notice."""
    before = copied_package()
    file = copied_package.home / "kernels" / "memory.py"
    text = file.read_text()
    old = "stats[M2] / max(n, 1)"
    assert text.count(old) == 1
    file.write_text(text.replace(old, "0.0 * stats[M2]"))
    after = copied_package()
    assert before["replays"] > 0
    assert after["replays"] == 0
    assert after["misses"][0] == 1


@pytest.mark.slow
def test_a_change_in_what_a_packaged_factor_reads_is_never_answered_with_old_code(copied_package):
    """pair_weight(var) becomes pair_weight(n): the same byte code, another place in the tuple."""
    before = copied_package()
    file = copied_package.home / "schemes.py"
    text = file.read_text()
    old = 'def pair_weight(var: float) -> float:\n        """var_t(r(s,a))."""\n        return var\n'
    assert text.count(old) == 1
    file.write_text(text.replace(old, old.replace("(var:", "(n:").replace("return var", "return n")))
    after = copied_package()
    assert after["misses"][0] == 1
    assert after["w"] != before["w"]


def test_an_index_of_another_release_is_not_unpickled(tmp_path, monkeypatch):
    """It may name classes that have moved: what ``numba`` wrote for them cannot be read any more."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))

    def doubled(x):
        return 2.0 * x

    cache = comp.DigestCache(doubled, "digest")
    cache._cache_file._version = numba.__version__  # as release 0.1 wrote it
    index = Path(cache._cache_file._index_path)
    index.parent.mkdir(parents=True, exist_ok=True)
    index.write_bytes(pickle.dumps(numba.__version__) + b"csafereplay.kernels.gone\nModel\n.")
    with pytest.raises(ModuleNotFoundError):
        cache._cache_file._load_index()
    assert comp.specialise(doubled, "digest")(2.0) == 4.0
