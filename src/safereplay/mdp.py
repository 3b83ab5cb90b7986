"""TabularMDP: a Markov decision process as a table of outcomes.

The paper's MDP has random rewards that may depend on the next state. One function describes it: q(s',r|s,a), the
probability that action a in state s leads to s' with reward r. A :class:`TabularMDP` lists, for each pair (s,a), its
outcomes (p, s', r, terminal, unsafe) in compressed rows:

    pair i = s·|A| + a  has outcomes  row[i], ..., row[i+1] − 1,   Σ p = 1 within each.

An outcome is *terminal* if the episode ends with it, and *unsafe* if a cautious agent should avoid it.
Outcomes of a pair that differ only in p are merged. They are sorted by reward, then next state, so the distinct
rewards (the paper's M) and the distinct next states of a reward (its L) can be read off a row. A state without
outcomes is terminal.

Ref: Szlak & Shamir (2021), Section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from . import _checks, _files
from ._checks import AnyArray, Bools, Floats, Ints
from .errors import BadFile, BadInput

FORMAT = 1
MAX_REWARD = 1e100  # so that squares of returns are finite
SMALL = 300  # states and edges up to which a search needs no sparse matrix
FEW = 8  # outcomes per distinct reward from which on rewards are few
A = TypeVar("A", bound=AnyArray)
COLUMNS = ("s", "a", "p", "s_next", "r", "terminal", "unsafe")


class Outcomes(NamedTuple):
    """The outcomes of one pair, as parallel arrays."""

    p: Floats
    s_next: Ints
    r: Floats
    terminal: Bools
    unsafe: Bools


@dataclass(frozen=True)
class Layout:
    """The positions of a grid's states, for pictures and for verdicts on paths. Actions are 0 up, 1 right, 2 down, 3 left."""

    text: str  #: the map, one character per cell
    cells: tuple[tuple[int, int], ...]  #: the (row, column) of each state
    origin: int  #: the state where the drawn path begins

    @property
    def rows(self) -> list[str]:
        """The map, line by line."""
        return self.text.split("\n")

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the map."""
        return len(self.rows), len(self.rows[0])

    @cached_property
    def _states(self) -> dict[tuple[int, int], int]:
        """The state of each cell; the first one if a cell has several."""
        return {cell: s for s, cell in reversed(list(enumerate(self.cells)))}

    def state_at(self, row: int, column: int) -> int:
        """The state of a cell."""
        if (row, column) not in self._states:
            _checks.fail("cell", f"be a free cell of the {self.shape[0]}×{self.shape[1]} map", (row, column))
        return self._states[row, column]


@dataclass(frozen=True, eq=False)
class TabularMDP:
    """An outcome table, a start distribution and γ. Frozen: its arrays are read-only.

    Build one with :meth:`from_outcomes`, :meth:`from_gymnasium` or :mod:`safereplay.grids`. K is the number of outcomes.

    Parameters
    ----------
    n_states, n_actions : int; |S| and |A|
    row : int [|S|·|A| + 1]; where the outcomes of each pair begin
    p, s_next, r, terminal, unsafe : array [K]; the outcomes
    start : float [S]; the start distribution
    gamma : float in (0, 1); discount γ
    layout : Layout or None; positions of a grid's states
    name : str; name of the model

    >>> import safereplay as sr
    >>> coin = sr.TabularMDP.from_outcomes(2, 1, [(0, 0, 0.5, 1, 1.0, True, False), (0, 0, 0.5, 0, -1.0, False, True)])
    >>> coin
    TabularMDP(2 states × 1 actions, 2 outcomes, gamma=0.9, rewards -1 to 1, 1 terminal state, 1 unsafe outcome)
    >>> coin.outcomes(0, 0).r
    array([-1.,  1.])

    Ref: Szlak & Shamir (2021), Section 3.1.
    """

    n_states: int
    n_actions: int
    row: Ints
    p: Floats
    s_next: Ints
    r: Floats
    terminal: Bools
    unsafe: Bools
    start: Floats
    gamma: float
    layout: Layout | None = None
    name: str = field(default="mdp")

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the arrays of a copied or unpickled model read-only as well."""
        vars(self).update(state)
        self.__post_init__()

    @classmethod
    def from_outcomes(
        cls,
        n_states: int,
        n_actions: int,
        rows: Iterable[tuple[Any, ...]] | AnyArray,
        gamma: float = 0.9,
        start: Any = None,
        *,
        layout: Layout | None = None,
        name: str = "mdp",
    ) -> Self:
        """A model from a list of outcomes.

        Parameters
        ----------
        n_states, n_actions : int; |S| and |A|
        rows : sequence of tuples, or array [m, 7]; (s, a, p, s_next, r, terminal, unsafe), of which the two flags may be left out
        gamma : float in (0, 1); discount γ
        start : state or distribution [S], optional; default: uniform over the states that are not terminal
        layout, name : as in :class:`TabularMDP`

        Raises
        ------
        BadInput : the outcomes of a pair do not sum to 1, or a row is invalid
        """
        return cls.from_pieces(n_states, n_actions, [rows], gamma, start, layout=layout, name=name)

    @classmethod
    def from_pieces(
        cls,
        n_states: int,
        n_actions: int,
        pieces: Iterable[Iterable[tuple[Any, ...]] | AnyArray],
        gamma: float = 0.9,
        start: Any = None,
        *,
        layout: Layout | None = None,
        name: str = "mdp",
    ) -> Self:
        """A large model from rows that come in pieces, so that they need not all be in memory at once.

        Parameters
        ----------
        pieces : iterable of arrays; each has all rows of its pairs, as in :meth:`from_outcomes`; in the order of the pairs
        n_states, n_actions, gamma, start, layout, name : as in :meth:`from_outcomes`

        >>> import safereplay as sr
        >>> pieces = ([(s, 0, 1.0, s + 1, -1.0, s == 8, False)] for s in range(9))
        >>> sr.TabularMDP.from_pieces(10, 1, pieces).n_pairs
        10
        """
        S, A = _checks.whole("n_states", n_states, 1), _checks.whole("n_actions", n_actions, 1)
        gamma = _checks.between("gamma", gamma, "(0, 1)")
        table = _joined(_outcome_table(rows, S, A) for rows in pieces)
        row = np.searchsorted(table["pair"], np.arange(S * A + 1)).astype(np.int64)
        sums = np.bincount(table["pair"], weights=table["p"], minlength=S * A)
        has_outcomes = np.asarray(np.diff(row).reshape(S, A).sum(1) > 0)
        bad = (np.abs(sums - 1.0) > 1e-9) & np.repeat(has_outcomes, A)
        if bad.any():
            i = int(np.argmax(bad))
            _checks.fail(f"outcomes of (s={i // A}, a={i % A})", "sum to 1", float(sums[i]))
        table["p"] = _checks.rescaled(table["p"], sums[table["pair"]])
        lost = ~table["terminal"] & ~has_outcomes[table["s_next"]]
        if lost.any():
            k = int(np.argmax(lost))
            i, s_next = int(table["pair"][k]), int(table["s_next"][k])
            outcome = f"outcome of (s={i // A}, a={i % A}) to s_next={s_next}"
            _checks.fail(outcome, "be terminal or lead to a state with outcomes", "neither")
        columns: Any = {column: table[column] for column in COLUMNS[2:]}
        return cls(S, A, row, **columns, start=np.zeros(S), gamma=gamma, layout=layout, name=name).with_start(start)

    @classmethod
    def from_gymnasium(
        cls,
        env: Any,
        gamma: float = 0.99,
        *,
        unsafe: Callable[[int, int, int, float, bool], bool] | None = None,
        **make_kwargs: Any,
    ) -> TabularMDP:
        """The model of a Gymnasium environment that exposes its table ``P``, given as an object or by its id.

        Parameters
        ----------
        env : gymnasium.Env or str; the environment, or its id
        gamma : float in (0, 1); discount γ
        unsafe : callable, optional; ``unsafe(s, a, s_next, r, terminal)`` marks outcomes. Default: outcomes that end an episode
            with less than the best final reward, and those that cost at least five times the median cost of a step
        **make_kwargs : options of ``gymnasium.make`` for an id

        Raises
        ------
        BadInput : the environment has no table, or its spaces are not Discrete

        >>> import safereplay as sr
        >>> sr.TabularMDP.from_gymnasium("FrozenLake-v1", gamma=0.95, is_slippery=True).n_states
        16
        """
        from .gym import table_of

        return table_of(env, gamma, unsafe, make_kwargs)

    @property
    def n_pairs(self) -> int:
        """|S|·|A|."""
        return self.n_states * self.n_actions

    @cached_property
    def pair(self) -> Ints:
        """The pair of each outcome, [K]."""
        return _frozen(np.repeat(np.arange(self.n_pairs), np.diff(self.row)))

    @cached_property
    def is_terminal(self) -> Bools:
        """Which states have no outcomes, [S]."""
        return _frozen(np.diff(self.row).reshape(self.n_states, self.n_actions).sum(1) == 0)

    @cached_property
    def is_reachable(self) -> Bools:
        """Which states can be reached from the start under some policy, [S]."""
        on = ~self.terminal
        here, there = self.pair[on] // self.n_actions, self.s_next[on]
        return _frozen(reached(self.n_states, np.flatnonzero(self.start > 0), here, there))

    @cached_property
    def origin(self) -> int:
        """The state where the drawn path begins: the layout's origin, else the likeliest start."""
        return self.layout.origin if self.layout is not None else int(np.argmax(self.start))

    def outcomes(self, s: int, a: int) -> Outcomes:
        """The outcomes of (s,a), as parallel arrays (p, s_next, r, terminal, unsafe)."""
        _checks.require(_checks.whole("s", s, 0) < self.n_states, "s", f"be below {self.n_states}", s)
        _checks.require(_checks.whole("a", a, 0) < self.n_actions, "a", f"be below {self.n_actions}", a)
        i = s * self.n_actions + a
        part = slice(self.row[i], self.row[i + 1])
        return Outcomes(*(getattr(self, name)[part] for name in COLUMNS[2:]))

    def rows(self) -> Floats:
        """All outcomes as rows (s, a, p, s_next, r, terminal, unsafe), [K, 7]."""
        columns = (getattr(self, name) for name in COLUMNS[2:])
        return np.column_stack([*np.divmod(self.pair, self.n_actions), *columns]).astype(np.float64, copy=False)

    def expect(self, values: Floats, p: Floats | None = None) -> Floats:
        """Σ p·values over the outcomes of each pair: [K] → [S, A]; ``p`` defaults to q(s',r|s,a)."""
        weighted = (self.p if p is None else p) * values
        sums = np.bincount(self.pair, weights=weighted, minlength=self.n_pairs)
        return np.asarray(sums, np.float64).reshape(self.n_states, self.n_actions)

    @cached_property
    def reward_variance(self) -> Floats:
        """var(r(s,a)), [S, A].

        Ref: Szlak & Shamir (2021), Lemma 4.
        """
        r = self.r - self.r[self.row[:-1][self.pair]]  # so that equal rewards have variance exactly 0
        return _frozen(self.expect((r - self.expect(r).ravel()[self.pair]) ** 2))

    def with_gamma(self, gamma: float) -> TabularMDP:
        """The same model at another γ."""
        return replace(self, gamma=_checks.between("gamma", gamma, "(0, 1)"))

    def with_start(self, start: Any) -> Self:
        """The same model from another start: a state, or a distribution [S] over states that are not terminal; None is uniform."""
        if start is None:
            free = ~self.is_terminal
            _checks.require(bool(free.any()), "rows", "leave a state that is not terminal", 0)
            probabilities = free / free.sum()
        elif isinstance(start, int | np.integer) and not isinstance(start, bool):
            _checks.require(0 <= int(start) < self.n_states, "start", f"be a state in 0..{self.n_states - 1}", start)
            probabilities = np.eye(1, self.n_states, int(start))[0]
        else:
            probabilities = _checks.distribution("start", start, self.n_states)
        stuck = probabilities[self.is_terminal]
        _checks.require(float(stuck.sum()) == 0.0, "start", "give terminal states probability 0", float(stuck.sum()))
        return replace(self, start=probabilities)

    def reachable_part(self) -> TabularMDP:
        """The same model without the outcomes of states that cannot be reached."""
        if self.is_reachable[~self.is_terminal].all():
            return self
        keep = self.is_reachable[self.pair // self.n_actions]
        row = np.searchsorted(self.pair[keep], np.arange(self.n_pairs + 1)).astype(np.int64)
        columns = {name: getattr(self, name)[keep] for name in COLUMNS[2:]}
        return replace(self, row=row, **columns)

    def save(self, path: str | Path) -> Path:
        """Write the model to one file, without pickle."""
        meta = {name: getattr(self, name) for name in ("n_states", "n_actions", "gamma", "layout", "name")}
        if self.layout is not None:
            meta["layout"] = {name: getattr(self.layout, name) for name in ("text", "cells", "origin")}
        arrays = {name: getattr(self, name) for name in ("pair", *COLUMNS[2:], "start")}
        return _files.save_arrays(path, "TabularMDP", FORMAT, meta, arrays)

    @classmethod
    def load(cls, path: str | Path) -> TabularMDP:
        """Read a model that :meth:`save` wrote. Its contents are checked as for a new model."""
        meta, arrays = _files.load_arrays(path, "TabularMDP", FORMAT)
        try:
            layout = None if meta["layout"] is None else _layout(**meta["layout"], n_states=meta["n_states"])
            s, a = np.divmod(arrays["pair"], _checks.whole("n_actions", meta["n_actions"], 1))
            rows = np.column_stack([s, a, *(arrays[c] for c in COLUMNS[2:])])
            rest = (meta["gamma"], arrays["start"])
            return cls.from_outcomes(meta["n_states"], meta["n_actions"], rows, *rest, layout=layout, name=meta["name"])
        except BadInput:
            raise
        except (KeyError, TypeError, ValueError):
            raise BadFile(f"{path} must be a saved TabularMDP, got one with parts missing") from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TabularMDP):
            return NotImplemented
        names = ("row", *COLUMNS[2:], "start", "n_states", "n_actions", "gamma", "layout")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        ends, bad = int(self.is_terminal.sum()), int(self.unsafe.sum())
        grid = f"{self.layout.shape[0]}×{self.layout.shape[1]} grid, " if self.layout else ""
        return (
            f"TabularMDP({grid}{self.n_states} states × {self.n_actions} actions, {self.r.size} outcomes, "
            f"gamma={self.gamma:g}, rewards {self.r.min():g} to {self.r.max():g}, "
            f"{ends} terminal state{'s' * (ends != 1)}, {bad} unsafe outcome{'s' * (bad != 1)})"
        )


