"""The page: each number comes from the runs, and each sentence says the other thing when they do."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from planted_study import PRESET, plant

import safereplay as sr
from safereplay.views.document import to_markdown
from studies.deep import limits, report, sentences
from studies.deep.limits import Prediction
from studies.deep.records import collect
from studies.deep.study import plan
from studies.deep.summary import (
    CVAR,
    DEFAULT,
    IQN,
    KEYED,
    LAGRANGIAN,
    LIMITED,
    OURS,
    PENALTY,
    PLAIN,
    RANDOM,
    RIVALS,
    STATIC,
    loss,
)
from studies.deep.tuning import Trial
from studies.deep.worlds import world_named

ROAD = PRESET._replace(worlds=("highway",))
NEAR = f"{OURS}, {DEFAULT}"


def chapter(folder, planted=None, preset=PRESET, **kwargs):
    jobs = plant(folder, planted, preset, **kwargs)
    return collect(jobs, folder).chapters[0]


def page(folder, planted=None, preset=PRESET, **kwargs):
    """The page's text, without drawing its pictures."""
    jobs = plant(folder, planted, preset, **kwargs)
    return to_markdown(report.TITLE, report.compose(collect(jobs, folder), jobs, set()))


def cells(text, start, end):
    """The rows of the tables between two marks, without their headers."""
    part = text[text.index(start) : text.index(end)]
    lines = [line for line in part.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "P(c" not in line]


def main_numbers(rows, column):
    return [row[column].split(" [")[0] for row in rows]


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_the_results_hold_what_was_planted(tmp_path):
    rows = cells(page(tmp_path, {f"{OURS}, v = 0.65": (0.0, 9.0)}), "## Results", "## A named limit")
    assert [row[0] for row in rows] == ["point", "", "point", *[""] * 6]
    assert [row[1] for row in rows] == [PLAIN, OURS, OURS, KEYED, *RIVALS]
    assert [row[2] for row in rows[:4]] == ["—", "v = 0.8 (default)", "v = 0.65", "v = 0.5, β = 2"]
    rows = rows[:5]
    assert main_numbers(rows, 3) == ["20.0 %", "2.0 %", "0 %", "4.0 %", "6.0 %"]
    assert main_numbers(rows, 4) == ["", "0.10", "0.00", "0.20", "0.30"]
    assert main_numbers(rows, 5) == ["10.0", "9.50", "9.00", "9.50", "9.00"]
    assert main_numbers(rows, 6) == ["", "1.7 %", "3.3 %", "1.7 %", "3.3 %"]  # of the 30 between 10 and −20
    assert all(re.fullmatch(r"\S+ \[\S+, \S+\]", row[4]) for row in rows[1:])


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (5, "**On 1 of 1 worlds at least nine seeds in ten end with a certificate of the limit.**\n"),
        (
            4,
            "**On 0 of 1 worlds at least nine seeds in ten end with a certificate of the limit.** Fewer do on point (4 of 5).",
        ),
    ],
)
def test_certificates_are_counted(kept, said, tmp_path):
    text = page(tmp_path, {LIMITED: lambda seed: {"p": 0.05, "mean": 9.4, "certified": seed < kept}})
    assert said in text
    [row] = cells(text, "## A named limit", "## Frontiers")
    assert row[:4] == ["point", "P ≤ 7 %", "20.0 %", f"{kept} of 5"]
    assert main_numbers([row], 4) + main_numbers([row], 6) == ["5.0 %", "2.0 %"]
    assert row[7:] == ["0.75 [0.75, 0.75]", "400", "0 of 5"]


def test_the_main_comparison_needs_no_rule(tmp_path):
    """The default is far worse on the selection episodes than other settings; it is shown all the same."""
    planted = {NEAR: {"p": 0.02, "mean": 9.5, "selected": (0.9, -15.0)}}
    rows = cells(page(tmp_path, planted), "## Results", "## A named limit")
    assert rows[1][2] == "v = 0.8 (default)"
    assert rows[2][2] == "v = 0.75"


def test_a_seed_fails_if_it_loses_more_than_half_of_the_gap(tmp_path):
    """Between 10 and −20 the half is −5; the plain learner's own seeds are measured by its mean, 4."""
    found = chapter(tmp_path / "a", {NEAR: lambda seed: (0.02, -5.1 if seed < 2 else -4.9)})
    assert found.failed(found.default) == 2
    assert found.failed(found.plain) == 0
    assert "| 2 of 5 |" in page(tmp_path / "a", {NEAR: lambda seed: (0.02, -5.1 if seed < 2 else -4.9)})
    found = chapter(tmp_path / "b", {PLAIN: lambda seed: (0.2, -20.0 if seed == 0 else 10.0)})
    assert found.failed(found.plain) == 1


