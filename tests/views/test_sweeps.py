"""What is read of a sweep's folder, and its tables."""

import numpy as np
import pyarrow as pa
import pytest
from sweep_folder import given, learned, write_part, write_total

from safereplay.errors import BadFile, BadInput
from safereplay.views.sweeps import Reader, cells, matching, overview, summarise, to_dict


@pytest.fixture(scope="module")
def table():
    return learned(models=("cliff", "volatile"), gammas=(0.9, 0.95), vs=(0.0, 0.5), betas=(0.01, 5.0), curves=4)


@pytest.fixture
def results(table, tmp_path):
    return Reader(write_part(tmp_path / "study", table)).read()


def test_only_columns_that_are_needed_are_read(results, table, tmp_path):
    assert not results.has("id")
    assert not results.has("curve_value")
    assert not results.has("policy")
    with_curves = Reader(write_part(tmp_path / "curves", table), curves=True).read()
    assert with_curves.has("curve_value", "curve_p_unsafe", "curve_episodes")


def test_axes_are_what_varies_within_a_model_and_a_learner(tmp_path):
    """Each model has its own γ, each learner its own dials: those are no axes."""
    rows = given(
        model=["cliff"] * 4 + ["volatile"] * 2,
        gamma=[0.95] * 4 + [0.9] * 2,
        learner=["replay", "replay", "q", "q"] + ["q"] * 2,
        v=[0.2, 0.4] + [None] * 4,
        seed=[0, 0, 0, 1, 0, 1],
    )
    found = Reader(write_part(tmp_path, rows)).read()
    assert found.axes == {"v": (0.2, 0.4)}
    assert "axes v" in repr(found)


def test_each_row_counts_what_is_in_the_table(results, table):
    rows = summarise(results, ["gamma"])
    assert [(row.keys["model"], row.keys["gamma"]) for row in rows] == [
        ("cliff", 0.9),
        ("cliff", 0.95),
        ("volatile", 0.9),
        ("volatile", 0.95),
    ]
    plain = [r for r in table.to_pylist() if r["model"] == "volatile" and r["gamma"] == 0.9]
    row = rows[2]
    assert row.runs == len(plain)
    assert row.shares["safe"] == pytest.approx(np.mean([r["verdict"] == "safe" for r in plain]))
    assert sum(row.shares.values()) == pytest.approx(1.0)
    assert row.risks["p_unsafe"].mean == pytest.approx(np.mean([r["p_unsafe"] for r in plain]))
    assert row.risks["p_unsafe"].low <= row.risks["p_unsafe"].mean <= row.risks["p_unsafe"].high


def test_a_mean_leaves_out_runs_that_never_end_and_says_so(tmp_path):
    rows = given(seed=[0, 1, 2, 3], mean=[1.0, 3.0, -np.inf, np.nan], p_unsafe=[0.0] * 4)
    found = summarise(Reader(write_part(tmp_path, rows)).read())
    assert found[0].risks["mean"].mean == 2.0
    assert found[0].endless == 0.5
    header, lines = cells(found)
    assert dict(zip(header, lines[0], strict=True))["never"] == "50%"


def test_shares_are_not_rounded_to_none_or_all(tmp_path):
    n = 1000
    rows = given(seed=range(n), verdict=["safe"] * (n - 1) + ["stuck"])
    header, lines = cells(summarise(Reader(write_part(tmp_path, rows)).read()))
    line = dict(zip(header, lines[0], strict=True))
    assert (line["safe"], line["stuck"]) == (">99%", "<1%")
    assert "risky" not in line


def test_what_was_not_kept_is_not_shown(tmp_path):
    rows = summarise(Reader(write_part(tmp_path, given(seed=[0, 1]))).read())
    assert cells(rows) == (["model", "learner", "runs"], [["cliff", "replay", "2"]])


def test_parts_are_read_once_and_new_ones_are_added(table, tmp_path, monkeypatch):
    write_part(tmp_path, table.slice(0, 10), "a")
    reader = Reader(tmp_path)
    assert len(reader.read()) == 10
    read = []
    once = reader._read_part
    monkeypatch.setattr(reader, "_read_part", lambda file: read.append(file.name) or once(file))
    write_part(tmp_path, table.slice(10), "b")
    assert len(reader.read()) == table.num_rows
    assert read == ["b.parquet"]


def test_parts_may_know_different_columns(tmp_path):
    write_part(tmp_path, given(seed=[0, 1], learner=["q", "q"]), "a")
    write_part(tmp_path, given(seed=[0, 1], v=[0.1, 0.2]), "b")
    found = Reader(tmp_path).read()
    assert found.axes == {"v": (0.1, 0.2)}
    assert found.levels("v").values == (0.1, 0.2, None)


def test_a_column_of_nothing_is_no_axis(tmp_path):
    found = Reader(write_part(tmp_path, given(seed=[0, 1], kappa=pa.nulls(2)))).read()
    assert found.axes == {}


def test_a_sweep_is_complete_when_the_runs_that_it_has_are_there(tmp_path):
    write_part(tmp_path, given(seed=[0, 1]))
    assert not Reader(tmp_path).read().complete
    write_total(tmp_path, 3)
    assert not Reader(tmp_path).read().complete
    assert overview(Reader(tmp_path).read()).startswith("2 of 3 runs: cliff; replay; 1 setting, 2 seeds")
    write_total(tmp_path, 2)
    assert Reader(tmp_path).read().complete


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(BadInput, match="DIR must be the folder of a sweep"):
        Reader(tmp_path / "nowhere")
    with pytest.raises(BadFile, match="must hold runs of a sweep"):
        Reader(tmp_path).read()
    write_part(tmp_path, given(seed=[]))
    with pytest.raises(BadFile, match="must hold runs of a sweep"):
        Reader(tmp_path).read()


def test_a_file_that_is_no_dataset_of_runs_is_named(tmp_path):
    write_part(tmp_path, {"x": [1]})
    with pytest.raises(BadInput, match=r"part-0.parquet must hold runs, got \['x'\]"):
        Reader(tmp_path).read()
    (tmp_path / "runs" / "part-0.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(BadFile, match=r"part-0.parquet must be a Parquet file"):
        Reader(tmp_path).read()


def test_runs_can_be_picked_by_their_settings(results):
    picked = matching(results, {"gamma": 0.9, "model": "cliff"})
    assert len(picked) * 4 == len(results)
    assert set(picked.axes) == {"v", "beta"}
    assert picked.expected is None  # nobody said how many those would be
    with pytest.raises(BadInput, match=r"gamma must be one of 0.9, 0.95, got 0.8"):
        matching(results, {"gamma": 0.8})
    with pytest.raises(BadInput, match="unknown setting 'gama'; did you mean 'gamma'"):
        matching(results, {"gama": 0.8})


def test_the_tables_go_to_plain_json_types(results):
    import json

    found = json.loads(json.dumps(to_dict(results, summarise(results)), allow_nan=False))
    assert found["axes"]["beta"] == {"count": 2, "from": 0.01, "to": 5.0}
    assert [row["model"] for row in found["rows"]] == ["cliff", "volatile"]
    assert set(found["rows"][0]["mean"]) == {"mean", "low", "high"}


def test_picking_no_run_at_all_is_refused(tmp_path):
    results = Reader(write_part(tmp_path, given(v=[0.1, 0.2], beta=[1.0, 2.0]))).read()
    with pytest.raises(BadInput, match=r"--where must leave some runs, got {'v': 0.1, 'beta': 2.0}"):
        matching(results, {"v": 0.1, "beta": 2.0})
