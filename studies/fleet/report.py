"""The page of the study: fleet.md and its pictures, from the rows of its networks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy import stats

from safereplay._checks import Floats
from safereplay._files import make_folder, write_atomic
from safereplay.views.document import Block, Heading, Picture, Table, Text, to_markdown
from safereplay.views.drawing import save
from safereplay.views.intervals import Estimate, listed, number
from studies.deep.frontier import VERDICTS, Comparison, compare
from studies.deep.records import TITLES, read_record
from studies.deep.sentences import PART, frontiers, reached, share, with_interval
from studies.deep.summary import CVAR, FAILS, KEYED, MAY_LOSE, OURS, PLAIN, RANDOM, STATIC, Group, Run, loss
from studies.deep.training import Setting

from . import figures
from .study import FAMILIES, UNVARIED, Forecast, Network, forecast, plan, read, settings, training
from .study import Preset as Size
from .tasks import MORE, SHARED, random_return, task_named

TITLE = "Many networks at once"
DEFAULT = 0.8  #: v of shaped replay
BOOTSTRAPS = 2000
KEPT = "fleet-runs.parquet"  #: the rows of all networks, if they are in the page's folder
LEAST = 5  #: failures of which signs are looked for
GAPS = (0.001, 0.01, 0.03)  #: where gaps of the limit are split
LONG, MANY = 3.0, 1 / 3  #: episodes that are so many times as long as plain DQN's; networks that have them
NEAR = 0.01  #: a difference in P(unsafe) that is small


class Seeds(Group):
    """The networks of one setting, with one P(unsafe) and one mean return each."""

    def __init__(self, family: str, dial: float, rows: dict[str, Any]) -> None:
        super().__init__(family, f"{dial:g}", ())
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "value", dial)

    rows: dict[str, Any]  #: columns of the study, [n] each
    value: float  #: of the dial

    @property
    def seeds(self) -> int:
        """The number of networks."""
        return len(self.rows["seed"])

    @cached_property
    def replicates(self) -> Floats:
        """P(unsafe) and mean return of bootstrap samples of seeds, [B, 2]."""
        rng = np.random.default_rng(0)
        at = rng.integers(self.seeds, size=(BOOTSTRAPS, self.seeds))
        return np.stack([self.rows[name][at].mean(1) for name in ("p_unsafe", "mean")], 1)

    @cached_property
    def p(self) -> Estimate:
        """P(unsafe), on average over networks."""
        return self._estimate("p_unsafe", 0)

    @cached_property
    def mean(self) -> Estimate:
        """The mean return."""
        return self._estimate("mean", 1)

    def _estimate(self, name: str, k: int) -> Estimate:
        low, high = np.quantile(self.replicates[:, k], (0.025, 0.975))
        return Estimate(float(self.rows[name].mean()), float(low), float(high))


class Chapter(NamedTuple):
    """All networks of one world."""

    world: str
    groups: tuple[Seeds, ...]
    random: float  #: the mean return of random actions

    @property
    def title(self) -> str:
        """The name of the world."""
        return TITLES.get(self.world, self.world.replace("_", " "))

    def family(self, name: str) -> tuple[Seeds, ...]:
        """A family's settings, from neutral to cautious."""
        found = [g for g in self.groups if g.family == name]
        return tuple(sorted(found, key=lambda g: g.value, reverse=name in (CVAR, STATIC)))

    @property
    def plain(self) -> Seeds:
        """Plain DQN."""
        return self.family(PLAIN)[0]

    @property
    def default(self) -> Seeds | None:
        """Shaped replay at its default."""
        return next((g for g in self.family(OURS) if g.value == DEFAULT), None)

    def lost(self, group: Seeds) -> Floats:
        """The share of the gap between plain and random that each network loses."""
        return np.array([loss(x, self.plain.mean.mean, self.random) for x in group.rows["mean"]])

    def failed(self, group: Seeds) -> Any:
        """Which networks lose more than half of the gap, on tables by the exact mean return of their policies."""
        exact, never = (group.rows[name].astype(float) for name in ("exact_mean", "p_never"))
        mean = np.where(np.isnan(exact), group.rows["mean"], np.where(never > 0.0, -np.inf, exact))
        return np.array([loss(x, self.plain.mean.mean, self.random) for x in mean]) > FAILS


