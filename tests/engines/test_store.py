import os
import re
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import in_lines
from small_sweeps import SMALL, Impatient, everything, ids, note, parts, stamps
from waiting import END

import safereplay as sr
from safereplay import _files
from safereplay._files import Lock
from safereplay.engines.parts import conform
from safereplay.engines.spec import load_spec
from safereplay.engines.sweeps import Store, changes, merged, schema_of

ALL_KEPT = {**SMALL, "keep": ["Q", "policy", "visits", "verdict", "risk", "curves"], "curves": 3}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a finished sweep, not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    sr.sweep(SMALL, folder, Impatient(), quiet=True)
    return folder


@pytest.fixture
def folder(tmp_path):
    sr.sweep(SMALL, tmp_path / "out", Impatient(), quiet=True)
    return tmp_path / "out"


def test_the_folder_holds_the_spec_and_whole_parts_of_one_schema(finished):
    assert [f for f in everything(finished) if not f.endswith(".parquet")] == ["spec.json", "sweep.json"]
    assert note(finished)["runs"] == 54
    assert len(parts(finished)) > 10
    schemas = [pq.read_schema(part) for part in parts(finished)]
    assert all(schema.equals(schemas[0], check_metadata=True) for schema in schemas)
    assert all(schema.metadata[b"spec"].decode() == load_spec(SMALL).digest for schema in schemas)
    assert schemas[0].metadata[b"safereplay"].decode() == sr.__version__
    about = pq.read_metadata(parts(finished)[0])
    assert about.num_row_groups == 1
    assert about.row_group(0).column(0).compression == "ZSTD"
    assert sorted(ids(finished)) == sorted({run.id for run in load_spec(SMALL).runs()})


def test_every_kind_of_column_comes_back_as_it_was_written(tmp_path):
    table = sr.sweep(ALL_KEPT, tmp_path, Impatient(), quiet=True).table()
    assert table.schema.equals(schema_of(note(tmp_path)))
    assert pq.read_schema(parts(tmp_path)[0]).equals(table.schema)
    assert table.schema.field("policy").type == pa.list_(pa.int32())
    assert table.schema.field("seed").type == pa.uint64()


def test_polars_pandas_and_duckdb_read_the_dataset_without_our_help(finished):
    import duckdb
    import pandas
    import polars

    table = sr.read_sweep(finished)
    by_polars = polars.read_parquet(finished / "runs" / "*.parquet").sort("id")
    assert by_polars["mean"].to_list() == table["mean"].to_pylist()
    assert by_polars["policy"].to_list() == table["policy"].to_pylist()
    assert polars.scan_parquet(str(finished / "runs")).select(polars.len()).collect().item() == 54
    by_pandas = pandas.read_parquet(finished / "runs").sort_values("id")
    assert by_pandas["verdict"].tolist() == table["verdict"].to_pylist()
    assert by_pandas["v"].isna().sum() == 18
    by_duckdb = duckdb.read_parquet(f"{finished}/runs/*.parquet")
    found = dict(by_duckdb.filter("v = 0.6").aggregate("verdict, count(*)").fetchall())
    rows = table.to_pylist()
    assert found == {x: sum(r["v"] == 0.6 and r["verdict"] == x for r in rows) for x in found}
    assert sum(found.values()) == 18


def test_reading_while_nothing_is_there_yet_gives_no_rows(tmp_path):
    with Store(tmp_path, load_spec(SMALL), False, print):
        assert sr.read_sweep(tmp_path).num_rows == 0
        assert sr.read_sweep(tmp_path).schema.names[:3] == ["id", "model", "gamma"]


def test_a_folder_that_is_no_sweep_says_so(tmp_path):
    with pytest.raises(sr.BadFile, match=r"must be a sweep's folder, got none with a sweep.json"):
        sr.read_sweep(tmp_path)
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(sr.BadFile, match=r"sweep.json must be what a sweep wrote, got something else"):
        sr.read_sweep(tmp_path)
    (tmp_path / "sweep.json").write_text('{"format": 1}')
    with pytest.raises(sr.BadInput, match=r"sweep.json must be what a sweep wrote, got 'a part of it'"):
        sr.sweep(SMALL, tmp_path)


def test_a_folder_of_a_newer_format_says_so(folder):
    (folder / "sweep.json").write_text((folder / "sweep.json").read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(sr.BadInput, match="be of format 1 or older, got 2"):
        sr.sweep(SMALL, folder)


def test_parts_of_somebody_else_are_left_alone(tmp_path):
    (tmp_path / "runs").mkdir()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "runs" / "mine.parquet")
    with pytest.raises(sr.BadInput, match=r"must be new or a sweep's folder, got 'parts without a sweep.json'"):
        sr.sweep(SMALL, tmp_path)
    assert everything(tmp_path) == ["runs/mine.parquet"]


