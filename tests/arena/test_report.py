from planted import chapter, comparison

from safereplay.arena.figures import featured, frame_of, overview_figure
from safereplay.arena.report import page, write_docs
from safereplay.views.document import Table, Text


def test_the_minute_at_the_top_follows_the_data():
    def minute(**areas):
        found = comparison(chapter("a", **areas), chapter("b", **areas))
        return page(found).blocks

    won, lost = minute(q=0.1, matched=0.9), minute(q=0.9, matched=0.1)
    assert "wins on a and b" in " ".join(b.text for b in won[:3] if isinstance(b, Text))
    assert "loses on a (to Q-learning, by 80.0 points)" in " ".join(b.text for b in lost[:3] if isinstance(b, Text))
    table = next(b for b in won if isinstance(b, Table))
    assert table.rows[0][:2] == ["a", "variance replay, matched"]
    table = next(b for b in lost if isinstance(b, Table))
    assert table.rows[0][:2] == ["a", "Q-learning"]
    assert table.rows[0][4] == "loses: variance replay, matched"


def test_the_docs_page_is_made_from_the_same_words(tmp_path):
    found = comparison(
        chapter("a", q=0.1, matched=0.9), chapter("b", q=0.9, matched=0.1, refused=[("hindsight", "needs goals")])
    )
    text = write_docs(found, tmp_path).read_text()
    assert "wins on a and loses on b (to Q-learning, by 80.0 points)" in text
    assert "needs goals" in text
    assert "(img/compare-overview.png)" in text
    assert (tmp_path / "img" / "compare-overview.png").exists()


def test_the_main_picture_has_the_papers_comparison_and_the_best_of_the_others():
    shown = featured(chapter(q=0.1, mihatsch=0.2, gaskett=0.3, worst_case=0.05, variance=0.6, matched=0.7))
    assert next(family.label for family, _ in shown) == "variance replay, matched"
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
    assert sorted(texts) == sorted(["10", "90", "42", "·"])