def chapters(folder: str | Path, steps: int = 0) -> list[Chapter]:
    """The networks of a folder by world, in the plan's order. Left out: those with other steps or terms than asked for, and worlds without the plain learner."""
    table = read(folder)
    rows = table.select(["id", *Network._fields]).to_pylist()
    table = table.filter(pa.array([_belongs(row, steps) for row in rows], pa.bool_()))
    columns: dict[str, Any] = {
        name: np.array(
            table[name].to_pylist(), dtype=object if str(table.schema.field(name).type)[:4] == "list" else None
        )
        for name in table.column_names
        if name not in ("id", "policy")
    }
    found = []
    order = list(dict.fromkeys([*Size().worlds, *columns["world"]]))
    for world in order:
        groups = []
        here = columns["world"] == world
        for family in FAMILIES:
            dial = "alpha" if family in (CVAR, STATIC) else "v"
            mine = here & (columns["family"] == family)
            for value in np.unique(columns[dial][mine]):
                rows = {name: x[mine & (columns[dial] == value)] for name, x in columns.items()}
                groups.append(Seeds(family, float(value), rows))
        if any(g.family == PLAIN for g in groups):
            found.append(Chapter(world, tuple(groups), random_return(world)))
    return found


def _belongs(row: dict[str, Any], steps: int) -> bool:
    """Whether a row is of a network that the study would train now."""
    if row["world"] not in (*SHARED, *MORE):
        return False
    asked = steps or task_named(row["world"]).terms.steps
    dial = row["v"], row["beta"], row["alpha"]
    same = row["steps"] == asked and Network(**{name: row[name] for name in Network._fields}).id == row["id"]
    return bool(same and dial in settings(row["world"], row["family"]))


def write_page(folder: str | Path, docs: str | Path, sb3: str | Path, steps: int = 0) -> Path | None:
    """Write fleet.md and img/fleet-*; None if there are no plain networks."""
    if not any((Path(folder) / "runs").glob("*.parquet")):
        return None
    found = chapters(folder, steps)
    if not found:
        return None
    target = make_folder(docs)
    pictures = make_folder(target / "img")
    for name, figure in figures.drawn(found, outlooks(found)).items():
        save(figure, pictures, name)
    return write_atomic(
        target / "fleet.md",
        to_markdown(TITLE, compose(found, sb3, (target / KEPT).exists())).replace("(figures/", "(img/"),
    )


def compose(found: Sequence[Chapter], sb3: str | Path, kept: bool = False) -> list[Block]:
    """The page's blocks."""
    return [
        *_opening(found),
        *_results(found),
        *_dials(found),
        *_parity(found, sb3),
        *_forecast(found),
        *_failures(found),
        *_method(found, kept),
    ]


def _opening(found: Sequence[Chapter]) -> list[Block]:
    rows = [
        (c.world, g.family, seed, None if g.family == STATIC else g.value)
        for c in found
        for g in c.groups
        for seed in g.rows["seed"].tolist()
    ]
    total, planned = len(set(rows)), len({training(network) for networks in plan(Size()) for network in networks})
    text = f"**{total:,} networks**, trained in JAX by one program per world and family ([how](jax.md)), on {len(found)} worlds."
    if len(rows) > total:
        text += f" A network of static CVaR is judged at each α, which gives {len(rows):,} results."
    if total < planned:
        text += f" The whole plan has {planned:,} networks: 500 seeds of every setting. It needs a GPU, and this page is from what has been run."
    return [Text(text), *([Text(_aim(found))] if any(c.default for c in found) else [])]