def test_without_a_gap_no_seed_can_fail(tmp_path):
    rows = cells(page(tmp_path, {PLAIN: (0.2, -30.0)}), "## Results", "## A named limit")
    assert {row[7] for row in rows} == {"—"}


def test_families_that_all_lose_too_much_are_named(tmp_path):
    said = "No setting loses at most 15 % on the selection episodes, so the one that loses least is shown: point (IQN CVaR)."
    assert said in page(tmp_path / "a", {IQN: (0.0, 5.0)})
    assert "No setting loses" not in page(tmp_path / "b")


def test_every_setting_is_in_the_last_table_and_the_chosen_are_marked(tmp_path):
    text = page(tmp_path, {f"{OURS}, v = 0.65": (0.01, 9.0)}, seconds=12.5)
    rows = cells(text, "## All settings", "## Trials of the tuning")
    assert len(rows) == 22
    marked = [row for row in rows if row[1].endswith(" ✓")]
    assert [row[1].removesuffix(" ✓") for row in marked] == [OURS, *RIVALS]
    assert marked[0][2] == "v = 0.65"
    assert marked[0][7] == "1.0 %, 9.00"  # on the selection episodes
    assert all(row[3] == "5" and row[8] == "12.5" for row in rows)


def test_cost_is_the_ratio_of_medians_on_one_machine(tmp_path):
    jobs = plant(
        tmp_path, {PLAIN: {"p": 0.2, "mean": 10.0, "seconds": 10.0}, OURS: {"p": 0.02, "mean": 9.5, "seconds": 11.0}}
    )
    file = next(tmp_path / "runs" / job.file for job in jobs if job.family == OURS)
    record = json.loads(file.read_text())
    record["result"]["seconds"], record["result"]["versions"]["cpu"] = 1e6, "another one"
    file.write_text(json.dumps(record))
    found = collect(jobs, tmp_path)
    text = to_markdown(report.TITLE, report.compose(found, jobs, set()))
    assert "| point | 10.0 | 11.0 (1.10×) | 10.0 (1.00×) |" in text
    assert report.seconds(found.chapters[0].family(OURS), "another one") == 1e6


def test_catastrophes_of_training_are_shares_of_its_episodes(tmp_path):
    text = page(tmp_path, {PLAIN: {"p": 0.2, "mean": 10.0, "training": 0.4}}, training=0.3)
    assert f"| point | 40.0 % |{' 30.0 % |' * 7}" in text


def test_the_method_counts_runs_seeds_episodes_and_dials(tmp_path):
    text = page(tmp_path, preset=PRESET._replace(seeds=6))
    assert "114 runs, 5 to 6 seeds per setting, 200 evaluation episodes per run" in text
    assert "judged on 100 selection episodes" in text
    assert (
        "shaped: v = 0.8 or v = 0.75 or v = 0.65; named limit: P ≤ 7 %; shaped with keys: v = 0.5, β = 2; penalty: 1 × harm or"
        in text
    )
    assert "**Machine**: a slow one, 2 cores, Linux; python 3.11." in text
    assert "| point | 1,000 | A 2-D point" in text
    assert "Not complete" not in text


def test_what_was_tried_in_tuning_is_listed_for_the_worlds_of_the_page(tmp_path, monkeypatch):
    trials = (
        Trial("point", "dqn", 1000, {"steps": 10}, 1.3, 0.117, "enough"),
        Trial("point", "qrdqn", 1000, {}, 1.2, 0.1, "fine"),
        Trial("volatile", "dqn", 1000, {}, 200.0, 0.7, "elsewhere"),
    )
    monkeypatch.setattr(report, "TRIED", trials)
    text = page(tmp_path)
    table = text[text.index("## Trials of the tuning") :]
    assert "| point | DQN | steps = 10 | 1.30 | 11.7 % | enough |" in table
    assert "| point | QR-DQN | nothing | 1.20 | 10.0 % | fine |" in table
    assert "elsewhere" not in table


# -- what is missing ---------------------------------------------------------------------------------------------------


def test_a_study_that_is_not_complete_says_how_much_is_missing(tmp_path):
    text = page(tmp_path, only=(PLAIN, RANDOM, OURS))
    assert "**Not complete**: 85 of 110 planned runs are missing." in text
    assert "Lagrangian |" not in text[: text.index("## Trials of the tuning")]


