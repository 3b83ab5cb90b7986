"""What all commands share: the parser, options, exit codes, and progress.

Exit codes: 0 done; 1 failed while running, stopped by Ctrl-C, or no replay keeps the limit of ``tune`` or
``design``; 2 bad input. Codes 1 and 2 come with one line on standard error, never with a traceback.
Text is written in the encoding of the terminal or pipe; characters that it lacks are spelled in ASCII. Files are in UTF-8.
Heavy modules are imported inside the command that needs them, so that ``--help`` is fast.
"""

from __future__ import annotations

import codecs
import inspect
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from .. import _progress
from ..catalog import LEARNERS, SCHEMES, WORLDS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from .._checks import Ints
    from ..learners import Learner
    from ..mdp import TabularMDP
    from ..schedules import Exploration
    from ..schemes import Scheme

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
NOTHING = "stopped: nothing is finished"
INTERRUPTED = 130  # the parser's exit code if Ctrl-C comes while it reads the arguments
NARROW = 60  # terminal columns: below that, help has no boxes

#: The order in which ``--help`` lists the commands.
ORDER = (
    "reproduce",
    "compile",
    "learn",
    "solve",
    "check",
    "tune",
    "design",
    "sweep",
    "show",
    "compare",
    "bench",
    "play",
)


class Stoppable:
    """A command that Ctrl-C ends with exit code 1, and one line that says what is finished."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)  # type: ignore[misc]
        except KeyboardInterrupt as stopped:
            raise typer.Exit(complain(f"stopped: {stopped}" if str(stopped) else NOTHING, 1)) from None

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters; flags have no type name, since they take no value."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in found:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return found


class _InOrder(Stoppable, TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)


class _Command(Stoppable, TyperCommand):
    def invoke(self, ctx: Any) -> Any:
        if _progress.from_command:
            _progress.announce_compiling()
        return super().invoke(ctx)


class _App(typer.Typer):
    def command(self, *arguments: Any, **options: Any) -> Callable[[F], F]:
        add = super().command(*arguments, **{"cls": _Command, **options})

        def added(command: F) -> F:
            add(_one_by_one(command))
            return command

        return added


def _one_by_one(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command for the parser: a parameter that is a dataclass becomes one option per field."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        kind = parameter.annotation
        if is_dataclass(kind) and isinstance(kind, type):
            groups[parameter.name] = kind
            usual = kind() if parameter.default is parameter.empty else parameter.default
            for name, hint in get_type_hints(kind, include_extras=True).items():
                one = inspect.Parameter(name, parameter.KEYWORD_ONLY, annotation=hint, default=getattr(usual, name))
                parameters.append(one)
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))

    @wraps(command)
    def parsed(**values: Any) -> Any:
        for name, kind in groups.items():
            values[name] = kind(**{f.name: values.pop(f.name) for f in fields(kind)})
        return command(**values)

    parsed.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    parsed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return parsed


def starting(names: Iterable[str]) -> Callable[[str], list[str]]:
    """A completion function: the names that start with the typed text."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


app = _App(
    cls=_InOrder,
    help="Shape the policy an RL agent learns by choosing what it replays.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def named(names: Iterable[str], about: str, metavar: str = "NAME") -> Any:
    """An option whose value is one of these names; the shell completes it."""
    return typer.Option(metavar=metavar, help=about, autocompletion=starting(names))


Model: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A world (cliff, volatile, bridge, ...), a map file, a saved model, or a Gymnasium id.",
        show_default=False,
        autocompletion=starting(WORLDS),
    ),
]
LearnerName: TypeAlias = Annotated[
    str, named(LEARNERS, "One of " + ", ".join(LEARNERS) + "; or a .json file that design wrote.")
]
SchemeName: TypeAlias = Annotated[str, named(SCHEMES, "What is replayed: one of " + ", ".join(SCHEMES) + ".")]
Dials: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--dial", "-d", metavar="KEY=VALUE", help="A dial of the learner or its scheme, such as theta=0.5; repeatable."
    ),
]
V: TypeAlias = Annotated[float | None, typer.Option(help="Probability of a replay, in [0, 1); default 0.5.")]
Mixing: TypeAlias = Annotated[str, typer.Option(help="literal (the paper's), matched or anchored.")]
Gamma: TypeAlias = Annotated[float | None, typer.Option(help="Discount factor; default: the model's.")]
Episodes: TypeAlias = Annotated[int, typer.Option(help="Episodes per seed.")]
Options: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="KEY=VALUE", help="An option of the model, such as slip=0.2; repeatable."),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Out: TypeAlias = Annotated[
    Path | None, typer.Option("--out", help="Also write a page with pictures to this folder.", show_default=False)
]