def _aim(found: Sequence[Chapter]) -> str:
    """On how many worlds the default meets the aim of the study with Stable-Baselines3, and where it adds risk."""
    both = [(c, g) for c in found if (g := c.default) is not None]
    met = [c for c, g in both if g.p.mean <= PART * c.plain.p.mean and c.lost(g).mean() <= MAY_LOSE]
    worse = [c.title for c, g in both if g.p.low > c.plain.p.high]
    text = f"**On {len(met)} of {len(both)} worlds the networks with shaped replay at its default have on average at most a third of the P(unsafe) of plain DQN, for at most 15 % of the gap.** "
    return text + (
        f"Riskier than plain DQN: {listed(worse)}." if worse else "On no world are they riskier than plain DQN."
    )


def _results(found: Sequence[Chapter]) -> list[Block]:
    rows = []
    for c in found:
        for g in filter(None, (c.plain, c.default)):
            rows.append(
                [
                    c.title if g is c.plain else "",
                    g.family if g is c.plain else f"{g.family}, v = {g.dial}",
                    str(g.seeds),
                    with_interval(g.p, percent=True),
                    with_interval(g.mean),
                    "" if g is c.plain else share(float(c.lost(g).mean())),
                    share(float(c.failed(g).mean())),
                ]
            )
    return [
        Heading("Plain and shaped"),
        Text(
            "Greedy policies, 300 simulated episodes per network; brackets: 95 % intervals of the mean over networks. *Gap lost*: loss in return, as a share of the gap between plain DQN and random actions. "
            "A network has *failed* if it loses more than half of it: on tables by the exact mean return of its policy, elsewhere by the simulated one."
        ),
        Table(["world", "learner", "networks", "P(unsafe)", "mean return", "gap lost", "failed"], rows),
    ]


def _dials(found: Sequence[Chapter]) -> list[Block]:
    rivals = [name for name in (KEYED, CVAR, STATIC) if any(c.family(name) for c in found)]
    if not figures.has_dials(found):
        return []
    blocks: list[Block] = [
        Heading("Dials"),
        Picture(
            "fleet-dials",
            "Mean return against P(unsafe), means over networks, along each family's dial; the star is plain DQN. Up and left is better.",
        ),
    ]
    if told := [line for c in found if (line := _riskier(c))]:
        count = sum(len(c.family(OURS)) for c in found)
        blocks.append(
            Text(
                f"Settings of shaped replay with significantly more risk than plain DQN (95 %): {listed(told)}. Of {count} settings about {count / 40:.0f} would be by chance."
            )
        )
    if not rivals:
        return blocks
    compared = [(c.title, _compared(c, rivals)) for c in found if c.family(OURS)]
    number_of = sum(len(x) for _, x in compared)
    return [
        *blocks,
        Text(
            "The [reach](deep.md#frontiers) of shaped replay without keys, less that of each rival. Two families have equal numbers of settings: of the larger one it is the mean reach of all subsets of that size. "
            "Bold: the 95 % interval excludes 0, and does not lie wholly within ±0.01. "
            f"Of {number_of} comparisons about {number_of / 20:.0f} would be significant by chance. A setting is the mean over its networks: where some [fail](#networks-that-fail), no single network may be like it. "
            "Shaped replay reaches, compared with"
        ),
        Text("\n".join(f"- {line}" for line in frontiers(compared, rivals))),
        *(Text(line) for name in rivals for line in (_unlearned(found, name), _better(found, name)) if line),
        *([Text(changes)] if (changes := _changes(found, dict(compared), rivals)) else []),
        Table(["world", *rivals], [[title, *(reached(x.get(name)) for name in rivals)] for title, x in compared]),
    ]


def _riskier(chapter: Chapter) -> str:
    """The settings of shaped replay that are riskier than plain DQN."""
    family = chapter.family(OURS)
    more = {g.value: g.replicates[:, 0] - chapter.plain.replicates[:, 0] for g in family}
    dials = [f"{v:g}" for v, samples in more.items() if np.quantile(samples, 0.025) > 0.0]
    last = [f"{g.value:g}" for g in family[len(family) - len(dials) :]]
    values = f"v from {dials[0]} on" if dials == last and len(dials) > 1 else f"v = {listed(dials)}"
    return f"{chapter.title} ({values})" if dials else ""