def test_a_world_without_plain_or_random_runs_waits(tmp_path):
    jobs = plant(tmp_path, only=(OURS, PLAIN))
    assert report.write_page(jobs, tmp_path, tmp_path / "docs") is None
    assert not (tmp_path / "docs").exists()
    plant(tmp_path, only=(RANDOM,))
    assert report.write_page(jobs, tmp_path, tmp_path / "docs").is_file()


def test_a_page_can_be_written_of_plain_and_random_alone(tmp_path):
    jobs = plant(tmp_path, only=(PLAIN, RANDOM))
    text = report.write_page(jobs, tmp_path, tmp_path / "docs").read_text()
    assert "The aim cannot be judged yet" in text
    assert "deep-risk" not in text


def test_another_setting_is_never_taken_for_the_default(tmp_path):
    jobs = plant(tmp_path)
    for job in jobs:
        if (job.family, job.dial) == (OURS, DEFAULT):
            (tmp_path / "runs" / job.file).unlink()
    found = collect(jobs, tmp_path)
    text = to_markdown(report.TITLE, report.compose(found, jobs, set()))
    assert found.chapters[0].default is None
    assert "Not judged" not in text
    assert "The aim cannot be judged yet" in text


def test_one_seed_gives_numbers_without_intervals(tmp_path):
    rows = cells(page(tmp_path, preset=PRESET._replace(seeds=1)), "## Results", "## A named limit")
    assert rows[1][5:] == ["9.50", "1.7 %", "0 of 1"]


def test_pictures_that_the_page_shows_exist_and_paths_are_drawn_where_there_are_some(tmp_path):
    jobs = plant(tmp_path, paths=[[[0.1, 0.3], [0.5, 0.15]]])
    text = report.write_page(jobs, tmp_path, tmp_path / "docs").read_text()
    shown = re.findall(r"\(img/(deep-\w+)\.png\)", text)
    assert shown == ["deep-risk", "deep-paths", "deep-frontier", "deep-curves"]
    for name in shown:
        assert (tmp_path / "docs" / "img" / f"{name}.svg").stat().st_size > 1000
        assert (tmp_path / "docs" / "img" / f"{name}.png").stat().st_size > 1000
    assert "deep-paths" not in page(tmp_path / "none")


# -- the aim -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("default", "said"),
    [
        ((0.065, 9.0), "On 1 of 1 worlds shaped replay at its default, with no key"),
        ((0.07, 9.0), "not met on point (too little less risk)."),
        ((0.02, 5.0), "not met on point (too much return lost)."),
        ((0.10, 5.0), "On 0 of 1 worlds"),
        ((0.10, 5.0), "not met on point (too little less risk and too much return lost)."),
        ((0.07, 9.0), "significantly above the plain learner's on no world."),
        ((0.40, 9.0), "significantly above the plain learner's on point."),
    ],
)
def test_the_aim_is_met_or_not_with_its_reason(default, said, tmp_path):
    """Other settings of shaped replay are good; the default alone counts."""
    assert said in sentences.aim([chapter(tmp_path, {NEAR: default})])


def test_the_aim_is_told_for_worlds_that_the_default_was_not_set_with(tmp_path):
    one = chapter(tmp_path / "a")
    missed = chapter(tmp_path / "b", {NEAR: (0.1, 9.5)})
    told = [sentences.aim([one, replace(other, world="lava", title="lava")]) for other in (one, missed)]
    start = "Of the 1 worlds that the default was set with, it does on 1; of the 1 others, on "
    assert start + "1. P(" in told[0]
    assert start + "0. This aim is not met on lava" in told[1]


def test_an_aim_that_is_met_has_no_exceptions(tmp_path):
    text = sentences.aim([chapter(tmp_path)])
    assert "not met" not in text
    assert "Not judged" not in text


@pytest.mark.parametrize("plain", [(0.005, 10.0), (0.2, -21.0)])
def test_worlds_without_danger_or_without_learning_are_not_judged(plain, tmp_path):
    worlds = [chapter(tmp_path / "a"), chapter(tmp_path / "b", {PLAIN: plain}, ROAD)]
    text = sentences.aim(worlds)
    assert "On 1 of 1 worlds" in text
    assert "Not judged: highway" in text
    assert sentences.aim(worlds[1:]).startswith("The aim cannot be judged yet")


# -- frontiers ---------------------------------------------------------------------------------------------------------


