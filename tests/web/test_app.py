import json
import re

import httpx
import pytest
from waiting import END

import safereplay as sr
from safereplay import catalog
from safereplay.cli.common import LearnerOptions
from safereplay.web import app
from safereplay.web.kinds import KINDS
from safereplay.web.recorded import PAGE
from safereplay.web.state import TITLES


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=server, timeout=END) as client:
        yield client


def test_the_menu_has_every_world_in_order(client):
    found = client.get("/api/presets").json()
    assert [preset["name"] for preset in found] == list(TITLES)
    for preset in found:
        app.Preset.model_validate(preset)


def test_the_page_gets_every_default_from_the_api(client):
    found = client.get("/api/learners").json()
    assert list(found) == list(KINDS)
    assert found["design"]["defaults"] == {"limit": None}  # it depends on the world
    for kind, about in found.items():
        app.LearnerShape.model_validate(about)
        if kind == "design":
            continue
        numbers = {name: x for name, x in about["defaults"].items() if name in about["sliders"]}
        made = LearnerOptions(kind).build()  # the command line's, without any option
        assert made == catalog.learner(kind)()
        of = [made, *([made.scheme] if kind == "replay" else [])]
        assert numbers == {name: default for one in of for name, (_, default) in one.dials().items()}
        for name, slider in about["sliders"].items():
            assert slider["min"] <= numbers[name] <= slider["max"]


def test_a_link_becomes_a_state(client):
    found = client.get("/api/state?world=volatile&gamma=0.8&right=replay,v:0.25,mixing:matched&seeds=4").json()
    app.StateShape.model_validate(found)
    assert found["world"]["rows"] == [".....", ">>>.G", ".....", "....."]
    assert found["right"] == {"kind": "replay", "v": 0.25, "beta": 5.0, "mixing": "matched", "scheme": "variance"}
    assert (found["world"]["gamma"], found["seeds"]) == (0.8, 4)


def test_an_exact_answer_comes_from_a_worker(client):
    found = client.get("/api/solve?world=cliff&learner=mihatsch,kappa:0.95").json()
    app.Solved.model_validate(found)
    mdp = sr.grids.cliff()
    assert found["verdict"] == sr.verdict(mdp, sr.exact(mdp, sr.RiskSensitive(0.95)).argmax(1)) == "jumps"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("slip=2", "slip must be less than or equal to 1, got '2'"),
        ("gamma=nan", "gamma must be"),
        ("slip_to=north", "slip_to must be 'any', 'others'"),
        ("colour=red", "unknown parameter 'colour'"),
        ("gamma=0", "gamma must be greater than 0, got '0'"),
        ("map=S2", "text must have a goal G, got 'none'"),
        ("learner=repaly", "unknown learner 'repaly'; did you mean 'replay'?"),
        ("map=" + "1" * 4_001, "map must have at most 4000 characters"),
        ("world=atlantis", "world must be 'cliff', 'volatile'"),
        ("fall_ends=perhaps", "fall_ends must be a valid boolean"),
    ],
)
def test_what_is_refused_gets_one_sentence(client, query, said):
    reply = client.get(f"/api/solve?{query}")
    assert reply.status_code == 422
    detail = reply.json()["detail"]
    assert detail.startswith(said)
    assert "\n" not in detail
    assert client.get(f"/api/solve?{query}&quiet=1").json() == {"problem": detail, "status": 422}


def test_a_model_is_all_its_outcomes(client):
    found = client.get("/api/model?world=cliff&slip=0.2").json()
    app.Modelled.model_validate(found)
    mdp = sr.grids.cliff(slip=0.2)
    for name, column in (("first", "row"), ("s_next", "s_next"), ("r", "r"), ("p", "p"), ("terminal", "terminal")):
        assert found[name] == getattr(mdp, column).tolist()
    assert (found["unsafe"], found["ends"]) == (mdp.unsafe.tolist(), mdp.is_terminal.tolist())
    assert found["start"] == [mdp.origin]
    assert client.get("/api/model?map=S2").status_code == 422
    assert client.get("/api/model?learner=q").json() == {"detail": "unknown parameter 'learner'"}


def test_only_the_state_forgives(client):
    for query in ("fbclid=1&lesson=2", "map=S2", "map=SWG"):
        assert client.get(f"/api/state?{query}").status_code == 200
        assert client.get(f"/api/solve?{query}").status_code == 422
    assert client.get("/api/state?gamma=0").json() == {"detail": "gamma must be greater than 0, got '0'"}
    assert client.get("/api/state?map=%3F").status_code == 422


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/plotly.js", "/page/main.js", "/api/presets", "/api/solve", "/api/model"]
)
def test_head_is_get_without_the_body(client, path):
    head, whole = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]


def test_head_does_not_run_a_stream(client):
    assert client.head("/api/learn").status_code == 405


def test_a_stream_can_begin_where_another_ended(client):
    link = "/api/learn?learner=replay&by=50&until=150&pace=40"
    whole = client.get(link)
    assert whole.headers["content-type"].startswith("text/event-stream")
    rest = client.get(link, headers={"Last-Event-ID": "100"})
    last = [event for event in whole.text.split("\n\n") if event.startswith("id: 150")]
    assert [event for event in rest.text.split("\n\n") if event.startswith("id:")] == last


def test_a_stream_of_what_cannot_be_is_refused(client):
    assert client.get("/api/learn?map=S2").status_code == 422
    assert client.get("/api/learn?learner=nobody").status_code == 422


def test_exports_are_files_to_keep(client):
    script = client.get("/api/script?world=lottery")
    assert script.headers["content-disposition"] == 'attachment; filename="study.py"'
    compile(script.text, "study.py", "exec")
    drawn = client.get("/api/map?map=S1G&slip=0.2")
    assert drawn.headers["content-disposition"] == 'attachment; filename="cliff.map"'
    assert drawn.text.startswith("S.G\n")


def test_the_page_its_files_and_its_charts_are_served_from_here(client):
    for path in ("/", "/docs", "/openapi.json", "/plotly.js", "/page/docs.js"):
        assert client.get(path).status_code == 200
    assert client.get("/page/../app.py").status_code == 404
    for file in PAGE.iterdir():
        if file.suffix in (".html", ".js", ".css"):
            text = re.sub(r'http://www.w3.org/|<a href="https://[^"]+"', "", file.read_text())
            assert "http://" not in text
            assert "https://" not in text


def test_every_question_is_described_with_its_refusals(client):
    paths = json.loads(client.get("/openapi.json").text)["paths"]
    assert len(paths) == 10
    for path in paths.values():
        assert {"403", "422", "429"} <= set(path["get"]["responses"])
        assert path["get"]["description"]
