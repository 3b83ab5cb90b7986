import errno
import json
import os
import re
import socket
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import safereplay as sr
from safereplay import _files
from safereplay.errors import BadFile, BadInput, CannotWrite

ARRAYS = {"x": np.arange(5), "y": np.array([[0.5, -np.inf], [np.nan, 1e-300]]), "flags": np.array([True, False])}
NOT_OURS = "must be a saved thing, got a file that is truncated or not one of ours"


def names(folder):
    return sorted(p.name for p in Path(folder).iterdir())


@pytest.fixture
def saved(tmp_path):
    return _files.save_arrays(tmp_path / "a.npz", "thing", 3, {"gamma": 0.1, "name": "é"}, ARRAYS)


def test_what_is_saved_is_loaded_to_the_last_bit(saved):
    meta, arrays = _files.load_arrays(saved, "thing", 3)
    assert meta == {"gamma": 0.1, "name": "é"}
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].tobytes() == array.tobytes()


def test_an_older_format_is_still_read(saved):
    assert _files.load_arrays(saved, "thing", 4)[0]["gamma"] == 0.1


def test_a_path_may_be_a_string_and_have_any_name(tmp_path):
    target = _files.save_arrays(str(tmp_path / "no suffix"), "thing", 1, {}, {})
    assert target == tmp_path / "no suffix"
    assert names(tmp_path) == ["no suffix"]
    assert _files.load_arrays(str(target), "thing", 1) == ({}, {})


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(BadFile, match=r"nowhere\.npz must be a saved thing, got no such file$"):
        _files.load_arrays(tmp_path / "nowhere.npz", "thing", 3)
    with pytest.raises(BadFile, match=r"must be a saved thing, got no such file$"):
        _files.load_arrays(__file__ + "/below", "thing", 3)


def test_a_file_of_another_kind_is_named_as_what_it_is(saved):
    with pytest.raises(BadFile, match=r"a\.npz must be a saved TabularMDP, got a saved thing$"):
        _files.load_arrays(saved, "TabularMDP", 3)


def test_a_file_from_a_newer_version_says_how_to_upgrade(saved):
    message = (
        "must be of format 2 or older, got format 3; it is from a newer safereplay: pip install --upgrade safereplay"
    )
    with pytest.raises(BadFile, match=re.escape(message)):
        _files.load_arrays(saved, "thing", 2)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_refused(saved, share):
    data = saved.read_bytes()
    saved.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(BadFile, match=NOT_OURS):
        _files.load_arrays(saved, "thing", 3)


def npz(**columns):
    buffer = BytesIO()
    np.savez(buffer, **columns)
    return buffer.getvalue()


def with_header(value):
    return npz(header=np.frombuffer(json.dumps(value).encode(), np.uint8))


def a_pickle():
    buffer = BytesIO()
    np.savez(buffer, header=np.array([object()], dtype=object))
    return buffer.getvalue()


def an_array():
    buffer = BytesIO()
    np.save(buffer, np.ones(3))
    return buffer.getvalue()


def a_zip_of_text():
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("readme.txt", "hello")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"\x80\x04K\x01.",
        b"PK\x03\x04 and then nothing",
        an_array(),
        a_zip_of_text(),
        npz(x=np.ones(3)),
        npz(header=np.ones(3)),
        a_pickle(),
        with_header([1, 2]),
        with_header({"kind": "thing"}),
        with_header({"kind": "thing", "version": "new", "meta": {}}),
        with_header({"kind": "thing", "version": None, "meta": {}}),
    ],
    ids=[
        "empty",
        "text",
        "pickle",
        "cut zip",
        "npy",
        "zip",
        "no header",
        "bad header",
        "object",
        "list",
        "keys",
        "text version",
        "no version",
    ],
)
def test_a_file_that_is_not_ours_is_refused(tmp_path, data):
    file = tmp_path / "other.npz"
    file.write_bytes(data)
    with pytest.raises(BadFile, match=NOT_OURS):
        _files.load_arrays(file, "thing", 3)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    return sr.grids.cliff().save(tmp_path_factory.mktemp("models") / "cliff.npz")


