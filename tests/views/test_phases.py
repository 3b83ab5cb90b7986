"""Which axes are drawn and how; and that the pictures show what is in the table."""

import itertools

import numpy as np
import pytest
from matplotlib.collections import PolyCollection, QuadMesh
from sweep_folder import given, learned, write_part

from safereplay.errors import BadInput
from safereplay.views.drawing import COLOURS
from safereplay.views.phases import (
    _front,
    _pieces,
    choose_views,
    curves_figure,
    facets,
    phase_figure,
    scale,
    settings_figure,
    sweep_page,
)
from safereplay.views.sweeps import Reader, summarise

VERDICTS = ["safe", "risky", "jumps", "stuck"]


def product(**axes):
    """A table of every combination of these values."""
    rows = list(itertools.product(*axes.values()))
    return given(**dict(zip(axes, map(list, zip(*rows, strict=True)), strict=True)))


@pytest.fixture
def read(tmp_path):
    def at_once(table, curves=False):
        return Reader(write_part(tmp_path, table), curves).read()

    return at_once


def risky_below(table, border=0.4):
    """Safe where v is above a border, and its risk; in between the seed decides."""
    v, seed = np.array(table["v"]), np.array(table["seed"])
    safe = np.where(np.isclose(v, border), seed % 2 == 0, v > border)
    table = table.append_column("verdict", [np.where(safe, "safe", "risky").tolist()])
    table = table.append_column("mean", [np.where(safe, 145.0, 210.0)])
    return table.append_column("p_unsafe", [np.where(safe, 0.0, 0.8)])


GRID = {
    "model": ["cliff", "volatile"],
    "gamma": [0.8, 0.9, 0.95],
    "v": [0.0, 0.2, 0.4, 0.6, 0.8],
    "beta": [0.01, 0.1, 1.0, 10.0],
    "seed": range(4),
}


# -- axes -------------------------------------------------------------------------------------------------------------


def test_the_two_axes_of_most_values_are_drawn_and_gamma_makes_columns(read):
    view = choose_views(read(risky_below(product(**GRID))))[0]
    assert (view.x, view.y, view.columns, view.rows, view.pooled) == ("v", "beta", "gamma", ("model",), ())


def test_gamma_is_drawn_last_however_many_values_it_has(read):
    many = GRID | {"gamma": np.linspace(0.5, 0.99, 9)}
    view = choose_views(read(risky_below(product(**many))))[0]
    assert {view.x, view.y} == {"v", "beta"}


def test_axes_that_are_asked_for_are_taken_and_the_rest_is_named_as_pooled(read):
    table = risky_below(product(**{**GRID, "mixing": ["literal", "matched"]}))
    view = choose_views(read(table), x="beta", y="gamma", by=["mixing"])[0]
    assert (view.x, view.y, view.columns, view.pooled) == ("beta", "gamma", "mixing", ("v",))
    assert "Pooled over v" in view.caption


def test_each_learner_has_axes_of_its_own(read):
    table = given(
        learner=["replay"] * 4 + ["mihatsch"] * 3 + ["q"],
        v=[0.1, 0.1, 0.5, 0.5] + [None] * 4,
        beta=[1.0, 2.0, 1.0, 2.0] + [None] * 4,
        kappa=[None] * 4 + [0.1, 0.2, 0.3] + [None],
        verdict=["safe"] * 8,
    )
    found = {view.learner: (view.x, view.y) for view in choose_views(read(table))}
    assert found == {"replay": ("v", "beta"), "mihatsch": ("kappa", None)}
    assert [view.learner for view in choose_views(read(table), x="v")] == ["replay"]


def test_axes_that_do_not_exist_or_do_not_vary_are_refused(read):
    results = read(risky_below(product(**GRID | {"gamma": [0.9]})))
    with pytest.raises(BadInput, match=r"unknown axis for --x 'bta'; did you mean 'beta'\?"):
        choose_views(results, x="bta")
    with pytest.raises(BadInput, match=r"axes must vary in some learner \(v, beta do\), got 'v, gamma'"):
        choose_views(results, x="v", y="gamma")
    with pytest.raises(BadInput, match="--metric must be a result that the sweep kept, got 'std'"):
        choose_views(results, metric="std")


def test_without_verdicts_what_was_kept_is_drawn(read):
    table = risky_below(product(**GRID))
    assert choose_views(read(table.drop_columns(["verdict", "mean"])))[0].metric == "p_unsafe"
    assert choose_views(read(table.drop_columns(["verdict", "mean", "p_unsafe"]))) == []


