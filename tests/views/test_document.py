from html.parser import HTMLParser

from safereplay.views.document import Heading, Picture, Table, Text, to_html, to_markdown

BLOCKS = [
    Heading("Two & more"),
    Text("a < b"),
    Picture("dot", "A dot."),
    Table(["x", "verdict"], [["1 | 2", "yes"], ["3", "no"]], badge=1),
]


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.open, self.seen, self.sources = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_page_is_well_formed_and_needs_nothing_from_outside(tmp_path):
    (tmp_path / "dot.svg").write_text("<svg/>")
    page = Tags(to_html("T <1>", BLOCKS, tmp_path))
    assert page.open == []
    assert all(source.startswith(("data:", "#")) for source in page.sources)
    assert {"h1", "h2", "p", "figure", "table", "nav"} <= set(page.seen)


def test_text_is_escaped(tmp_path):
    (tmp_path / "dot.svg").write_text("<svg/>")
    page = to_html("T <1>", BLOCKS, tmp_path)
    assert "a &lt; b" in page
    assert "<1>" not in page


def test_markdown_links_the_pictures_and_keeps_its_columns():
    text = to_markdown("T", BLOCKS)
    assert "![A dot.](figures/dot.png)" in text
    assert "| 1 \\| 2 | ✓ holds |" in text
    assert "| 3 | ✗ does not hold |" in text


def test_a_folded_table_is_there_and_says_how_long_it_is(tmp_path):
    folded = Table(["x"], [["1"], ["2"]], folded=True)
    page = Tags(to_html("T", [folded], tmp_path))
    assert page.open == []
    assert page.seen.index("details") < page.seen.index("table")
    assert to_markdown("T", [folded]) == (
        '# T\n\n<details markdown="1"><summary>The table (2 rows)</summary>\n\n| x |\n| --- |\n| 1 |\n| 2 |\n\n</details>\n'
    )


def test_pictures_beside_one_another_share_a_caption(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.svg").write_text(f"<svg>{name}</svg>")
    blocks = [Picture("one", "Both.", ("two",))]
    page = to_html("t", blocks, tmp_path)
    assert (page.count("<img"), page.count("<figcaption>Both.")) == (2, 1)
    assert "![Both.](figures/one.png) ![Both.](figures/two.png)\n\n*Both.*" in to_markdown("t", blocks)