def _unlearned(found: Sequence[Chapter], name: str) -> str:
    """The worlds where many networks of a rival have long episodes."""
    titles = []
    for c in found:
        longest = LONG * c.plain.rows["mean_steps"].mean()
        late = [g.rows["mean_steps"] > longest for g in c.family(name)]
        if late and np.concatenate(late).mean() > MANY:
            titles.append(c.title)
    return (
        f"On {listed(titles)} more than a third of all networks of {name} have episodes more than {LONG:g} times as long as plain DQN's: there the difference may be one of learning."
        if titles
        else ""
    )


def _better(found: Sequence[Chapter], name: str) -> str:
    """The worlds where a rival has more return than plain DQN."""
    titles = [c.title for c in found if any(g.mean.low > c.plain.mean.high for g in c.family(name))]
    return (
        f"On {listed(titles)} a setting of {name} has more return than plain DQN, so its reach there is not only caution."
        if titles
        else ""
    )


def _compared(chapter: Chapter, rivals: Sequence[str]) -> dict[str, Comparison]:
    """Shaped replay beside each rival that was trained."""
    found = {name: chapter.family(name) for name in rivals}
    return {name: _beside(chapter, chapter.family(OURS), theirs) for name, theirs in found.items() if theirs}


def _beside(chapter: Chapter, ours: Sequence[Seeds], theirs: Sequence[Seeds]) -> Comparison:
    ground = Seeds(RANDOM, 0.0, {"seed": np.zeros(2), "p_unsafe": np.ones(2), "mean": np.full(2, chapter.random)})
    plain = chapter.plain
    return compare((plain, *ours), (plain, *theirs), plain, ground)


def _changes(found: Sequence[Chapter], compared: dict[str, dict[str, Comparison]], rivals: Sequence[str]) -> str:
    """The significant differences whose sign changes if each family has every second value of its dial only."""
    told = []
    for name in rivals:
        titles = []
        for c in found:
            whole = compared.get(c.title, {}).get(name)
            if whole is not None and whole.verdict in VERDICTS[:2]:
                ours, theirs = ([family[k::2] for k in (0, 1)] for family in (c.family(OURS), c.family(name)))
                gains = [_beside(c, a, b).gain.mean for a in ours for b in theirs if a and b]
                if any(gain * whole.gain.mean <= 0.0 for gain in gains):
                    titles.append(c.title)
        if titles:
            told.append(f"{name} on {listed(titles)}")
    return (
        f"Intervals cover the choice of networks, not the choice of dial values. With only every second value of each dial, in at least one of the four ways to choose them, the difference vanishes or changes its sign for {'; '.join(told)}."
        if told
        else ""
    )


def _parity(found: Sequence[Chapter], sb3: str | Path) -> list[Block]:
    """Two-sample tests against the runs of Stable-Baselines3."""
    runs = _sb3_runs(sb3)
    rows, low = [], 0
    for c in found:
        for g in filter(None, (c.plain, c.default)):
            theirs = runs.get((c.world, g.value), [])
            if len(theirs) < 2:
                continue
            p, mean = (np.array([getattr(run.evaluation, name) for run in theirs]) for name in ("p", "mean"))
            tests = [stats.ks_2samp(a, b).pvalue for a, b in ((p, g.rows["p_unsafe"]), (mean, g.rows["mean"]))]
            told = [
                f"{share(float(p.mean()))}, {share(g.p.mean)}",
                f"{number(float(mean.mean()))}, {number(g.mean.mean)}",
            ]
            rows.append([c.title, g.family, f"{len(theirs)}, {g.seeds}", *told, *(f"{x:.2f}" for x in tests)])
            low += sum(x < 0.05 for x in tests)
    if not rows:
        return []
    return [
        Heading("Beside Stable-Baselines3"),
        Text(
            "The same worlds, networks, budgets and hyper-parameters with Stable-Baselines3 ([the study](deep.md)), and here. P(unsafe) and mean return of networks are compared by two-sample "
            f"Kolmogorov–Smirnov tests. Of {2 * len(rows)} p-values, {low} are below 0.05; about {2 * len(rows) / 20:.0f} would be by chance. With so few networks of Stable-Baselines3 only large differences would be found."
        ),
        Table(
            ["world", "learner", "networks: SB3, here", "P(unsafe)", "mean return", "p-value of P", "of return"], rows
        ),
    ]