@pytest.mark.parametrize(
    ("values", "kind", "first", "last"),
    [
        ([0.0, 0.5, 1.0], "linear", -0.25, 1.25),
        ([0.01, 0.1, 1.0, 10.0], "log", -2.5, 1.5),
        ([0.1, 0.3, 1.0, 3.0], "log", None, None),
        ([0.8, 0.9, 0.95, 0.99], "listed", -0.5, 3.5),
        ([-10.0, -1.0, 0.0, 1.0, 10.0], "listed", -0.5, 4.5),
        (["literal", "matched"], "listed", -0.5, 1.5),
    ],
)
def test_a_grid_is_drawn_as_it_was_laid(values, kind, first, last, read):
    found = scale(read(given(v=values)), "v", 10)
    assert found.kind == kind
    assert found.cell.tolist() == list(range(len(values)))
    if first is not None:
        assert found.edges[[0, -1]].tolist() == pytest.approx([first, last])


@pytest.mark.parametrize(("power", "kind"), [(False, "linear"), (True, "log")])
def test_random_values_are_cut_into_ranges_evenly_or_in_powers(power, kind, read):
    x = np.random.default_rng(0).uniform(-3, 1, 500)
    found = scale(read(given(v=10.0**x if power else x)), "v", 10)
    assert found.kind == kind
    assert np.bincount(found.cell, minlength=10).min() > 25


def test_many_facets_go_together_in_ranges(read):
    results = read(given(gamma=np.linspace(0.5, 0.99, 50)))
    column, titles = facets(results, "gamma")
    assert np.bincount(column).tolist() == [10] * 5
    assert titles[0] == "γ 0.5 … 0.59"


# -- phases -----------------------------------------------------------------------------------------------------------


def areas(ax, log):
    """The share of the panel that each verdict's colour fills, on its own scales."""
    (cells,) = [c for c in ax.collections if isinstance(c, PolyCollection)]
    found = dict.fromkeys(VERDICTS, 0.0)
    names = {colour: name for name, colour in COLOURS.items()}
    for path, colour in zip(cells.get_paths(), cells.get_facecolor(), strict=True):
        x, y = path.vertices.T
        y = np.log10(y) if log else y
        code = "#" + "".join(f"{round(255 * c):02x}" for c in colour[:3])
        found[names[code]] += np.ptp(x) * np.ptp(y)
    total = sum(found.values())
    return {name: area / total for name, area in found.items()}


def test_a_verdict_fills_as_much_of_a_panel_as_it_has_runs(read):
    results = read(risky_below(product(**GRID)))
    figure = phase_figure(results, choose_views(results)[0])
    assert [ax.get_title(loc="left") for ax in figure.axes] == [
        f"{model}, γ = {gamma:g}" for model in GRID["model"] for gamma in GRID["gamma"]
    ]
    for ax in figure.axes:
        assert ax.get_yscale() == "log"
        assert areas(ax, log=True) == pytest.approx({"safe": 0.5, "risky": 0.5, "jumps": 0.0, "stuck": 0.0})
        assert ax.get_xlim() == pytest.approx((-0.1, 0.9))
        assert {text.get_text() for text in ax.texts} == {"S", "R"}


def test_the_border_runs_through_a_cell_where_seeds_disagree():
    """Safe above, risky below, a quarter safe in between: two pieces, with the border three quarters up."""
    column = np.array([[0.0, 1.0], [0.25, 0.75], [1.0, 0.0]])
    pieces = _pieces(column, np.array([0.0, 1.0, 2.0, 3.0]))
    assert pieces == [(1, 0.0, 1.75), (0, 1.75, 3.0)]
    assert _pieces(column[::-1], np.array([0.0, 1.0, 2.0, 3.0])) == [(0, 0.0, 1.25), (1, 1.25, 3.0)]


def test_a_cell_without_runs_stays_empty():
    column = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    assert _pieces(column, np.arange(4.0)) == [(0, 0.0, 1.0), (0, 2.0, 3.0)]


def test_a_diagram_of_few_cells_names_each_share(read):
    few = {"v": [0.2, 0.4, 0.6], "beta": [1.0, 5.0], "seed": range(4)}
    results = read(risky_below(product(**few)))
    ax = phase_figure(results, choose_views(results)[0]).axes[0]
    named = sorted((round(text.get_position()[0], 6), text.get_text()) for text in ax.texts)
    half = [(0.4, "risky 50%"), (0.4, "risky 50%"), (0.4, "safe 50%"), (0.4, "safe 50%")]
    assert named == [(0.2, "risky 100%")] * 2 + half + [(0.6, "safe 100%")] * 2
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0.2", "0.4", "0.6"]