def test_the_frontier_that_reaches_further_is_named_in_both_directions(tmp_path):
    """One neutral end and three equal settings: 0.89 for (0.02, 9.5), and 0.42 for (0.1, 5)."""
    rivals = {PENALTY: (0.1, 5.0), CVAR: (0.02, 9.5), IQN: (0.02, 9.5)}
    text = page(tmp_path / "a", {OURS: (0.02, 9.5), **rivals}, only=(PLAIN, RANDOM, OURS, *rivals))
    (row,) = [cell for cell in cells(text, "## Frontiers", "## During") if cell[0] == "point"]
    assert row[1].startswith("**0.47 [")
    assert row[1].endswith("]** further")
    assert row[2].startswith("0.00 [")
    assert "(4 with the plain learner)" in text
    assert "Of 3 comparisons" in text
    assert "- **penalty**: further on point." in text
    assert "- **QR-DQN CVaR**: no significant difference on point." in text
    text = page(tmp_path / "b", {OURS: (0.1, 5.0), LAGRANGIAN: (0.02, 9.5)})
    (row,) = [cell for cell in cells(text, "## Frontiers", "## During") if cell[0] == "point"]
    assert row[5].startswith("**−0.47 [")
    assert row[5].endswith("]** less far")
    assert "- **Lagrangian**: less far on point." in text


def test_networks_that_do_not_arrive_are_counted(tmp_path):
    """The time limit is 100 steps."""
    slow = {"p": 0.1, "mean": 5.0, "lasting": 90.0}
    text = page(tmp_path / "a", {PENALTY: lambda seed: slow if seed < 2 else (0.1, 9.0)})
    assert "Networks whose episodes last" in text
    assert "- penalty: 6 of 15 on point.\n" in text
    text = page(tmp_path / "b", {PLAIN: slow, PENALTY: slow})
    assert "Networks whose episodes last" not in text


def test_without_danger_there_is_no_reach(tmp_path):
    text = page(tmp_path, {PLAIN: (0.0, 10.0)})
    assert f"| point |{' — |' * 5}" in text


# -- speed -------------------------------------------------------------------------------------------------------------


def test_speeds_follow_from_returns_crashes_and_steps(tmp_path):
    """A return of 9.5 with 2 % crashes at a cost of 7, in 20 steps: 20 + 10·(9.5 + 0.14)/20 = 24.82 m/s."""
    rows = cells(page(tmp_path, preset=ROAD), "## Speed and crashes", "## During")
    assert [row[1] for row in rows] == [PLAIN, OURS, KEYED, *RIVALS, LIMITED]
    assert rows[1][4] == "24.8 [24.8, 24.8]"
    assert rows[1][3].startswith("2.0 % [")
    assert "## Speed" not in page(tmp_path / "none")


@pytest.mark.parametrize("world", report.TRAFFIC)
def test_the_speed_of_the_page_is_the_speed_of_the_car(world):
    """Two random episodes of the real environment: the mean of info["speed"], to rounding."""
    env, rng = world_named(world).make(judged=True), np.random.default_rng(0)
    seen, returns, crashes = [], 0.0, 0
    for seed in range(2):
        env.reset(seed=seed)
        over = False
        while not over:
            _, reward, terminated, truncated, info = env.step(int(rng.integers(5)))
            seen.append(info["speed"])
            returns, crashes, over = returns + reward, crashes + info["unsafe"], terminated or truncated
    run = type(
        "Run", (), {"evaluation": type("E", (), {"mean": returns / 2, "p": crashes / 2, "steps": len(seen) / 2})}
    )
    found = report.speeds(type("C", (), {"world": world}), type("G", (), {"runs": [run]}))
    assert crashes > 0
    assert found == [pytest.approx(np.mean(seen))]


# -- where it does not help --------------------------------------------------------------------------------------------


def shortcoming(folder, start, planted=None, **kwargs):
    """The paragraph that begins so, or nothing."""
    lines = sentences.shortcomings([chapter(folder, planted, **kwargs)], ())
    return next((line for line in lines if line.startswith(start)), None)


def test_training_is_called_unsafe_where_more_than_half_remains(tmp_path):
    start = "**It does not make training safe.**"
    remains = {OURS: {"p": 0.02, "mean": 9.5, "training": 0.2}}
    assert shortcoming(tmp_path / "a", start, remains).endswith("remain on point (30.0 % to 20.0 %).")
    assert shortcoming(tmp_path / "b", start, {OURS: {"p": 0.02, "mean": 9.5, "training": 0.1}}) is None


def test_worlds_without_effect_and_without_danger_are_named(tmp_path):
    start = "**Without effect.**"
    assert "On point the default does not lower" in shortcoming(tmp_path / "a", start, {NEAR: (0.2, 9.5)})
    calm = shortcoming(tmp_path / "b", start, {PLAIN: (0.005, 10)})
    assert "On point the plain learner has less than 1.0 % catastrophes." in calm
    assert shortcoming(tmp_path / "c", start) is None
    assert shortcoming(tmp_path / "d", start, {NEAR: (0.2, 9.5)}, preset=PRESET._replace(seeds=1)) is None


