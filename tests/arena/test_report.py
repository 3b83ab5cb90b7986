import numpy as np
import pytest
from matplotlib.text import Text
from planted import chapter, comparison, record

from docs.comparison import write_docs
from safereplay.arena.figures import featured, frame_of, overview_figure, world_figure
from safereplay.arena.report import page
from safereplay.arena.results import Chapter, Family
from safereplay.views.document import Table


def test_the_tables_at_the_top_follow_the_data():
    def tables(**areas):
        found = comparison(chapter("a", **areas), chapter("b", **areas))
        return [block for block in page(found).blocks if isinstance(block, Table)]

    (won, best), (lost, _) = tables(q=0.1, matched=0.9)[:2], tables(q=0.9, matched=0.1)[:2]
    assert [row[:4] for row in won.rows] == [
        ["variance replay (matched)", "90 %", "2 of 2", "0 of 2"],
        ["Q-learning", "10 %", "0 of 2", "2 of 2"],
    ]
    assert [row[0] for row in lost.rows] == ["Q-learning", "variance replay (matched)"]
    assert best.rows[0][:2] == ["a", "variance replay (matched)"]
    assert best.rows[0][4] == "wins: variance replay (matched)"


def test_the_docs_page_has_the_same_tables(tmp_path):
    found = comparison(
        chapter("a", q=0.1, matched=0.9), chapter("b", q=0.9, matched=0.1, refused=[("hindsight", "needs goals")])
    )
    text = write_docs(found, tmp_path).read_text()
    assert "| b | Q-learning | 90 % [90, 90] | none | loses: variance replay (matched) | 10 % | 80.0 points" in text
    assert "| hindsight | b | needs goals |" in text
    assert "(img/compare-overview.png)" in text
    assert (tmp_path / "img" / "compare-overview.png").exists()


def test_the_main_picture_has_the_papers_comparison_and_the_best_of_the_others():
    shown = featured(chapter(q=0.1, mihatsch=0.2, gaskett=0.3, worst_case=0.05, variance=0.6, matched=0.7))
    assert next(family.label for family, _ in shown) == "variance replay (matched)"
    looks = [look for _, look in shown]
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == len(looks)


def test_the_frame_shows_every_useful_setting():
    found = chapter(q=0.55, mihatsch=0.9)
    frame = frame_of(found)
    assert frame.bottom < 0.55
    assert frame.top > 1.0


def test_the_overview_has_a_number_for_everyone_everywhere():
    found = comparison(chapter("a", q=0.1, matched=0.9), chapter("b", q=0.42))
    texts = [text.get_text() for text in overview_figure(found).axes[0].texts]
    assert sorted(texts) == sorted(["10", "90", "42", "·", "mean", "90 %", "26 %"])


@pytest.mark.parametrize("worlds", ["a", "abcdefghijklmnopqrs"])
def test_nothing_of_the_overview_is_cut_off(worlds):
    figure = overview_figure(comparison(*(chapter(name, q=0.1, matched=0.9) for name in worlds)))
    figure.draw_without_rendering()
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    boxes = [text.get_window_extent() for text in texts]
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1 for box in boxes)


def test_lines_join_only_settings_inside_the_frame():
    found = chapter(q=0.9, mihatsch=0.9)
    here, one = found.world, found.families[1].contestant
    records = [record(p, value) for p, value in ((0.1, 0.9), (0.2, -50.0), (0.3, 0.95))]
    found = Chapter(here, (Family(here, one, one.settings[:3], tuple(records)),), ())
    joined = [line.get_ydata() for line in world_figure(found).axes[0].lines if len(line.get_xdata()) == 3]
    np.testing.assert_allclose(joined, [[0.9, np.nan, 0.95]])
