import numpy as np
import pytest
from matplotlib.text import Text
from planted import chapter, comparison, record

from docs.comparison import write_docs
from safereplay.arena.figures import featured, frame_of, overview_figure, world_figure
from safereplay.arena.report import HEADER, REFERENCE, opening, page
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
    found = comparison(chapter("a", q=0.1, matched=0.9), chapter("b", q=0.42, mihatsch=0.2))
    texts = [text.get_text() for text in overview_figure(found).axes[0].texts]
    assert sorted(texts) == sorted(["10", "90", "42", "20", "·", "·", "mean", "90 %", "26 %", "20 %"])


def test_worlds_that_do_not_separate_are_on_the_right_of_the_overview_with_a_second_mean():
    found = comparison(chapter("even", q=1.0, matched=1.0), chapter("a", q=0.1, matched=0.9))
    ax = overview_figure(found).axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "even"]
    assert sorted(text.get_text() for text in ax.texts if "%" in text.get_text()) == ["10 %", "55 %", "90 %", "95 %"]


def test_worlds_that_do_not_separate_have_a_table_of_their_own():
    found = comparison(
        chapter("even", q=1.0, matched=1.0),
        chapter("a", q=0.1, matched=0.9),
        chapter("calm", q=0.5, matched=0.9, dangerous=False),
    )
    everyone, places, equal = (block for block in opening(found) if isinstance(block, Table))
    assert list(everyone.header[:3]) == ["contestant", "mean area", "mean, separating"]
    assert [row[:3] for row in everyone.rows] == [
        ["variance replay (matched)", "93 %", "90 %"],
        ["Q-learning", "53 %", "10 %"],
    ]
    assert [row[0] for row in places.rows] == ["a"]
    assert equal.rows == [
        ["even", "all are among the best", "100 % to 100 %"],
        ["calm", "no outcome can be unsafe", "50 % to 90 %"],
    ]


def test_designed_replay_has_a_row_apart_and_a_line(tmp_path):
    found = comparison(
        chapter("a", frontier=[(0.2, 0.5), (0.6, 1.0)], q=0.1, matched=0.9), chapter("b", q=0.9, matched=0.1)
    )
    tables = [block for block in page(found).blocks if isinstance(block, Table)]
    assert tables[0].rows[-1] == [REFERENCE, "60 %", "100 %", "", "", "known on 1 of 2 worlds"]
    assert [row[2] for row in tables[0].rows[:-1]] == ["17 %", "150 %"]  # 10 and 90 of 60
    first, second = (table for table in tables if list(table.header) == HEADER)
    assert first.rows[-1][:3] == [REFERENCE, "60.0 %", ""]
    assert REFERENCE not in [row[0] for row in second.rows]
    (line,) = (line for line in world_figure(found.chapters[0]).axes[0].lines if line.get_linestyle() == "--")
    assert line.get_drawstyle() == "steps-post"
    np.testing.assert_allclose(line.get_xydata()[:2], [[20.0, 0.5], [60.0, 1.0]])
    ax = overview_figure(found).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()][-1] == "designed replay"
    assert "| reference: designed replay | 60.0 % |" in write_docs(found, tmp_path).read_text()


@pytest.mark.parametrize("worlds", ["a", "abcdefghijklmnopqrs"])
def test_nothing_of_the_overview_is_cut_off(worlds):
    even = [chapter("even", frontier=[(0.0, 0.5)], q=1.0, matched=1.0)] * (len(worlds) > 1)
    figure = overview_figure(comparison(*(chapter(name, q=0.1, matched=0.9) for name in worlds), *even))
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