def test_a_missed_aim_is_that_of_the_exact_limit_or_of_the_networks(tmp_path):
    c = chapter(tmp_path, {NEAR: (0.1, 9.5)})  # half of the plain learner's 20 %
    told = [
        sentences.causes([c], [(c, c.default, Prediction(p, mean, 3, 5))])
        for p, mean in ((0.08, 9.5), (0.02, 4.0), (0.02, 9.4))
    ]
    start = "**Limit or learning.** Where the aim is not met on a table: The exact limit "
    assert told[0] == start + "does not meet the aim either on point (8.0 %, 1.7 % of the gap lost)."
    assert told[1] == start + "does not meet the aim either on point (2.0 %, 20.0 % of the gap lost)."
    assert told[2] == start + "meets it on point (2.0 %, 2.0 % of the gap lost), and 3 of 5 networks have its policy."
    assert sentences.causes([c], [(c, c.default, None)]) == ""
    met = chapter(tmp_path / "met", {NEAR: (0.02, 9.5)})
    assert sentences.causes([met], [(met, met.default, Prediction(0.1, 9.5, 3, 5))]) == ""


def test_the_best_policy_within_the_aim_is_computed_where_there_is_a_table():
    """From S, as in evaluation: from all starts the best at 26 % has 166, but from S it has a risk of 40 %."""
    mean = limits.best_return("volatile", 0.26)
    mdp = sr.grids.volatile()
    assert mean == sr.design(mdp, max_p_unsafe=0.26, start=mdp.origin, quiet=True).price.deterministic.profile.mean
    assert 0.9 < loss(mean, plain=210.7, random=138.4) < 0.92  # the aim allows 0.15: out of reach
    assert limits.best_return("point", 0.05) is None


def test_failed_seeds_of_the_default_are_counted_with_those_of_plain(tmp_path):
    start = "**Failed seeds.**"
    text = shortcoming(tmp_path / "a", start, {NEAR: lambda seed: (0.02, -15.0 if seed == 3 else 9.5)})
    assert text.endswith("point (1 of 5; plain 0 of 5).")
    assert shortcoming(tmp_path / "b", start) is None


def test_settings_that_are_dialled_too_far_are_named(tmp_path):
    start = "**Too much replay.**"
    assert shortcoming(tmp_path / "a", start, {f"{OURS}, v = 0.65": (0.0, -10.0)}).endswith("point (v = 0.65).")
    assert shortcoming(tmp_path / "b", start) is None


@pytest.mark.parametrize(
    ("rival", "named"),
    [
        ((0.0, 10.0), True),  # less risk, more return
        ((0.0, 9.5), True),  # less risk
        ((0.05, 10.0), True),  # more return
        ((0.05, 9.5), False),  # the same
        ((0.0, 5.0), False),  # less risk for less return
        ((0.2, 10.0), False),  # more return for more risk
        ((0.2, 5.0), False),
    ],
)
def test_a_rival_that_is_better_in_one_and_not_worse_in_the_other_is_named(rival, named, tmp_path):
    found = sentences.beaten_by(chapter(tmp_path, {NEAR: (0.05, 9.5), STATIC: rival}))
    assert (STATIC in found) == named
    assert (CVAR in found) is False  # (0.1, 9): worse in both


def test_no_claim_is_left_when_nothing_is_wrong(tmp_path):
    good = {OURS: {"p": 0.02, "mean": 9.5, "training": 0.0}, PLAIN: {"p": 0.2, "mean": 10.0, "training": 0.0}}
    assert "- None of these shortcomings was found." in page(tmp_path, good)


def test_the_plan_names_a_title_for_each_world(tmp_path):
    jobs = plan(PRESET._replace(worlds=("maze", "cliff", "delayed"), seeds=1))
    for world in ("maze", "cliff", "delayed"):
        plant(tmp_path, preset=PRESET._replace(worlds=(world,), seeds=1))
    assert [c.title for c in collect(jobs, tmp_path).chapters] == ["cliff", "delayed cliff", "guarded maze"]


def test_runs_that_are_kept_beside_the_page_are_linked(tmp_path):
    jobs = plant(tmp_path)
    assert "deep-runs" not in report.write_page(jobs, tmp_path, tmp_path).read_text()
    (tmp_path / "deep-runs.tar.xz").write_bytes(b"")
    assert "kept in [deep-runs.tar.xz](deep-runs.tar.xz)" in report.write_page(jobs, tmp_path, tmp_path).read_text()
