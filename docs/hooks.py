"""What MkDocs does beside rendering docs/: notebooks and files of the root become pages, the API reference is laid out."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

import safereplay

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "safereplay"
#: Files outside of docs/ that the site has too, and where.
OUTSIDE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/dqn.py": "examples/dqn.py",
    "examples/cleanrl_dqn.py": "examples/cleanrl_dqn.py",
    "examples/offline.py": "examples/offline.py",
    "benchmarks/plain.py": "benchmarks/plain.py",
    "CITATION.cff": "CITATION.cff",
}
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
MATH = re.compile(r"^```math\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INHERITS = "\n    options:\n      inherited_members: true"
OF_VALUES = ("Return", "CVaR", "Spectral", "Expectile", "Entropic")
REPLAYS = ("hindsight", "prioritised", "replaying")
#: The pages of the API reference: title, what it is about, and the modules or names that it has. The longest match decides.
API = {
    "api/worlds.md": (
        "Worlds",
        "Models, Gymnasium, and which way a policy goes.",
        ("mdp", "gym", "verdicts", "goals", "worlds"),
    ),
    "api/grids.md": ("Grids", "Models from text maps, and the paper's two.", ("grids",)),
    "api/learning.md": (
        "Learning",
        "Runs over seeds, one iteration at a time, or in a real environment.",
        ("runs", "stepping", "agent"),
    ),
    "api/schedules.md": (
        "Schedules and memory",
        "Step sizes, exploration, and what runs need.",
        ("schedules", "footprints"),
    ),
    "api/learners.md": (
        "Learners",
        "The learners of the paper, and the two classes to derive your own from.",
        ("learners", "schemes.Scheme"),
    ),
    "api/schemes.md": ("Schemes", "What is replayed: by rewards, unsafe outcomes or counts.", ("schemes",)),
    "api/schemes-values.md": (
        "Schemes of values",
        "What is replayed: by the targets of outcomes, r + γ·V(s').",
        tuple(f"schemes.{name}Replay" for name in OF_VALUES),
    ),
    "api/cautious.md": ("Other ways to be safe", "Learners that are cautious without replay.", ("rivals",)),
    "api/replays.md": (
        "Other ways to replay",
        "Replay for speed: prioritised, recent, backward and others.",
        tuple(f"rivals.{name}" for name in REPLAYS),
    ),
    "api/theory.md": ("Theory", "Limits and conditions.", ("theory",)),
    "api/risk.md": (
        "Risk",
        "The risk of a policy, and the best under other criteria.",
        ("theory.risk", "theory.criteria"),
    ),
    "api/tuning.md": (
        "Tuning",
        "How much replay, where the policy changes, and what was replayed.",
        ("theory.tuning", "theory.switching", "theory.xray"),
    ),
    "api/design.md": (
        "Design",
        "The replay for a policy or for a limit on risk.",
        ("theory.design", "schemes.DesignedReplay"),
    ),
    "api/deep.md": ("Deep RL", "The samplers.", ("surprise", "shaper", "pair_index")),
    "api/torchrl.md": ("TorchRL", "A sampler for its replay buffers.", ("torchrl",)),
    "api/keys.md": ("Keys", "Which transitions are of one pair.", ("keys",)),
    "api/limits.md": ("Limits on risk", "A named limit, and its certificate, for Stable-Baselines3.", ("sb3.limits",)),
    "api/sb3.md": ("Stable-Baselines3", "Replay buffers, callbacks and checkpoints.", ("sb3",)),
    "api/jax.md": ("JAX", "Replay buffers and worlds.", ("jax",)),
    "api/sweeps.md": ("Sweeps and comparisons", "Studies of many runs.", ("engines", "arena", "compare")),
    "api/errors.md": (
        "Errors",
        "What can go wrong. Messages read `<argument> must <condition>, got <value>`.",
        ("errors",),
    ),
}
WHOLE = {"api/grids.md": ("grids",)}  # modules whose functions are public one by one
#: What the adapters of other libraries offer; they need those libraries, so that the package itself does not import them.
ADAPTERS = [
    ("sb3.buffers", "ShapedReplayBuffer"),
    ("sb3.buffers", "ShapedDictReplayBuffer"),
    ("sb3.buffers", "ShapedNStepReplayBuffer"),
    ("sb3.callbacks", "ShapingCallback"),
    ("sb3", "ShapingWarning"),
    ("sb3.callbacks", "TrainingCheckpoint"),
    ("sb3.callbacks", "save_training"),
    ("sb3.callbacks", "load_training"),
    ("sb3.limits", "RiskLimit"),
    ("sb3.limits", "Certificate"),
    ("jax.replay", "make_shaped_buffer"),
    ("jax.replay", "make_keyed_buffer"),
    ("jax.worlds", "TabularWorld"),
    ("jax.worlds", "PointWorld"),
    ("torchrl", "ShapedSampler"),
]


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made, not written."""
    for outside, inside in OUTSIDE.items():
        text = (ROOT / outside).read_text()
        if inside.endswith(".md"):
            text = re.sub(r"\]\(docs/", "](", text)
        files.append(File.generated(config, inside, content=text))
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            text = notebook_markdown(json.loads(Path(file.abs_src_path or "").read_text()), Path(file.src_uri).name)
            files.append(File.generated(config, f"{file.src_uri.removesuffix('.ipynb')}.md", content=text))
    for page, text in api_pages().items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of the repository become links of the site, and LaTeX becomes MathML, which browsers draw by themselves."""
    up = "../" * page.file.src_uri.count("/")

    def moved(link: re.Match[str]) -> str:
        target, anchor = link[1], link[2] or ""
        if target.startswith("../") and not up and target.removeprefix("../") in OUTSIDE:
            target = OUTSIDE[target.removeprefix("../")]
        elif target in OUTSIDE:
            target = OUTSIDE[target]
        elif target.endswith(".ipynb") and not page.file.src_uri.startswith("notebooks/"):
            target = f"{target.removesuffix('.ipynb')}.md"
        return f"]({target}{anchor})"

    return MATH.sub(mathml, LINK.sub(moved, markdown))


def mathml(block: re.Match[str]) -> str:
    """A block of LaTeX as an equation of the page."""
    return f'<div class="equation">{convert(block[1].strip(), display="block")}</div>'


def notebook_markdown(notebook: dict[str, Any], name: str) -> str:
    """A notebook as a page: its text, its code, and under it what the code shows."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += filter(None, (_shown(output) for output in cell["outputs"]))
    head, *rest = parts
    note = f'[Download this notebook]({name}){{ .md-button download="{name}" }}'
    return "\n\n".join([head, note, *rest]) + "\n"