@settings(max_examples=400)
@given(st.data())
def test_flipped_bits_give_the_same_model_or_bad_input_and_never_anything_else(model_file, data):
    """A zip archive has bytes that nobody reads (time stamps, attributes); any other flip must be noticed."""
    whole = model_file.read_bytes()
    damaged = bytearray(whole)
    for bit in data.draw(st.lists(st.integers(0, 8 * len(whole) - 1), min_size=1, max_size=3)):
        damaged[bit // 8] ^= 1 << bit % 8
    target = model_file.with_name("damaged.npz")
    target.write_bytes(damaged)
    try:
        loaded = sr.TabularMDP.load(target)
    except BadInput:
        return
    assert loaded == sr.grids.cliff()


@settings(max_examples=100)
@given(st.binary(max_size=300))
def test_random_bytes_are_never_a_model(tmp_path_factory, data):
    file = tmp_path_factory.getbasetemp() / "random.npz"
    file.write_bytes(data)
    with pytest.raises(BadFile, match="must be a saved TabularMDP"):
        sr.TabularMDP.load(file)


# -- writing ----------------------------------------------------------------------------------------------------------


def test_text_and_bytes_are_written_and_overwritten(tmp_path):
    target = tmp_path / "report.md"
    assert _files.write_atomic(target, "é\n") == target
    assert target.read_bytes() == b"\xc3\xa9\n"
    _files.write_atomic(str(target), b"\x00\xff")
    assert target.read_bytes() == b"\x00\xff"
    assert names(tmp_path) == ["report.md"]


def test_a_new_file_has_the_permissions_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        mode = _files.write_atomic(tmp_path / "x", "x").stat().st_mode & 0o777
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert mode == 0o640


def test_a_place_that_does_not_exist_or_is_a_file_or_a_folder_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CannotWrite, match=r"nowhere/x must be writable, got 'No such file or directory'$"):
        _files.write_atomic(tmp_path / "nowhere" / "x", "data")
    with pytest.raises(CannotWrite, match=r"file/x must be writable, got 'Not a directory'$"):
        _files.write_atomic(tmp_path / "file" / "x", "data")
    with pytest.raises(CannotWrite, match=r"folder must be a regular file or a new one, got a folder$"):
        _files.write_atomic(tmp_path / "folder", "data")
    with pytest.raises(CannotWrite, match="must be writable, got '"):
        _files.write_atomic("/proc/nothing", "data")
    assert names(tmp_path) == ["file", "folder"]
    assert names(tmp_path / "folder") == []
    assert (tmp_path / "file").read_text() == "kept"


@pytest.fixture(params=["FIFO", "socket", "device", "folder", "link to a FIFO", "link to a device"])
def special(request, tmp_path):
    """What is there and is no regular file, with its kind. The device is a terminal of the test's own: no code can replace it."""
    link, kind = request.param.startswith("link"), request.param.split()[-1]
    place = tmp_path / "special"
    ends = ()
    if kind == "FIFO":
        os.mkfifo(place)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place))
    elif kind == "folder":
        place.mkdir()
    else:
        ends = os.openpty()
        place = Path(os.ttyname(ends[1]))
    if link:
        (tmp_path / "link").symlink_to(place)
        place = tmp_path / "link"
    yield place, kind
    for end in ends:
        os.close(end)


def test_what_is_no_regular_file_is_not_replaced(special, tmp_path):
    place, kind = special
    before = place.lstat().st_mode, place.stat().st_mode, names(tmp_path)
    with pytest.raises(CannotWrite, match=f"{place.name} must be a regular file or a new one, got a {kind}$"):
        _files.write_atomic(place, "data")
    with pytest.raises(CannotWrite, match=f"must be a regular file or a new one, got a {kind}$"):
        sr.grids.cliff().save(place)
    assert (place.lstat().st_mode, place.stat().st_mode, names(tmp_path)) == before


def test_what_is_no_regular_file_is_not_read(special):
    place, kind = special
    with pytest.raises(BadFile, match=f"{place.name} must be a regular file, got a {kind}$"):
        _files.read_text(place)
    with pytest.raises(BadFile, match=f"{place.name} must be a regular file, got a {kind}$"):
        sr.TabularMDP.load(place)


def test_a_link_stays_a_link_and_its_target_is_replaced_whole(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "target").write_text("before")
    (tmp_path / "second").symlink_to("elsewhere/target")
    (tmp_path / "first").symlink_to("second")
    assert _files.write_atomic(tmp_path / "first", "after") == tmp_path / "first"
    assert (tmp_path / "first").readlink() == Path("second")
    assert (tmp_path / "second").readlink() == Path("elsewhere/target")
    assert (elsewhere / "target").read_text() == "after"
    assert (names(tmp_path), names(elsewhere)) == (["elsewhere", "first", "second"], ["target"])