# -- the same folder again ------------------------------------------------------------------------------------------------


def test_the_same_spec_finds_everything_done_and_touches_nothing(folder):
    before = stamps(folder)
    again = sr.sweep(dict(reversed(SMALL.items())), folder, quiet=True)
    assert (again.done, again.already, again.runs) == (0, 54, 54)
    assert stamps(folder) == before


def test_what_a_killed_sweep_left_behind_is_removed(folder):
    left = [".a1b2.parquet.x8fz_q01", ".spec.toml.abcdefgh", ".sweep.json.00000000"]
    (folder / "runs" / left[0]).write_bytes(b"PAR1 half")
    (folder / left[1]).write_text("half")
    (folder / left[2]).write_text("{")
    (folder / ".mine").write_text("not ours")
    sr.sweep(SMALL, folder, quiet=True)
    assert not [f for f in everything(folder) if os.path.basename(f) in left]
    assert (folder / ".mine").exists()


@pytest.mark.parametrize("damage", ["cut", "empty", "zeros", "id page", "text"])
def test_a_damaged_part_is_set_aside_and_its_runs_are_done_again(folder, damage, capsys):
    whole = sr.read_sweep(folder)
    part = parts(folder)[1]
    data = bytearray(part.read_bytes())
    lost = set(pq.read_table(part)["id"].to_pylist())
    if damage == "id page":
        column = pq.read_metadata(part).row_group(0).column(0)
        start = column.dictionary_page_offset or column.data_page_offset
        data[start + 30 : start + 60] = bytes(30)
    shapes = {"cut": data[: len(data) // 2], "empty": b"", "zeros": bytes(len(data)), "text": b"hello"}
    part.write_bytes(shapes.get(damage, data))
    before = {name: stamp for name, stamp in stamps(folder).items() if name != part.name}
    again = sr.sweep(SMALL, folder, Impatient())
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    aside = folder / "damaged" / part.name
    assert f"{part} is damaged: set aside as {aside}, and its runs are done again" in said[0]
    assert again.done == len(lost)
    assert sr.read_sweep(folder).equals(whole)
    assert before.items() <= stamps(folder).items()
    assert aside.exists()
    assert {file.name for file in (folder / "runs").iterdir()} == {file.name for file in parts(folder)}


def test_a_part_that_may_not_be_read_is_not_taken_for_damaged(folder, monkeypatch):
    def refused(file, columns):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("safereplay.engines.parts._read", refused)
    with pytest.raises(sr.BadFile, match="must be readable, got 'Permission denied'"):
        sr.sweep(SMALL, folder)
    assert not (folder / "damaged").exists()


def test_a_number_that_the_disk_has_spoilt_is_found_out_when_it_is_read(folder):
    part = parts(folder)[0]
    about, data = pq.read_metadata(part).row_group(0), bytearray(part.read_bytes())
    column = next(about.column(k) for k in range(about.num_columns) if about.column(k).path_in_schema == "mean")
    data[column.data_page_offset + column.total_compressed_size - 3] ^= 1
    part.write_bytes(data)
    with pytest.raises(sr.BadFile, match="must be whole, got"):
        sr.read_sweep(folder)


def test_an_extension_that_is_killed_half_way_keeps_the_earlier_spec(folder, monkeypatch):
    """Killed after the new spec is written and before the note is: both specs are told apart all the same."""
    other, old = changed(seeds=7), (folder / "spec.json").read_text()
    with monkeypatch.context() as patched:
        patched.setattr(Store, "_write_note", lambda self: (_ for _ in ()).throw(RuntimeError("killed")))
        with pytest.raises(RuntimeError, match="killed"):
            sr.sweep(other, folder, extend=True, quiet=True)
    kept = folder / "specs" / f"{load_spec(SMALL).digest[:12]}.json"
    assert kept.read_text() == old != (folder / "spec.json").read_text()
    assert sr.sweep(SMALL, folder, quiet=True).done == 0
    assert (folder / "spec.json").read_text() == old
    sr.sweep(other, folder, extend=True, quiet=True)
    assert kept.read_text() == old != (folder / "spec.json").read_text()


def test_reading_which_of_a_hundred_thousand_runs_are_done_is_two_lines_each(tmp_path):
    spec = load_spec({**SMALL, "models": {"cliff": {}}, "learners": {"q": {}}, "seeds": 100_000, "keep": ["verdict"]})
    with Store(tmp_path, spec, False, print) as store:
        for k in range(0, 100_000, 1_000):
            runs = [f"{seed:032x}" for seed in range(k, k + 1_000)]
            store.add(pa.table({"id": runs, "verdict": ["safe"] * 1_000}))

    def read():
        with Store(tmp_path, spec, False, print) as store:
            return len(store.done)

    assert in_lines(2 * 100_000, read) == 100_000


# -- another spec ---------------------------------------------------------------------------------------------------------


def changed(**changes):
    return {**SMALL, **changes}


def test_a_spec_that_changed_is_refused_with_what_changed(folder):
    before = everything(folder)
    other = changed(seeds=7, learners={"q": {}, "replay": {"v": [0.3, 0.7]}})
    said = (
        "must be the folder of this spec, got another spec's: seeds, learners.replay.v changed; choose another folder, "
        "or --extend to add the runs to that dataset"
    )
    with pytest.raises(sr.BadInput, match=re.escape(said)):
        sr.sweep(other, folder)
    assert everything(folder) == before


def test_extending_adds_the_new_runs_and_does_none_twice(folder):
    before, old = stamps(folder), ids(folder)
    other = changed(seeds=7, learners={"q": {}, "replay": {"v": [0.3, 0.7]}})
    grown = sr.sweep(other, folder, Impatient(), extend=True, quiet=True)
    assert (grown.runs, grown.already) == (63, 36)
    assert grown.done == 63 - 36
    assert note(folder)["runs"] == 54 + grown.done
    assert before.items() <= stamps(folder).items()
    assert set(old) < set(ids(folder))
    assert len(ids(folder)) == len(set(ids(folder)))
    assert [f for f in everything(folder) if f.startswith("specs/")] == [f"specs/{load_spec(SMALL).digest[:12]}.json"]
    assert sr.sweep(other, folder, quiet=True).done == 0
    with pytest.raises(sr.BadInput, match=r"seeds, learners.replay.v changed"):
        sr.sweep(SMALL, folder)


def test_an_extension_with_new_columns_gives_them_to_the_old_parts_too(folder):
    whole = sr.read_sweep(folder)
    other = changed(learners={**SMALL["learners"], "mihatsch": {"kappa": 0.5}}, models={"cliff": {"slip": 0.2}})
    sr.sweep(other, folder, Impatient(), extend=True, quiet=True)
    schemas = [pq.read_schema(part).remove_metadata() for part in parts(folder)]
    assert all(schema.equals(schemas[0]) for schema in schemas)
    names = schemas[0].names
    assert names[:4] == ["id", "model", "gamma", "model_slip"]
    assert names.index("kind") < names.index("kappa") < names.index("scheme")
    table = sr.read_sweep(folder)
    kept = set(whole["id"].to_pylist())
    old = table.filter(pa.array([x in kept for x in table["id"].to_pylist()]))
    assert old.select(whole.schema.names).equals(whole)
    assert old["kappa"].null_count == old.num_rows


def test_an_extension_that_was_killed_halfway_is_finished_by_the_next_call(folder, monkeypatch):
    other = changed(learners={**SMALL["learners"], "mihatsch": {"kappa": 0.5}})
    write, count = Store._write, []

    def failing(self, name, table):
        count.append(name)
        if len(count) == 3:
            raise KeyboardInterrupt
        write(self, name, table)

    monkeypatch.setattr(Store, "_write", failing)
    with pytest.raises(KeyboardInterrupt):
        sr.sweep(other, folder, extend=True, quiet=True)
    monkeypatch.undo()
    assert len({tuple(pq.read_schema(part).names) for part in parts(folder)}) == 2
    assert sr.read_sweep(folder).num_rows == 54
    sr.sweep(other, folder, Impatient(), quiet=True)
    assert len({tuple(pq.read_schema(part).names) for part in parts(folder)}) == 1
    assert len(ids(folder)) == len(set(ids(folder))) == 72


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"keep": ["verdict"]},
            r"keep must stay \['policy', 'verdict', 'risk'\] within .*out, got \['verdict'\]; choose another folder",
        ),
        ({"max_steps": 5}, "max_steps must stay 1000 within .*out, got 5; choose another folder"),
    ],
)
def test_what_rows_do_not_say_must_stay_within_a_folder(folder, changes, said):
    with pytest.raises(sr.BadInput, match=said):
        sr.sweep(changed(**changes), folder, extend=True)


