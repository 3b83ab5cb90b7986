"""The page writes links in JavaScript and the server reads them in Python: what is written is what is read."""

import json
import shutil
import subprocess
from urllib.parse import parse_qsl

import numpy as np
import pytest
from waiting import END

from safereplay.web.app import PAGE
from safereplay.web.kinds import KINDS, SCHEMES, WORDS, Side, bounds_of, dials_of
from safereplay.web.state import MOST, SlipTo, StateLink, presets

NODE = shutil.which("node")
WRITE = """
import { query } from "./link.mjs";
import { readFileSync } from "node:fs";
const { presets, states } = JSON.parse(readFileSync(0));
console.log(JSON.stringify(states.map((state) => query(state, presets))));
"""
REWARDS = [0.0, -0.0, 1e-7, -1e-7, 1e6, -1e6, 123456.789, 1 / 3, 0.1 + 0.2, 5.0, -50.0]


def drawn_state(rng):
    """A state as a page might have it, whether or not its world makes sense."""
    pick = rng.choice
    world = json.loads(json.dumps(presets()[pick(list(presets()))].to_dict()))
    if rng.random() < 0.7:
        rows, columns = rng.integers(1, MOST + 1, 2)
        world["rows"] = ["".join(row) for row in pick(list(".....#SGX^>v<"), (rows, columns))]
        world["goals"], world["volatiles"] = {}, {}
    for i, row in enumerate(world["rows"]):
        for j, mark in enumerate(row):
            if mark == "G" and rng.random() < 0.5:
                world["goals"][f"{i},{j}"] = float(pick(REWARDS))
            if mark in "^>v<" and rng.random() < 0.1:
                world["volatiles"][f"{i},{j}"] = [[0.25, float(pick(REWARDS))], [0.75, float(pick(REWARDS))]]
    world |= {name: float(pick(REWARDS)) for name in ("goal", "step", "hazard") if rng.random() < 0.3}
    world |= {
        "slip": round(rng.random(), 4),
        "slip_to": str(pick(SlipTo.__args__)),
        "fall_ends": bool(rng.random() < 0.5),
    }
    return {
        "world": world,
        "left": drawn_side(rng),
        "right": drawn_side(rng),
        "epsilon": 0.1,
        "seeds": 3,
        "limit": 0.04,
    }


def drawn_side(rng):
    kind = str(rng.choice(list(KINDS)))
    dials = {}
    for name, (about, default) in dials_of(kind, str(rng.choice(list(SCHEMES)))).items():
        if about is None:
            dials[name] = default if name == "scheme" else str(rng.choice(list(WORDS[name])))
        elif isinstance(default, int):
            dials[name] = int(rng.integers(1, 100))
        elif name == "limit" and rng.random() < 0.5:
            dials[name] = default  # None in a design: it depends on the world
        else:
            low, high = (float(end) for end in bounds_of(name, about)[1:-1].split(","))
            dials[name] = round(low + (high - low) * (0.001 + 0.998 * rng.random()), 6)
    return {"kind": kind, **dials}


def read(link):
    parsed = StateLink(**dict(parse_qsl(link, keep_blank_values=True)))
    sides = {name: Side.parse(getattr(parsed, name)).to_dict() for name in ("left", "right")}
    own = {name: getattr(parsed, name) for name in ("epsilon", "seeds", "limit")}
    return json.loads(json.dumps({"world": parsed.to_world().to_dict(), **sides, **own}))


def alike(one, other):
    """Whether two states are the same but for the eleventh digit of a number."""
    if isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in other)
    if isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return np.isclose(one, other, rtol=1e-9, atol=0.0) if isinstance(other, float) else one == other


@pytest.mark.skipif(NODE is None, reason="node is not installed: the page's links cannot be written here")
def test_the_server_reads_what_the_page_writes(tmp_path):
    (tmp_path / "link.mjs").write_bytes((PAGE / "link.js").read_bytes())
    (tmp_path / "write.mjs").write_text(WRITE)
    rng = np.random.default_rng(11)
    states = [json.loads(json.dumps(StateLink().to_state())), *(drawn_state(rng) for _ in range(300))]
    known = [{"name": name, "world": world.to_dict()} for name, world in presets().items()]
    done = subprocess.run(
        [NODE, "write.mjs"],
        cwd=tmp_path,
        input=json.dumps({"presets": known, "states": states}),
        capture_output=True,
        text=True,
        check=True,
        timeout=END,
    )
    links = json.loads(done.stdout)
    assert links[0] == "world=cliff"
    for state, link in zip(states, links, strict=True):
        assert alike(read(link), state), link
    assert max(map(len, links)) < 2_000