def test_a_link_to_nothing_gets_its_target(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/new")
    assert _files.write_atomic(tmp_path / "link", "new").read_text() == "new"
    assert (tmp_path / "link").readlink() == Path("folder/new")
    (tmp_path / "lost").symlink_to("nowhere/new")
    with pytest.raises(CannotWrite, match=r"lost must be writable, got 'No such file or directory'$"):
        _files.write_atomic(tmp_path / "lost", "new")


def test_links_that_go_round_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(CannotWrite, match=r"a must be writable, got 'Too many levels of symbolic links'$"):
        _files.write_atomic(tmp_path / "a", "data")
    assert names(tmp_path) == ["a", "b"]


def test_a_model_saved_through_a_link_is_read_through_it(tmp_path):
    (tmp_path / "link").symlink_to("model.npz")
    sr.grids.cliff().save(tmp_path / "link")
    assert sr.TabularMDP.load(tmp_path / "link") == sr.TabularMDP.load(tmp_path / "model.npz") == sr.grids.cliff()


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path):
    target = tmp_path / "private"
    target.write_text("before")
    target.chmod(0o600)
    assert _files.write_atomic(target, "after").stat().st_mode & 0o777 == 0o600


def test_text_that_is_too_long_is_refused_and_not_read_to_its_end(tmp_path):
    file = tmp_path / "long.toml"
    with file.open("wb") as stream:
        stream.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(BadFile, match=r"long.toml must have at most 64 MiB, got more$"):
        _files.read_text(file)


def test_text_may_have_any_line_ends(tmp_path):
    (tmp_path / "x").write_bytes("é\r\nb\rc\n".encode())
    assert _files.read_text(tmp_path / "x") == "é\nb\nc\n"


def test_an_archive_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(saved, monkeypatch):
    monkeypatch.setattr(_files, "MOST_ARRAYS", 100)
    with pytest.raises(BadFile, match=r"a.npz must unpack to at most 0 GiB, got .* GiB$"):
        _files.load_arrays(saved, "thing", 3)


def test_arrays_that_do_not_fit_into_memory_are_refused(saved, monkeypatch):
    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr(np, "load", full)
    with pytest.raises(BadFile, match="must be a saved thing that fits into memory, got a larger one"):
        _files.load_arrays(saved, "thing", 3)


@pytest.mark.parametrize("broken", ["fdopen", "chmod", "replace"])
def test_a_write_that_fails_half_way_leaves_what_was_there_and_nothing_else(tmp_path, monkeypatch, broken):
    target = tmp_path / "x"
    target.write_text("before")

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_files.os, broken, full)
    with pytest.raises(CannotWrite, match=r"x must be writable, got 'No space left on device'$"):
        _files.write_atomic(target, "after")
    monkeypatch.undo()
    assert target.read_text() == "before"
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_write_that_is_interrupted_leaves_what_was_there_and_nothing_else(tmp_path, monkeypatch, error):
    target = tmp_path / "x"
    target.write_text("before")

    def interrupted(*args):
        raise error

    monkeypatch.setattr(_files.os, "replace", interrupted)
    with pytest.raises(error):
        _files.write_atomic(target, "after")
    monkeypatch.undo()
    assert target.read_text() == "before"
    assert names(tmp_path) == ["x"]


def test_a_model_that_cannot_be_saved_leaves_nothing_behind(tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(CannotWrite, match="must be writable"):
        sr.grids.cliff().save(tmp_path / "file" / "m.npz")
    assert names(tmp_path) == ["file"]


def test_a_folder_is_made_with_its_parents_and_left_empty(tmp_path):
    made = _files.make_folder(tmp_path / "a" / "b")
    assert made.is_dir()
    assert names(made) == []
    assert _files.make_folder(str(made)) == made


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nothing"])
def test_a_folder_that_cannot_be_made_or_written_to_is_refused(tmp_path, place):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(CannotWrite, match=f"{place} must be a folder that can be written to, got '"):
        _files.make_folder(tmp_path / place)
    assert (tmp_path / "file").read_text() == "kept"


def test_a_durable_write_is_on_the_disk_before_it_has_its_name_and_so_is_the_name(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace

    def synced(handle):
        order.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def replaced(source, target):
        order.append("renamed")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    _files.write_atomic(tmp_path / "x", "durable", durable=True)
    assert order[0].startswith(".x.")
    assert order[1:] == ["renamed", tmp_path.name]
    order.clear()
    _files.write_atomic(tmp_path / "x", "quick")
    assert order == ["renamed"]
