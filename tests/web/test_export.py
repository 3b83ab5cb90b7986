"""The playground as a static site: its files, and what it must not overwrite."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

import safereplay as sr
from safereplay.errors import Stopped
from safereplay.web import answers, export
from safereplay.web.app import LearnerShape
from safereplay.web.kinds import Side
from safereplay.web.state import StateLink, WorldLink

OTHER = "world=cliff&slip=0.2&left=q&right=gaskett,beta:0.33&seeds=2"


@pytest.fixture
def small(monkeypatch):
    """A few links, learners and frames, in a thread of this process."""
    monkeypatch.setattr(export, "processes", lambda number: ThreadPoolExecutor(1))
    monkeypatch.setattr(export, "page_links", lambda: ["", OTHER])
    monkeypatch.setattr(export, "recorded_sides", lambda: ["q", "mihatsch,kappa:0.5"])
    monkeypatch.setattr(export, "FRAMES", 3)
    monkeypatch.setattr(export, "UNTIL", 900)


def read(folder, name):
    return json.loads((folder / "data" / f"{name}.json").read_text())


def test_a_site_has_the_page_and_the_answers_of_the_server(small, tmp_path):
    assert export.export(tmp_path / "site", quiet=True) == tmp_path / "site" / "index.html"
    site = tmp_path / "site"
    assert export.RECORDED in (site / "index.html").read_text()
    assert (site / "page" / "main.js").is_file()
    assert (site / "plotly.js").stat().st_size > 1_000_000
    index, cliff = read(site, "index"), read(site, "cliff")
    assert index["states"][""] == json.loads(json.dumps(StateLink().to_state()))
    assert index["others"] == {"world=cliff&slip=0.2": "lesson-1"}
    assert cliff["model"] == answers.model(WorldLink().model_dump())
    for text, answer in cliff["solve"].items():
        assert Side.parse(text).text == text
        live = json.loads(json.dumps(answers.solve({"learner": text})))
        live["design"] = answer["design"]  # its dial has other steps
        assert answer == live
    right = Side.parse(StateLink().right).text
    assert {"q", right, "mihatsch,kappa:0.5", "design"} < set(cliff["solve"])
    assert sum(text.startswith("design,limit:") for text in cliff["solve"]) >= export.LIMITS
    assert [frame["t"] for frame in cliff["learn"][right]] == [100, 400, 900]
    other = read(site, "lesson-1")
    assert set(other["solve"]) == set(other["learn"]) == {"q", "gaskett,beta:0.33"}
    assert len(other["learn"]["q"][0]["seeds"]) == 2
    assert list(tmp_path.iterdir()) == [site]


def test_the_catalog_has_only_what_is_recorded():
    sides, learners = set(export.recorded_sides()), export.recorded_learners()
    for kind, about in learners.items():
        LearnerShape.model_validate(about)
        if kind != "design":
            assert Side.parse(kind).text in sides
            for name, slider in about["sliders"].items():
                for end in ("min", "max"):
                    assert Side.parse(f"{kind},{name}:{slider[end]}").text in sides
    for one in learners["replay"]["choices"]["scheme"]:
        for mixing in learners["replay"]["choices"]["mixing"]:
            assert Side.parse(f"replay,scheme:{one['value']},mixing:{mixing['value']}").text in sides


def test_an_earlier_export_is_replaced_and_nothing_else(small, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    export.export(site, quiet=True)
    (site / "data" / "old.json").touch()
    export.export(site, quiet=True)
    assert not (site / "data" / "old.json").exists()
    mine, file = tmp_path / "mine", tmp_path / "file"
    mine.mkdir()
    (mine / "index.html").write_text("<p>mine</p>")
    file.touch()
    for taken in (mine, file):
        with pytest.raises(
            sr.BadInput, match="--export must be a new or empty folder, or one of an earlier export, got"
        ):
            export.export(taken, quiet=True)
    assert (mine / "index.html").read_text() == "<p>mine</p>"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_whatever_stops_it_the_folder_is_as_before(error, small, tmp_path, monkeypatch):
    site = tmp_path / "site"
    export.export(site, quiet=True)
    before = {file: file.read_bytes() for file in site.rglob("*.json")}

    def stop(*_):
        raise error

    monkeypatch.setattr(export, "_answered", stop)
    with pytest.raises((Stopped, sr.CannotWrite)) as caught:
        export.export(site, quiet=True)
    assert "\n" not in str(caught.value)
    assert {file: file.read_bytes() for file in site.rglob("*.json")} == before
    assert list(tmp_path.iterdir()) == [site]
    with pytest.raises((Stopped, sr.CannotWrite)):
        export.export(tmp_path / "new", quiet=True)
    assert list(tmp_path.iterdir()) == [site]