def test_the_legend_names_the_verdicts_that_occur(read):
    results = read(risky_below(product(**GRID)))
    figure = phase_figure(results, choose_views(results)[0])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["S  safe", "R  risky"]


def test_a_model_without_some_value_leaves_no_empty_panel(read):
    table = risky_below(product(**GRID))
    keep = (np.array(table["model"]) == "cliff") | (np.array(table["gamma"]) == 0.9)
    results = read(table.filter(keep))
    figure = phase_figure(results, choose_views(results)[0])
    assert [ax.get_visible() for ax in figure.axes] == [True] * 3 + [False, True, False]
    assert [bool(ax.get_xlabel()) for ax in figure.axes[:5]] == [True, False, True, True, True]
    assert figure.axes[4].get_ylabel() == "β"


def test_one_axis_is_drawn_as_shares_over_it(read):
    results = read(risky_below(product(v=[0.0, 0.2, 0.4, 0.6], seed=range(4))))
    ax = phase_figure(results, choose_views(results)[0]).axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("v", "share of runs")
    assert areas(ax, log=False)["risky"] == pytest.approx(2.5 / 4)
    view = choose_views(results, metric="p_unsafe")[0]
    line = phase_figure(results, view).axes[0].lines[0]
    assert line.get_ydata() == pytest.approx([0.8, 0.8, 0.4, 0.0])


def test_a_metric_is_the_mean_of_its_cell_with_a_colour_bar_a_model(read):
    results = read(risky_below(product(**GRID)))
    figure = phase_figure(results, choose_views(results, metric="p_unsafe")[0])
    panels = [ax for ax in figure.axes if ax.get_xlabel() or ax.get_title(loc="left")]
    (mesh,) = [c for c in panels[0].collections if isinstance(c, QuadMesh)]
    assert np.asarray(mesh.get_array())[0] == pytest.approx([0.8, 0.8, 0.4, 0.0, 0.0])
    assert [ax.get_ylabel() for ax in figure.axes if ax not in panels] == ["P(unsafe)"] * 2


def test_cells_where_no_run_has_a_mean_are_hatched(read):
    table = risky_below(product(**GRID))
    mean = np.where(np.array(table["v"]) < 0.1, -np.inf, 1.0)
    table = table.set_column(table.schema.get_field_index("mean"), "mean", [mean])
    results = read(table)
    figure = phase_figure(results, choose_views(results, metric="mean")[0])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["no run ends"]


def test_random_settings_are_drawn_in_ranges(read):
    draw = np.random.default_rng(1)
    table = given(v=draw.uniform(0, 0.95, 2_000), beta=10 ** draw.uniform(-3, 1, 2_000), seed=[0] * 2_000)
    results = read(risky_below(table))
    ax = phase_figure(results, choose_views(results)[0]).axes[0]
    assert ax.get_yscale() == "log"
    assert areas(ax, log=True)["risky"] == pytest.approx(0.4 / 0.95, abs=0.03)


# -- the frontier, curves and the page --------------------------------------------------------------------------------


def test_the_front_is_what_no_other_beats_in_both():
    risk, gain = np.array([0.3, 0.1, 0.1, 0.2, 0.4]), np.array([3.0, 1.0, 0.5, 1.0, 2.9])
    assert _front(risk, gain).tolist() == [1, 0]


def test_the_frontier_has_a_panel_a_model_and_leaves_out_what_never_ends(read):
    table = risky_below(product(**GRID))
    mean = np.array(table["mean"]).copy()
    mean[0] = -np.inf  # one seed of the first setting
    results = read(table.set_column(table.schema.get_field_index("mean"), "mean", [mean]))
    figure = settings_figure(results)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["cliff", "volatile"]
    dots = [ax.collections[-1].get_offsets() for ax in figure.axes]
    assert [len(x) for x in dots] == [59, 60]
    step = figure.axes[1].lines[0].get_xydata()
    assert step[0] == pytest.approx([0.0, 145.0])
    assert step[-1] == pytest.approx([0.8, 210.0])


def test_curves_show_the_median_over_runs(read):
    table = learned(vs=(0.0, 0.5), seeds=3, curves=5)
    results = read(table, curves=True)
    ax = curves_figure(results).axes[1]
    values = np.array(table["curve_value"].to_pylist())
    assert ax.lines[0].get_ydata() == pytest.approx(np.median(values, axis=0))
    assert ax.get_xscale() == "log"


def test_the_page_has_every_picture_that_it_names(read):
    results = read(learned(vs=(0.0, 0.5), betas=(0.1, 5.0), curves=3), curves=True)
    page = sweep_page(results, choose_views(results), summarise(results))
    assert set(page.figures) == {"phases", "frontier", "curves"}
    assert page.refresh is None