@dataclass(frozen=True)
class ExplorationOptions:
    """The options of the exploration."""

    epsilon: Annotated[float, typer.Option(help="ε of ε-greedy.")] = 0.1
    epsilon_power: Annotated[
        float,
        typer.Option(
            help="ε, or the temperature, falls as n(s)^−power. For ε, powers up to 1 are GLIE; for a temperature none is."
        ),
    ] = 0.0
    temperature: Annotated[float | None, typer.Option(help="Explore with softmax at this temperature instead.")] = None

    def build(self) -> Exploration:
        """The exploration that they describe."""
        from ..schedules import EpsilonGreedy, Softmax

        if self.temperature is None:
            return EpsilonGreedy(self.epsilon, self.epsilon_power)
        return Softmax(self.temperature, self.epsilon_power)


@dataclass(frozen=True)
class Amount:
    """How much is learned."""

    episodes: Episodes = 50_000
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = 20


@dataclass(frozen=True)
class LearningOptions(ExplorationOptions, Amount):
    """The options of learning: its amount, the exploration and the step size."""

    step_power: Annotated[float, typer.Option(help="α = n(s,a)^−power.")] = 0.6

    def arguments(self) -> dict[str, Any]:
        """The same as arguments of ``learn``, ``check`` and ``tune``."""
        from ..schedules import PowerStep

        schedules = {"exploration": self.build(), "step_size": PowerStep(self.step_power)}
        return {"episodes": self.episodes, "seeds": self.seeds, **schedules}


@dataclass(frozen=True)
class LimitOptions:
    """The options of a limit on risk."""

    max_p_unsafe: Annotated[float | None, typer.Option(help="The largest P(unsafe).")] = None
    min_cvar: Annotated[float | None, typer.Option(help="The smallest CVaR, the mean of the worst episodes.")] = None
    max_std: Annotated[float | None, typer.Option(help="The largest standard deviation of the return.")] = None
    alpha: Annotated[float, typer.Option(help="The share of worst episodes for CVaR.")] = 0.1


@dataclass(frozen=True)
class SchemeOptions:
    """The options of a replay."""

    scheme: SchemeName = "variance"
    beta: Annotated[float | None, typer.Option(help="Tilt β of the replay; default: the scheme's.")] = None
    dial: Dials = None
    mixing: Mixing = "literal"

    def build(self) -> Scheme:
        """The scheme that they describe."""
        from .. import catalog

        dials, kind = parse_options(self.dial or [], "--dial"), catalog.scheme(self.scheme)
        _said_once("beta", self.beta, dials, "--dial")
        given = {} if self.beta is None else {"beta": self.beta}
        return _configured(kind, given | dials, kind.params_names())


