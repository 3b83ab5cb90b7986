"""Maps drawn at random, and their models read cell by cell."""

from hypothesis import strategies as st


def outcomes(mdp, cell, a):
    """{(cell, r, terminal, unsafe): p} of taking an action in a cell."""
    o = mdp.outcomes(mdp.layout.state_at(*cell), a)
    keys = [
        (mdp.layout.cells[t], r, bool(e), bool(u))
        for t, r, e, u in zip(o.s_next, o.r, o.terminal, o.unsafe, strict=True)
    ]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, o.p.tolist(), strict=True))


@st.composite
def random_maps(draw, symbols="....#SGX^>v<"):
    height, width = draw(st.integers(1, 6)), draw(st.integers(2, 7))
    cells = [[draw(st.sampled_from(symbols)) for _ in range(width)] for _ in range(height)]
    cells[draw(st.integers(0, height - 1))][0], cells[draw(st.integers(0, height - 1))][-1] = "SG"
    return "\n".join("".join(row) for row in cells)


OPTIONS = {
    "volatile": st.sampled_from([[(0.6, 100.0), (0.4, -100.0)], [(1.0, 3.0)], [(0.5, 0.0), (0.3, -1.0), (0.2, -2.0)]]),
    "slip": st.sampled_from([0.0, 0.1, 0.37, 1.0]),
    "slip_to": st.sampled_from(["any", "others", "sides", "up", "right", "down", "left"]),
    "fall_ends": st.booleans(),
    "goal_slips": st.booleans(),
    "step": st.sampled_from([-1.0, 0.0, 0.3]),
    "hazard": st.sampled_from([-10.0, -1.0]),
}