def _sb3_runs(folder: str | Path) -> dict[tuple[str, float], list[Run]]:
    """The runs of plain and shaped DQN without keys, by world and v."""
    import json

    found: dict[tuple[str, float], list[Run]] = {}
    for file in sorted((Path(folder) / "runs").glob("*.json")):
        setting = json.loads(file.read_text())["setting"]
        usual = {name: setting[name] for name in ("beta", "alpha", "limit", "penalty", "key", "overrides")}
        neutral = Setting("cliff").to_dict()
        if (
            setting["algorithm"] == "dqn"
            and setting["world"] in SHARED
            and all(neutral[n] == x for n, x in usual.items())
        ):
            found.setdefault((setting["world"], setting["v"]), []).append(read_record(file).run)
    return found


class Outlook(NamedTuple):
    """A setting, its forecast, and what its networks did."""

    chapter: Chapter
    group: Seeds
    forecast: Forecast
    half: float  #: the share of networks that follow the limit at half of training
    end: float  #: and at its end
    p: float  #: the median network's exact P(unsafe)


def outlooks(found: Sequence[Chapter]) -> list[Outlook]:
    """All settings whose limit is known."""
    told = []
    for c in found:
        for g in c.groups:
            known = [x for x in g.rows["follows"] if x is not None]
            said = forecast(c.world, g.family, g.value, float(g.rows["beta"][0])) if known else None
            if said is not None:
                half, end = (float(np.mean([x[k] for x in known])) for k in (len(known[0]) // 2 - 1, -1))
                told.append(Outlook(c, g, said, half, end, float(np.nanmedian(g.rows["exact_p_unsafe"].astype(float)))))
    return told


def _forecast(found: Sequence[Chapter]) -> list[Block]:
    told = outlooks(found)
    if not told:
        return []
    rows = [
        [
            x.chapter.title,
            x.group.family,
            x.group.dial,
            str(x.group.seeds),
            f"{x.forecast.gap:.2g}",
            share(x.half),
            share(x.end),
            share(x.forecast.p_unsafe),
            share(x.p),
        ]
        for x in told
    ]
    parts = []
    for low, high in zip((0.0, *GAPS), (*GAPS, np.inf), strict=True):
        some = [x for x in told if low <= x.forecast.gap < high]
        if some:
            where = (
                f"below {high:g}" if not low else f"{low:g} or more" if high == np.inf else f"from {low:g} to {high:g}"
            )
            parts.append(
                f"{share(float(np.mean([x.end for x in some])))} where it is {where} ({len(some)} setting{'s' * (len(some) > 1)})"
            )
    near = sum(abs(x.p - x.forecast.p_unsafe) <= NEAR for x in told)
    gaps, ends = [x.forecast.gap for x in told], [x.end for x in told]
    varies = len(set(gaps)) > 1 and len(set(ends)) > 1
    rank = f" (rank correlation {stats.spearmanr(gaps, ends).statistic:.2f})" if varies else ""
    return [
        Heading("Is the exact limit a good forecast?"),
        Text(
            "On tables the limit is known before training (`sr.shaped_limit`). A network *follows* it if its greedy policy takes a best action of the limit in every state that it reaches from the start. "
            f"**The limit's smallest gap says how many networks do**: {'; '.join(parts)}{rank}. "
            "The *gap* is the smallest difference in the limit's values between a best action and another one, in the states that its policy reaches; rewards are scaled as for the network. "
            f"**The limit's risk is a better forecast than its actions**: in {near} of {len(told)} settings the median network's P(unsafe) is within {100 * NEAR:g} percentage point of the limit's. "
            "Where gaps are small, other actions cost little in the shaped model, and mostly also in risk."
        ),
        Picture(
            "fleet-limit",
            "Left: the share of networks that follow the exact limit after training, against the limit's smallest gap. Right: P(unsafe) of the median network, against that of the limit's policy. One point per setting.",
        ),
        Picture(
            "fleet-forecast", "The share of networks that follow the exact limit, over training; one line per setting."
        ),
        Table(
            [
                "world",
                "family",
                "v",
                "networks",
                "gap",
                "follow at half of training",
                "at the end",
                "P(unsafe) of the limit",
                "of the median network",
            ],
            rows,
            folded=True,
        ),
    ]


def _failures(found: Sequence[Chapter]) -> list[Block]:
    rows, signs = [], []
    for c in found:
        for g in c.groups:
            bad = c.failed(g)
            if bad.any() and bad.mean() < 0.5:
                rows.append([c.title, g.family, g.dial, f"{int(bad.sum())} of {g.seeds}", share(float(bad.mean()))])
            if LEAST <= bad.sum() <= g.seeds - LEAST:
                signs.append(
                    [c.title, g.family, g.dial, *(f"{_told_apart(g, bad, part):.2f}" for part in (0.25, 0.5, 0.75))]
                )
    blocks: list[Block] = [
        Heading("Networks that fail"),
        Text(
            "Networks that lose more than half of the gap. If they are few in a hundred, studies with five seeds cannot show them. "
            + (
                f"Settings with failures, of those where most networks succeed: {len(rows)}."
                if rows
                else "None did here."
            )
        ),
    ]
    if rows:
        blocks.append(Table(["world", "family", "dial", "failed", "share"], rows, folded=True))
    if signs:
        blocks += [
            Text(
                "**A sign during training.** The probability that a network that will fail has a lower training reward than one that will not, at three moments of training: 0.5 is no sign, 1 is a sure one. "
                "Training reward includes exploration, and costs nothing to look at."
            ),
            Table(["world", "family", "dial", "at 25 %", "at 50 %", "at 75 %"], signs, folded=True),
        ]
    return blocks


def _told_apart(group: Seeds, bad: Any, part: float) -> float:
    """The probability that a failing network has the lower training reward."""
    reward = np.array([x[max(round(part * len(x)) - 1, 0)] for x in group.rows["reward"]])
    test = stats.mannwhitneyu(reward[~bad], reward[bad])
    return float(test.statistic / (bad.sum() * (~bad).sum()))


def _method(found: Sequence[Chapter], kept: bool) -> list[Block]:
    most = max(g.seeds for c in found for g in c.groups)
    fewer = {f"{g.seeds} for {g.family} on {c.title}": None for c in found for g in c.groups if g.seeds < most}
    span = f"{most:,} networks per setting" + (f", but {listed(list(fewer))}" if fewer else "")
    shared = [c.title for c in found if c.world in SHARED]
    lines = [
        f"{span}. Training, exploration and evaluation of a network depend on its seed alone.",
        f"Hyper-parameters on {listed(shared)}: those of [the study with Stable-Baselines3](deep.md). On other worlds the same, 30,000 steps, and rewards divided by the largest |Q*| or TD error of Q*.",
        "Static CVaR: the window of owed amounts is that of random episodes.",
    ]
    if left_out := [c.title for c in found if c.world in UNVARIED]:
        lines.append(
            f"Keys are tilted on the reward. No reward of the dangerous pairs varies on {listed(left_out)}, so keys have no effect there, and are left out; [the study](deep.md) has keys that are tilted on the target."
        )
    return [
        Heading("Method"),
        Text("\n".join(f"- {line}" for line in lines)),
        Text(
            "Run it with `python -m studies.fleet`; `--help` lists its options. Networks that are there are not trained again."
            + (
                f" The rows of this page are in [{KEPT}]({KEPT}); to go on from them, copy it to `fleet-study/runs`."
                if kept
                else ""
            )
        ),
    ]