def test_another_model_by_the_same_name_is_refused_even_when_extending(tmp_path):
    (tmp_path / "world.txt").write_text("S.X.G\n.....\n")
    spec = changed(models={"world": {"source": str(tmp_path / "world.txt")}})
    sr.sweep(spec, tmp_path / "out", quiet=True)
    (tmp_path / "world.txt").write_text("S.XXG\n.....\n")
    said = "models.world at gamma=0.9 must be the same within .*, got other content under this name"
    for extend in (False, True):
        with pytest.raises(sr.BadInput, match=said):
            sr.sweep(spec, tmp_path / "out", extend=extend)


def test_a_safereplay_that_does_runs_in_another_way_does_not_mix_them(folder, monkeypatch):
    monkeypatch.setattr("safereplay.engines.spec.FORMAT", 2)
    with pytest.raises(
        sr.BadInput, match=r"must be written by a safereplay that computes runs as .*; choose another folder"
    ):
        sr.sweep(SMALL, folder, extend=True)


def test_a_column_keeps_its_kind_within_a_folder(tmp_path):
    sr.sweep(changed(models={"cliff": {"slip": 0.1}}), tmp_path, quiet=True)
    note_file = tmp_path / "sweep.json"
    note_file.write_text(note_file.read_text().replace('"model_slip": "number"', '"model_slip": "text"'))
    with pytest.raises(sr.BadInput, match=r"column model_slip must stay a text within .*, got 'number'"):
        sr.sweep(changed(models={"cliff": {"slip": 0.2}}), tmp_path, extend=True)