@dataclass(frozen=True)
class LearnerOptions:
    """The options of a learner. Those that it does not have are refused."""

    learner: LearnerName = "replay"
    v: V = None
    beta: Annotated[
        float | None, typer.Option(help="Tilt of replay (default: the scheme's), or Gaskett's β (default 0.2).")
    ] = None
    kappa: Annotated[float | None, typer.Option(help="κ of Mihatsch & Neuneier, in (−1, 1); default 0.6.")] = None
    scheme: SchemeName = "variance"
    dial: Dials = None
    mixing: Mixing = "literal"

    def build(self, t0: int = 1, c0: float | None = None) -> Learner:
        """The learner that they describe."""
        from .. import _checks, catalog, learners

        if self.learner.endswith(".json"):
            return self._from_file(t0, c0)
        kind = catalog.learner(self.learner)
        names = [f.name for f in fields(kind)]
        _checks.choice("scheme", self.scheme, SCHEMES)
        _checks.choice("mixing", self.mixing, learners.MIXINGS)
        common: dict[str, Any] = {"T0": t0} | ({} if c0 is None else {"c0": c0})
        own = parse_options(self.dial or [], "--dial")
        if self.learner == "replay":
            _checks.require(self.kappa is None, "--kappa", "be left out with --learner replay", self.kappa)
            common |= {} if self.v is None else {"v": self.v}
            scheme = SchemeOptions(self.scheme, self.beta, self.dial).build()
            return learners.ReplayQLearning(scheme, mixing=self.mixing, **common)
        options = {"v": self.v, "beta": self.beta, "kappa": self.kappa}
        given = {key: value for key, value in options.items() if value is not None}
        for key, value in given.items():
            _said_once(key, value, own, "--dial")
            _checks.require(key in names, f"--{key}", f"be left out with --learner {self.learner}", value)
        for key, word, usual in (("scheme", self.scheme, "variance"), ("mixing", self.mixing, "literal")):
            _checks.require(word == usual, f"--{key}", "go with --learner replay", word)
        return _configured(kind, common | given | own, names)

    def _from_file(self, t0: int, c0: float | None) -> Learner:
        """The learner of a file; it has all of its dials."""
        from .. import _checks, _files
        from ..learners import Learner

        table = _files.read_json("--learner", self.learner)
        usual, given = LearnerOptions(self.learner), {"T0": (t0, 1), "c0": (c0, None)}
        for name in ("v", "beta", "kappa", "scheme", "dial", "mixing"):
            given[name] = getattr(self, name), getattr(usual, name)
        for name, (value, default) in given.items():
            _checks.require(value == default, f"--{name}", "be left out with a file of a learner", value)
        _checks.require(isinstance(table, dict), "--learner", "hold a learner", table)
        made = Learner.from_dict(table)
        _checks.require(isinstance(made, Learner), "--learner", "hold a learner", made)
        assert isinstance(made, Learner)
        return made


def main() -> None:
    """Run the command line and exit with its code."""
    _progress.from_command = True
    codecs.register_error("spelled", spelled)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="spelled")
    sys.exit(run(sys.argv[1:]))


