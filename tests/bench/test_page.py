import json
import re

import pytest

import safereplay as sr
from benchmarks import speed as bench
from benchmarks.speed import mushroom, native, page, pairs, solving, threads, trees

MACHINE = {
    "cpu": "A Processor",
    "cores": "2",
    "load": "0.10",
    "system": "Linux x86_64",
    "python": "3.11",
    "numba": "1",
    "numpy": "2",
    "safereplay": "3",
}
PARTS = {
    "plain": (bench.Speed("cliff", "a", 10, 1.0, 90.0), bench.Speed("cliff", "b", 10, 1.0, 40.0)),
    "c": (native.Beside("cliff", "a", 4.0, 5.0), native.Beside("cliff", "b", 4.0, 3.0)),
    "mushroom": (mushroom.Rival("cliff", "1.10", 10, 10.0, 20_000.0),),
    "tree": (trees.Batch(10, 32, "sample", 1.0, 0.5, 8.0), trees.Batch(10, 64, "sample", 1.0, 0.5, 5.0)),
    "threads": (threads.Threads(1, 64, 10, 1.9, 1.0, 1.0), threads.Threads(2, 64, 10, 1.0, 1.9, 2.0)),
    "pairs": tuple(
        pairs.Scaling(n, ns, 1.0, 1.0, 144.0, pairs.Cost(1e-8 * n, None), pairs.Cost(2e-8 * n, 3e6))
        for n, ns in ((100, 50.0), (10_000, 75.0))
    ),
    "solving": (
        solving.Solving("random", 9, "safereplay", 1.0, 1e-7, 1.0),
        solving.Solving("random", 9, "quantecon, VI", 4.0, 1e-7, 4.0),
    ),
}
REPORT = bench.BenchReport(MACHINE, PARTS)


def test_the_page_names_the_machine_and_shows_every_table(tmp_path):
    path = bench.write_page(REPORT, tmp_path)
    text = path.read_text()
    assert path == tmp_path / "performance.md"
    assert "A Processor, 2 cores, Linux x86_64" in text
    assert [f"## {sheet.title[0].upper()}{sheet.title[1:]}" in text for sheet in REPORT.sheets()] == [True] * 7
    assert native.TRIED in text
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (tmp_path / target).is_file()
    assert (tmp_path / "img" / "performance.svg").is_file()


def test_bars_are_of_the_least_favourable_case_of_each_peer():
    assert dict(page.ratios(REPORT)) == {
        "plain Python, cliff": 40.0,
        "C, cliff": 0.75,
        "MushroomRL, cliff": 2_000.0,
        "cpprb, sample": 5.0,
        "quantecon, exact solving": 4.0,
    }


def test_the_picture_has_a_bar_a_peer_and_a_line_for_threads_and_for_pairs():
    bars, lines, cost = page.picture(REPORT).axes
    assert len(bars.patches) == 5
    assert lines.lines[1].get_ydata().tolist() == [1.0, 1.9]
    assert cost.lines[0].get_ydata().tolist() == [50.0, 75.0]
    assert cost.lines[1].get_ydata().tolist() == pytest.approx([10.0, 10.0])
    assert cost.lines[2].get_ydata().tolist() == pytest.approx([20.0, 20.0])


def test_parts_that_were_not_measured_leave_their_place_empty(tmp_path):
    report = bench.BenchReport(MACHINE, {"pairs": PARTS["pairs"]})
    texts = [[t.get_text() for t in ax.texts] for ax in page.picture(report).axes]
    assert texts[0] == texts[1] == ["not measured"]
    assert "## Thread scaling" not in bench.write_page(report, tmp_path).read_text()


def test_figures_from_a_gpu_stand_in_their_own_section(tmp_path):
    table = {"title": "updates", "said": "10⁵ runs.", "header": ["grid", "updates/s"], "rows": [["cliff", 4e9]]}
    (tmp_path / "gpu.json").write_text(json.dumps({"machine": "one H200", "tables": [table]}))
    text = bench.write_page(REPORT, tmp_path).read_text()
    assert "## On a GPU\n\nMeasured on one H200." in text
    assert "| cliff | 4000000000.0 |" in text


@pytest.mark.parametrize("content", ["{", "[]", '{"machine": "x"}', '{"machine": "x", "tables": [1]}'])
def test_a_file_of_gpu_figures_that_is_not_one_is_refused(tmp_path, content):
    (tmp_path / "gpu.json").write_text(content)
    with pytest.raises(sr.BadInput, match=r"gpu\.json must hold a machine and tables"):
        bench.write_page(REPORT, tmp_path)
    assert not (tmp_path / "performance.md").exists()


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(sr.BadInput, match="must be a folder that can be written to"):
        bench.write_page(REPORT, tmp_path / "file")
