"""The package as a whole: imports go down, public names are what they say, and the docs are true."""

import ast
import importlib
import re
import runpy
import subprocess
import sys
import warnings
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import safereplay
from safereplay import catalog

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "safereplay"

#: A module may import from its own layer and from those above it in this list, and imports form no cycle.
LAYERS = [
    "errors _checks catalog _files _config _progress _plugin _processes",
    "kernels",
    "mdp grids gym goals worlds spaces sources verdicts point",
    "schemes schedules arrays",
    "learners footprints runs stepping agent",
    "keys pair_index shaper surprise",
    "theory",
    "rivals",
    "sb3 torchrl jax",
    "views",
    "engines",
    "paper",
    "arena",
    "web",
    "cli __main__",
]
LAYER = {name: k for k, names in enumerate(LAYERS) for name in names.split()}
DEPTH = 14  #: the longest chain of imports, those within functions included


def modules():
    for file in sorted(SRC.rglob("*.py")):
        name = ".".join(file.relative_to(SRC).with_suffix("").parts)
        if not name.endswith("__init__"):
            yield name, file


def imports(name, file):
    """Modules of ours that a file imports anywhere, but for type checking."""
    tree = ast.parse(file.read_text())
    skipped = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    package = name.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in skipped:
            base = package[: len(package) - (node.level - 1)] + (node.module.split(".") if node.module else [])
            for alias in node.names:
                whole = ".".join([*base, alias.name])
                is_module = (SRC / f"{whole.replace('.', '/')}.py").is_file()
                yield whole if is_module else ".".join(base)


def layer(name):
    return LAYER[name.partition(".")[0]]


@cache
def graph():
    """What each module imports of ours."""
    allowed_up = {("mdp", "gym")}  # from_gymnasium is a method of the model; the import is made when it is called
    return {name: {x for x in imports(name, file) if x and (name, x) not in allowed_up} for name, file in modules()}


def test_every_module_belongs_to_a_layer():
    assert {name.partition(".")[0] for name, _ in modules()} == set(LAYER)


@pytest.mark.parametrize("name", [name for name, _ in modules()])
def test_imports_go_only_down(name):
    for target in graph()[name]:
        assert layer(target) <= layer(name), f"{name} imports {target}"


def test_imports_form_no_cycle_and_no_long_chain():
    order = TopologicalSorter({name: found & set(graph()) for name, found in graph().items()})
    depth = {}
    for name in order.static_order():
        depth[name] = 1 + max((depth[x] for x in graph()[name] if x in depth), default=-1)
    assert max(depth.values()) <= DEPTH


def test_kernels_import_nothing_of_ours_but_kernels():
    for name, file in modules():
        if name.startswith("kernels."):
            assert all(target.startswith("kernels") for target in imports(name, file))


def test_every_public_name_exists_and_is_listed_once():
    listed = safereplay.__all__
    assert len(set(listed)) == len(listed)
    for name in listed:
        assert getattr(safereplay, name) is not None


def test_what_type_checkers_see_is_what_is_exported():
    text = (SRC / "__init__.pyi").read_text()
    seen = set(re.findall(r"^from .* import \w+ as (\w+)", text, re.MULTILINE))
    assert seen | {"__version__"} <= set(safereplay.__all__)
    assert set(safereplay.__all__) - seen - {"__version__"} <= set(catalog.classes()), (
        "only the catalog's may be left out"
    )


def test_no_exported_function_is_hidden_by_importing_its_module():
    for name, home in safereplay._HOMES.items():
        if name != home:
            assert home.split(".")[0] != name


def test_an_unknown_name_says_so():
    with pytest.raises(AttributeError, match="module 'safereplay' has no attribute 'lern'"):
        safereplay.lern  # noqa: B018


def test_importing_loads_nothing_heavy_and_compiles_nothing():
    code = "import safereplay, sys; print([m for m in ('numba', 'numpy', 'scipy', 'gymnasium') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_public_class_and_function_has_an_example():
    for name in safereplay.__all__:
        thing = getattr(safereplay, name)
        if callable(thing) and not (isinstance(thing, type) and issubclass(thing, Exception)):
            text = f"{thing.__doc__} {importlib.import_module(thing.__module__).__doc__}"
            assert ">>>" in text, f"{name} has no example"


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_paper_map_is_up_to_date(generate):
    assert (ROOT / "docs" / "paper-map.md").read_text() == generate.paper_map(), "run `make docs`"


@pytest.mark.whole
def test_the_command_line_reference_is_up_to_date(generate):
    assert (ROOT / "docs" / "cli.md").read_text() == generate.cli_reference(), "run `make docs`"


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def code_of(page):
    """The blocks of a page that are marked ```python, one after another."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))


@pytest.mark.whole
@pytest.mark.parametrize("page", [page for page in PAGES if code_of(page)], ids=lambda page: page.stem)
def test_the_python_of_a_page_runs_as_shown(page, tmp_path, monkeypatch, capsys):
    """A comment `# -> text` is what the line above prints. In this process, which has compiled what most pages use."""
    source = code_of(page)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "page.py").write_text(source)
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as for a user
        runpy.run_path("page.py", run_name="__main__")
    printed = capsys.readouterr().out.strip().splitlines()
    assert printed == [wanted.strip() for wanted in re.findall(r"# -> (.*)", source)]


def test_the_readme_and_the_guides_show_python():
    assert sum(bool(code_of(page)) for page in PAGES) >= 10


def test_links_between_our_pages_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links {target}"


def test_the_version_is_the_same_everywhere():
    for file, pattern in (("pyproject.toml", r'^version = "(.+)"'), ("CITATION.cff", r"^version: (.+)$")):
        assert re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)[1] == safereplay.__version__