#: ASCII for characters that an encoding may lack. Greek letters are spelled out, and others lose their accents.
ASCII = {"−": "-", "–": "-", "—": "-", "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "±": "+/-", "×": "x", "·": "*"}
ASCII |= {"∞": "inf", "√": "sqrt", "✓": "+", "✗": "x", "‡": "#", "°": " deg"}
ASCII |= dict(zip("↑→↓←⬆➡⬇⬅", "^>v<^>v<", strict=True))


def spelled(error: UnicodeError) -> tuple[str, int]:
    """An encoding error handler: ASCII for characters that the encoding of a stream lacks.

    >>> codecs.register_error("spelled", spelled)
    >>> "γ = 0.95, CVaR₁₀ ≥ −3 → 嗯".encode("ascii", "spelled")
    b'gamma = 0.95, CVaR10 >= -3 > ?'
    """
    from unicodedata import name, normalize

    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = ""
    for character in error.object[error.start : error.end]:
        known = name(character, "")
        plain = normalize("NFKD", character).encode("ascii", "ignore").decode()
        greek = known.split()[-1].lower() if known.startswith("GREEK SMALL LETTER") else ""
        text += ASCII.get(character) or greek or plain or "?"
    return text, error.end


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code. Without a command, list all commands."""
    return run_app(app, arguments or ["--help"], "safereplay")


def run_app(program: typer.Typer, arguments: list[str], name: str) -> int:
    """Run a program and return its exit code."""
    from ..errors import SafeReplayError

    columns = shutil.get_terminal_size().columns
    program.rich_markup_mode = None if columns < NARROW else "rich"
    width = {"terminal_width": columns} if columns < NARROW else {}  # else the parser writes at least 50 columns
    try:
        result = program(arguments, standalone_mode=False, prog_name=name, **width)
        if result == INTERRUPTED:
            return complain(NOTHING, 1)
        return result if isinstance(result, int) else 0
    except SafeReplayError as error:
        return complain(str(error), 2)
    except KeyboardInterrupt:
        return complain(NOTHING, 1)
    except BrokenPipeError:
        return 1
    except PermissionError as error:
        return complain(f"{error.filename or 'a file'} must be accessible, got '{error.strerror}'", 2)
    except Exception as error:
        if hasattr(error, "format_message"):  # an error of the parser: unknown option, missing value
            return complain(error.format_message(), 2)
        return complain(f"{type(error).__name__}: {error}", 1)


def echo(text: object, err: bool = False) -> None:
    """One line on standard output or standard error. (The parser's echo would write UTF-8 to an ASCII stream.)"""
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{text}\n")
    stream.flush()


def complain(message: str, code: int) -> int:
    """Write one line to standard error, if possible; return the code."""
    with suppress(OSError, AttributeError):
        sys.stderr.write("safereplay: " + " ".join(message.split()) + "\n")
        sys.stderr.flush()
    return code


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        echo(f"safereplay {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    pass


class Stages(_progress.Bar):
    """One bar over all stages on a terminal; elsewhere one line per stage."""

    def __init__(self) -> None:
        super().__init__("", total=1.0)
        self._last = ""

    def tell(self, label: str, done: float) -> None:
        """Show a stage, and the finished share of the work."""
        if self._terminal:
            self.update(done, label)
        elif label != self._last and done < 1.0:
            _progress.write_line(done, label)
        self._last = label


def load_model(model: str, gamma: float | None, options: list[str] | None) -> TabularMDP:
    """The model that the arguments name."""
    from ..sources import model_from

    chosen = parse_options(options or [])
    _said_once("gamma", gamma, chosen, "--option")
    return model_from(model, gamma, chosen)


def _said_once(name: str, given: float | None, chosen: dict[str, Any], flag: str) -> None:
    """Refuse a setting that is given both as its own option and as KEY=VALUE."""
    from .. import _checks

    twice = given is not None and name in chosen
    _checks.require(not twice, f"--{name}", f"be left out with {flag} {name}={chosen.get(name)}", given)


def check_page_folder(out: Path | None) -> None:
    """Refuse a folder that cannot be made or written to, before any work. Folders that this makes are removed again."""
    if out is not None:
        from ..views.pages import page_folder

        made = [folder for folder in (out, *out.parents) if not os.path.exists(folder)]
        try:
            page_folder(out)
        finally:
            for folder in made:
                with suppress(OSError):
                    folder.rmdir()


def parse_options(pairs: list[str], flag: str = "--option") -> dict[str, Any]:
    """KEY=VALUE pairs; a value is parsed as JSON if possible, else it is text."""
    from .. import _checks

    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        _checks.require(bool(equals and key), flag, "be KEY=VALUE", pair)
        try:
            options[key] = json.loads(value.lower() if value.lower() in ("true", "false") else value)
        except json.JSONDecodeError:
            options[key] = value
    return options


def _configured(kind: Callable[..., T], values: dict[str, Any], names: Sequence[str]) -> T:
    from .. import _checks

    for name in values:
        _checks.require(bool(names), f"dial of {getattr(kind, '__name__', kind)}", "be left out: it has none", name)
        _checks.choice(f"dial of {getattr(kind, '__name__', kind)}", name, names)
    return kind(**values)


def plain_table(columns: list[str], left: int = 1) -> Table:
    """A table without lines; its first ``left`` columns are words, the others numbers."""
    from ..views.document import FittingTable

    table = FittingTable(box=None, pad_edge=False)
    for k, column in enumerate(columns):
        table.add_column(column, justify="left" if k < left else "right")
    return table


def policy_text(mdp: TabularMDP, policy: Ints) -> str:
    """A policy on its grid as text; arrows on the path from the origin, if the model has paths, are heavy.

    If several states share a cell, as with goals or delayed costs, only the path is drawn.
    """
    from ..verdicts import has_paths, path

    layout = mdp.layout
    if layout is None:
        return ""
    way = path(mdp, policy).states
    rows = [list(line) for line in layout.rows]
    shared = len(set(layout.cells)) < len(layout.cells)
    heavy = set(way) if has_paths(mdp) else set()
    for s in way[::-1] if shared else range(mdp.n_states):
        i, j = layout.cells[s]
        if not mdp.is_terminal[s]:
            rows[i][j] = ("⬆➡⬇⬅" if s in heavy else "↑→↓←")[int(policy[s])]
    return "\n".join("  " + " ".join(row) for row in rows)


def print_policy(console: Console, title: str, mdp: TabularMDP, policy: Ints) -> None:
    """Print a policy under a title, if the model has a grid that is not too large."""
    text = policy_text(mdp, policy)
    if text and len(text) < 4_000:
        console.print(f"\n{title}\n{text}", highlight=False, markup=False)


def show_result(as_json: bool, content: Callable[[], Any], show: Callable[[], Any], page: Path | None = None) -> None:
    """Print the content as one line of JSON, or show it and the path of its page."""
    if as_json:
        echo(json.dumps(content(), ensure_ascii=False))
        return
    show()
    if page is not None:
        echo(f"\n{page}")