def reached(n: int, seeds: Ints, here: Ints, there: Ints) -> Bools:
    """Which of n states can be reached from the seeds along edges here → there, [n]."""
    return (_by_bits if max(n, here.size) <= SMALL else _by_matrix)(n, seeds, here, there)


def _by_bits(n: int, seeds: Ints, here: Ints, there: Ints) -> Bools:
    """With sets as bits of whole numbers: for few edges faster than to build a matrix."""
    after = [0] * n
    for s, t in zip(here.tolist(), there.tolist(), strict=True):
        after[s] |= 1 << t
    found = waiting = sum(1 << s for s in set(seeds.tolist()))
    while waiting:
        s = waiting.bit_length() - 1
        fresh = after[s] & ~found
        found, waiting = found | fresh, (waiting | fresh) ^ (1 << s)
    return np.array([found >> s & 1 for s in range(n)], np.bool_)


def _by_matrix(n: int, seeds: Ints, here: Ints, there: Ints) -> Bools:
    """Breadth first in a sparse matrix."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    edges = np.concatenate((here, np.full(seeds.size, n))), np.concatenate((there, seeds))  # n leads to every seed
    graph = csr_array((np.ones(edges[0].size), edges), shape=(n + 1, n + 1))
    found = np.zeros(n + 1, np.bool_)
    found[breadth_first_order(graph, n, return_predecessors=False)] = True
    return found[:n]


def _layout(text: Any, cells: Any, origin: Any, n_states: Any) -> Layout:
    """A layout from a file: one cell of the map per state, and an origin among them."""
    layout = Layout(text, tuple(tuple(cell) for cell in cells), origin)
    _checks.require(isinstance(text, str), "text of the layout", "be text", text)
    _checks.require(len({len(line) for line in layout.rows}) == 1, "lines of the layout", "be of one length", text)
    rows, columns = layout.shape
    on_map = {(i, j) for i in range(rows) for j in range(columns)}
    for cell in layout.cells:
        whole = {*map(type, cell)} == {int}
        _checks.require(whole and cell in on_map, "cells of the layout", f"lie on the {rows}×{columns} map", cell)
    _checks.require(len(layout.cells) == n_states, "cells of the layout", f"number {n_states}", len(layout.cells))
    _checks.require(origin in range(len(layout.cells)), "origin of the layout", "be a state", origin)
    return layout


def _frozen(array: A) -> A:
    array.setflags(write=False)
    return array


def _outcome_table(rows: Any, S: int, A: int) -> dict[str, Any]:
    """Columns of the outcomes, checked, merged and sorted by pair, reward, next state."""
    columns = _columns(rows)
    with np.errstate(invalid="ignore"):  # values that are not whole numbers are refused below
        s, a, s_next = (columns[c].astype(np.int64) for c in ("s", "a", "s_next"))
    for name, index, size in (("s", s, S), ("a", a, A), ("s_next", s_next, S)):
        bad = (index < 0) | (index >= size) | (index != columns[name])
        if bad.any():
            k = int(np.argmax(bad))
            _checks.fail(f"{name} of row {k}", f"be a whole number in 0..{size - 1}", float(columns[name][k]))
    p, r = columns["p"], columns["r"]
    pair = s * A + a
    for name, bad, condition in (
        ("p", ~np.isfinite(p), "be finite"),
        ("r", ~np.isfinite(r), "be finite"),
        ("r", np.where(np.abs(r) > MAX_REWARD, np.abs(r), 0.0), f"lie within ±{MAX_REWARD:g}"),
        ("p", p < 0, "be at least 0"),
    ):
        if bad.any():
            k = int(np.argmax(bad))
            _checks.fail(f"{name} of (s={s[k]}, a={a[k]})", condition, float(columns[name][k]), f"in row {k}")
    keep = p > 0
    flags = 2 * (columns["terminal"] != 0) + (columns["unsafe"] != 0)
    order = np.flatnonzero(keep)[_order(pair[keep], r[keep], s_next[keep], flags[keep], S)]
    flags, s_next, r, pair, p = flags[order], s_next[order], r[order], pair[order], p[order]
    new = np.ones(p.size, bool)
    new[1:] = np.any([c[1:] != c[:-1] for c in (pair, r, s_next, flags)], axis=0)
    merged = np.bincount(np.cumsum(new) - 1, weights=p).astype(np.float64)
    return {
        "pair": pair[new],
        "p": merged,
        "s_next": s_next[new],
        "r": r[new] + 0.0,  # −0 and 0 are the same reward
        "terminal": flags[new] >= 2,
        "unsafe": flags[new] % 2 == 1,
    }


def _joined(tables: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Concatenate the tables of pieces."""
    parts, last = [], -1
    for i, part in enumerate(tables):
        pair = part["pair"]
        later = pair.size == 0 or pair[0] > last
        _checks.require(bool(later), f"piece {i}", "begin with a later pair than the pieces before", "an earlier one")
        last = pair[-1] if pair.size else last
        parts.append(part)
    _checks.require(bool(parts), "pieces", "be at least one", "none")
    return {column: np.concatenate([part.pop(column) for part in parts]) for column in list(parts[0])}