def _shown(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```{{ .text .output }}\n{''.join(output['text']).rstrip()}\n```"
    data = output.get("data", {})
    if "image/png" in data:
        seen = "".join(data.get("text/plain", "a picture")).strip("'<>")
        return f"![{seen}](data:image/png;base64,{''.join(data['image/png']).strip()})"
    if "text/markdown" in data:
        return "".join(data["text/markdown"])
    return f"```{{ .text .output }}\n{''.join(data.get('text/plain', ''))}\n```"


def api_pages() -> dict[str, str]:
    """The API reference: every public name, on the page of its module, with its docstring. Nothing is imported."""
    found: dict[str, list[str]] = {page: [] for page in API}
    homes = {name: home for name, home in safereplay._HOMES.items() if name != home}
    for name, home in sorted(homes.items(), key=lambda item: item[0].lower()):
        written = _written(home, name)
        found[_page_of(written)].append(written)
    for home, name in ADAPTERS:
        found[_page_of(f"safereplay.{home}")].append(f"safereplay.{home}.{name}")
    pages = {}
    for page, (title, about, _) in API.items():
        blocks = [f"::: safereplay.{module}" for module in WHOLE.get(page, ())] + [
            f"::: {name}{INHERITS if name.endswith(('.Agent', '.Stepper')) else ''}" for name in found[page]
        ]
        pages[page] = "\n\n".join([f"# {title}", about, *blocks]) + "\n"
    return pages


def _page_of(written: str) -> str:
    fits = [
        (len(part), page)
        for page, (_, _, parts) in API.items()
        for part in parts
        if f"{written}.".startswith(f"safereplay.{part}.")
    ]
    return max(fits)[1]


def _written(home: str, name: str) -> str:
    """Where a name is written down: a package hands on what its modules have."""
    package = SRC / home.replace(".", "/") / "__init__.py"
    if package.is_file():
        for node in ast.walk(ast.parse(package.read_text())):
            if isinstance(node, ast.ImportFrom) and name in (alias.name for alias in node.names):
                return f"safereplay.{home}.{node.module}.{name}"
    return f"safereplay.{home}.{name}"