def test_changes_are_named_by_dotted_paths():
    old = {"a": {"b": [1, 2], "c": 3}, "d": 1}
    assert changes(old, old) == []
    assert changes(old, {"a": {"b": [1, 2, 3], "e": 3}, "d": 1.0}) == ["a.b", "a.c", "a.e"]


def test_merged_columns_keep_their_sections():
    old = {"model": "text", "gamma": "number", "learner": "text", "v": "number", "scheme": "text", "beta": "number"}
    new = {"model": "text", "model_slip": "number", "learner": "text", "beta": "number", "kappa": "number"}
    merge = [*merged(old, new)]
    assert merge == ["model", "gamma", "model_slip", "learner", "v", "kappa", "scheme", "beta"]


def test_a_table_conforms_to_a_schema_by_order_type_and_nulls():
    schema = pa.schema({"a": pa.float64(), "b": pa.string(), "c": pa.bool_()})
    table = conform(pa.table({"b": ["x"], "a": pa.array([None], pa.null())}), schema)
    assert table.schema.equals(schema)
    assert table.to_pylist() == [{"a": None, "b": "x", "c": None}]


# -- the lock -------------------------------------------------------------------------------------------------------------


def test_a_second_sweep_on_the_folder_is_told_who_has_it(tmp_path):
    lock = Lock(tmp_path)
    said = rf"must be free, got a sweep at work in it \(process {os.getpid()} on .+\); wait, or choose another folder"
    with pytest.raises(sr.BadInput, match=said):
        sr.sweep(SMALL, tmp_path)
    lock.release()
    assert sr.sweep(SMALL, tmp_path, quiet=True).done == 54


def test_whoever_comes_while_the_lock_is_signed_is_told_who_has_it(tmp_path, monkeypatch):
    """One has just taken the lock and has not yet written who it is. The other waits for that line, and no longer."""
    (tmp_path / ".lock").write_text("process 1 on an earlier machine\n")  # as a sweep that was killed leaves it
    taken, come, locks_held = threading.Event(), threading.Event(), []
    sign, take = _files.Lock._sign, _files._take

    def sign_later(lock):
        taken.set()
        assert come.wait(END)
        sign(lock)

    def take_noted(handle, wait):
        if wait and taken.is_set():
            come.set()
        take(handle, wait)

    monkeypatch.setattr(_files.Lock, "_sign", sign_later)
    monkeypatch.setattr(_files, "_take", take_noted)
    first = threading.Thread(target=lambda: locks_held.append(Lock(tmp_path)))
    first.start()
    assert taken.wait(END)
    try:
        with pytest.raises(sr.BadInput, match=rf"a sweep at work in it \(process {os.getpid()} on "):
            Lock(tmp_path)
    finally:
        come.set()
        first.join()
        locks_held[0].release()


def test_the_lock_is_free_again_whatever_ended_the_sweep(tmp_path):
    sr.sweep(SMALL, tmp_path, quiet=True)
    with pytest.raises(sr.BadInput, match="changed"):
        sr.sweep(changed(seeds=1), tmp_path)
    Lock(tmp_path).release()