def _order(pair: Ints, r: Floats, s_next: Ints, flags: Ints, S: int) -> Ints:
    """The permutation that sorts outcomes by pair, reward, next state, flags; stable.

    All four keys are packed into one integer if they fit and rewards are few. Rows in the order of pairs are then nearly
    sorted, and the sort is fast; sorting key after key would undo that order. Otherwise pair and reward are packed into a
    complex number, which sorts by both, and the few outcomes that are equal in both are sorted by the other two.
    """
    rewards = np.unique(r)
    if rewards.size * FEW <= r.size and (int(pair.max(initial=0)) + 1) * rewards.size * S * 4 < 1 << 63:
        key = ((pair * rewards.size + np.searchsorted(rewards, r)) * S + s_next) * 4 + flags
        return np.argsort(key, kind="stable")
    both = pair + 1j * r
    order = np.argsort(both, kind="stable")
    both = both[order]
    equal = np.zeros(order.size + 1, bool)  # to the one before
    equal[1:-1] = both[1:] == both[:-1]
    tied = np.flatnonzero(equal[1:] | equal[:-1])
    k = order[tied]
    order[tied] = k[np.lexsort((flags[k], s_next[k], r[k], pair[k]))]
    return order


def _columns(rows: Any) -> dict[str, Floats]:
    """Rows as seven float columns; the flags may be left out."""
    try:
        if not isinstance(rows, np.ndarray):
            rows = [row if len(row) < 5 else (*row, False, False)[: max(len(row), 7)] for row in map(tuple, rows)]
        array = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput("rows must be numbers (s, a, p, s_next, r, terminal, unsafe), got something else") from None
    shown = array.shape if array.size else "none"
    fits = array.size > 0 and array.ndim == 2 and array.shape[1] == len(COLUMNS)
    _checks.require(fits, "rows", "be (s, a, p, s_next, r, ...)", shown)
    return dict(zip(COLUMNS, array.T, strict=True))
