"""The page: each number comes from the runs, and each sentence says the other thing when they do."""

import json
import re

import pytest
from planted_study import PRESET, plant

from safereplay.views.document import to_markdown
from studies.deep import report, sentences
from studies.deep.records import collect
from studies.deep.study import plan
from studies.deep.summary import CVAR, LITERAL, MEAN, OURS, PLAIN, RANDOM, REWARD
from studies.deep.tuning import Trial

LATE = PRESET._replace(worlds=("delayed",))
DIAL = "v = 0.5, β = 1"


def chapter(folder, planted=None, preset=PRESET, **kwargs):
    jobs = plant(folder, planted, preset, **kwargs)
    return collect(jobs, folder).chapters[0]


def page(folder, planted=None, preset=PRESET, **kwargs):
    """The page's text, without drawing its pictures."""
    jobs = plant(folder, planted, preset, **kwargs)
    return to_markdown(report.TITLE, report.compose(collect(jobs, folder), jobs, set()))


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_the_headline_table_holds_what_was_planted(tmp_path):
    text = page(tmp_path)
    rows = [line for line in text.splitlines() if re.match(r"\| (point)? \| (DQN|shaped|QR)", line)][:4]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    assert [c[1] for c in cells] == [PLAIN, OURS, MEAN, CVAR]
    assert [c[3].split(" [")[0] for c in cells] == ["20.0 %", "2.0 %", "20.0 %", "10.0 %"]
    assert [c[4] for c in cells] == ["", "0.10", "1.00", "0.50"]
    assert [c[5].split(" [")[0] for c in cells] == ["10.0", "9.50", "10.0", "9.00"]
    assert [c[6].split(" [")[0] for c in cells] == ["", "1.7 %", "0 %", "3.3 %"]  # of the 30 between 10 and −20


def test_every_setting_is_in_the_last_table_and_the_chosen_are_marked(tmp_path):
    text = page(tmp_path, {f"{OURS}, v = 0.75, β = 2": (0.01, 9.0)}, seconds=12.5)
    table = text[text.index("## All settings") : text.index("## Trials of the tuning")]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(rows) == 18  # literal mixing is not planted
    marked = [row for row in rows if "✓" in row]
    assert [row.split("|")[3].strip() for row in marked] == ["v = 0.75, β = 2", "α = 0.25"]
    assert all("| 5 |" in row and "12.5 |" in row for row in rows)
    assert "1.0 %, 9.00" in marked[0]  # on the selection episodes


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
    assert "| point | 10.0 | 11.0 (1.10×) |" in text
    assert report.seconds(found.chapters[0].family(OURS), "another one") == 1e6


def test_catastrophes_of_training_are_shares_of_its_episodes(tmp_path):
    text = page(tmp_path, {PLAIN: {"p": 0.2, "mean": 10.0, "training": 0.4}}, training=0.3)
    assert "| point | 40.0 % | 30.0 % | 30.0 % | 30.0 % |" in text


def test_the_method_counts_runs_seeds_and_episodes(tmp_path):
    text = page(tmp_path, {LITERAL: (0.02, 9.5)})
    assert "95 runs, 5 seeds per setting, 200 evaluation episodes per run" in text
    assert "judged on 100 selection episodes" in text
    assert "settings per world: 12 of shaped DQN, 3 of QR-DQN CVaR." in text
    assert "**Machine**: a slow one, 2 cores, Linux; python 3.11." in text
    assert "**point**, 1,000 steps: A 2-D point" in text
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


def test_a_study_that_is_not_complete_says_how_much_is_missing(tmp_path):
    assert "**Not complete**: 5 of 95 planned runs are missing." in page(tmp_path)


def test_a_world_without_plain_or_random_runs_waits(tmp_path):
    jobs = plant(tmp_path, only=(OURS, PLAIN))
    assert report.write_page(jobs, tmp_path, tmp_path / "docs") is None
    assert not (tmp_path / "docs").exists()
    plant(tmp_path, only=(RANDOM,))
    assert report.write_page(jobs, tmp_path, tmp_path / "docs").is_file()


def test_a_page_can_be_written_of_plain_and_random_alone(tmp_path):
    text = page(tmp_path, only=(PLAIN, RANDOM))
    assert "shaped replay was not run" in text


def test_pictures_that_the_page_shows_exist_and_paths_are_drawn_where_there_are_some(tmp_path):
    point = PRESET._replace(worlds=("point",))
    jobs = plant(tmp_path, preset=point, paths=[[[0.1, 0.3], [0.5, 0.15]]])
    text = report.write_page(jobs, tmp_path, tmp_path / "docs").read_text()
    shown = re.findall(r"\(img/(deep-\w+)\.png\)", text)
    assert shown == ["deep-risk", "deep-paths", "deep-frontier", "deep-curves"]
    for name in shown:
        assert (tmp_path / "docs" / "img" / f"{name}.svg").stat().st_size > 1000
        assert (tmp_path / "docs" / "img" / f"{name}.png").stat().st_size > 1000
    assert "deep-paths" not in page(tmp_path / "none", preset=point)


# -- the headline ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ((0.02, 9.5), "P(catastrophe) falls from 20.0 % to 2.0 %, to 0.10 of plain DQN's; it costs 1.7 % of the gap to random in return."),
        ((0.02, 13.0), "falls from 20.0 % to 2.0 %, to 0.10 of plain DQN's; the return is 10.0 % of the gap to random higher."),
        ((0.21, 9.5), "no significant difference in P(catastrophe) from plain DQN (21.0 % and 20.0 %); it costs 1.7 %"),
        ((0.40, 9.5), "P(catastrophe) rises from 20.0 % to 40.0 %; it costs"),
        ((0.02, -5.0), "it costs 50.0 % of the gap to random in return. No setting lost at most 15 % on the selection"),
    ],
)  # fmt: skip
def test_the_headline_says_what_happened(ours, said, tmp_path):
    assert said in sentences.headline(chapter(tmp_path, {OURS: ours}))


def test_where_plain_is_no_better_than_random_a_loss_has_no_scale(tmp_path):
    text = sentences.headline(chapter(tmp_path, {PLAIN: (0.2, -30.0)}))
    assert "plain DQN does no better than random, so a loss in return has no scale." in text
    assert "No setting lost" not in text


@pytest.mark.parametrize(
    ("ours", "plain", "said"),
    [
        ((0.04, 9.0), (0.2, 10.0), "is met on point."),
        ((0.05, 9.0), (0.2, 10.0), "is not met on point."),
        ((0.02, 5.0), (0.2, 10.0), "is not met on point."),
        ((0.0, 9.0), (0.0, 10.0), "cannot be judged: too few catastrophes."),
    ],
)
def test_the_aim_is_met_or_not(ours, plain, said, tmp_path):
    assert sentences.aim([chapter(tmp_path, {OURS: ours, PLAIN: plain})]).endswith(said)


def test_the_aim_names_the_worlds_on_both_sides(tmp_path):
    met, missed = chapter(tmp_path / "a"), chapter(tmp_path / "b", {OURS: (0.1, 9.0)}, LATE)
    assert "is met on point, and not on delayed cliff." in sentences.aim([met, missed])


@pytest.mark.parametrize(
    ("rival", "said"),
    [
        ((0.2, 5.0), "less risk and more return"),
        ((0.2, 9.5), sentences.VERSUS[-1, 0]),
        ((0.2, 10.0), "less risk for less return"),
        ((0.02, 5.0), sentences.VERSUS[0, 1]),
        ((0.02, 9.5), sentences.VERSUS[0, 0]),
        ((0.02, 10.0), sentences.VERSUS[0, -1]),
        ((0.0, 5.0), "more return for more risk"),
        ((0.0, 9.5), sentences.VERSUS[1, 0]),
        ((0.0, 10.0), "more risk and less return"),
    ],
)
def test_each_of_the_nine_ways_to_stand_beside_a_rival(rival, said, tmp_path):
    ours = (0.05 if rival[0] == 0.0 else 0.02, 9.5)
    assert sentences.against(chapter(tmp_path, {OURS: ours, MEAN: rival}), MEAN) == said


# -- frontiers ---------------------------------------------------------------------------------------------------------


def reach_row(folder, planted):
    text = page(folder, planted)
    row = next(line for line in text.splitlines() if line.startswith("| point | 4 |"))
    return [cell.strip() for cell in row.split("|")[2:-1]], text


def test_the_frontier_that_reaches_further_is_named_in_both_directions(tmp_path):
    row, text = reach_row(tmp_path / "a", {OURS: (0.02, 9.5), CVAR: (0.1, 5.0)})
    assert [cell.split(" [")[0] for cell in row] == [
        "4",
        "0.89",
        "0.42",
        "0.47",
        "shaped replay reaches further",
        "none",
    ]
    assert "Shaped replay reaches further than QR-DQN with CVaR on point." in text
    row, text = reach_row(tmp_path / "b", {OURS: (0.1, 5.0), CVAR: (0.02, 9.5)})
    assert [cell.split(" [")[0] for cell in row[1:5]] == ["0.42", "0.89", "−0.47", "QR-DQN with CVaR reaches further"]
    assert row[5].startswith("α = 0.25 (2.0 %, 9.50), α = 0.1 (2.0 %, 9.50)")
    assert "It reaches less far on point." in text
    row, text = reach_row(tmp_path / "c", {OURS: (0.1, 9.0), CVAR: (0.1, 9.0)})
    assert row[4:] == ["no significant difference", "none"]
    assert "No significant difference (95 %) on point." in text


def test_without_danger_there_is_no_reach(tmp_path):
    row, _ = reach_row(tmp_path, {PLAIN: (0.0, 10.0)})
    assert row[1:4] == ["—"] * 3
    assert row[4] == sentences.REACHES["no danger"]


# -- where it does not help --------------------------------------------------------------------------------------------


def shortcoming(folder, start, planted=None, preset=PRESET, **kwargs):
    """The paragraph that begins so, or nothing."""
    lines = sentences.shortcomings([chapter(folder, planted, preset, **kwargs)])
    return next((line for line in lines if line.startswith(start)), None)


def test_training_is_called_unsafe_where_more_than_half_remains(tmp_path):
    remains = {OURS: {"p": 0.02, "mean": 9.5, "training": 0.2}}
    text = shortcoming(tmp_path / "a", "**It does not make training safe.**", remains)
    assert "30.0 % to 20.0 % (point). On point more than half of plain DQN's remain." in text
    gone = {OURS: {"p": 0.02, "mean": 9.5, "training": 0.1}}
    text = shortcoming(tmp_path / "b", "**Training.**", gone)
    assert "30.0 % to 10.0 % (point). That is less than half" in text


def test_worlds_without_effect_and_without_danger_are_named(tmp_path):
    start = "**Without effect.**"
    assert "On point the chosen setting does not lower" in shortcoming(tmp_path / "a", start, {OURS: (0.2, 9.5)})
    assert "On point plain DQN has fewer than 1 % catastrophes" in shortcoming(
        tmp_path / "b", start, {PLAIN: (0.005, 10)}
    )
    assert shortcoming(tmp_path / "c", start) is None


def test_the_reward_tilt_on_late_danger_is_judged_by_the_data(tmp_path):
    text = shortcoming(tmp_path / "a", "**Danger that comes late.**", {REWARD: (0.19, 10.0)}, LATE)
    assert "does not lower P(catastrophe) significantly (20.0 % without, 19.0 % with it)" in text
    assert "The tilt on the target lowers it to 2.0 %." in text
    text = shortcoming(tmp_path / "b", "**Danger that comes late.**", {REWARD: (0.19, 10.0), OURS: (0.2, 9.5)}, LATE)
    assert "The tilt on the target does not lower it either: 20.0 %." in text
    text = shortcoming(tmp_path / "c", "On the delayed cliff", {REWARD: (0.02, 10.0)}, LATE)
    assert "even a tilt on the reward lowers P(catastrophe) (20.0 % without, 2.0 % with it)" in text


@pytest.mark.parametrize(
    ("literal", "said"),
    [
        (
            (0.1, 2.0),
            "is worse than matched mixing at the same v and β on point (10.0 % and 2.00, matched 2.0 % and 9.50).",
        ),
        ((0.02, 9.5), "is neither better nor worse on point"),
        ((0.1, 10.0), "is neither better nor worse on point"),
        ((0.02, 10.5), "is better on point"),
    ],
)
def test_literal_mixing_is_judged_beside_matched_at_the_same_dial(literal, said, tmp_path):
    assert said in shortcoming(tmp_path, "**Literal mixing**", {LITERAL: literal})


def test_settings_that_are_dialled_too_far_are_named(tmp_path):
    start = "**Too much replay.**"
    text = shortcoming(tmp_path / "a", start, {f"{OURS}, v = 0.75, β = 2": (0.0, -10.0)})
    assert text.endswith("point (1 of 12: v = 0.75, β = 2).")
    assert shortcoming(tmp_path / "b", start) is None


def test_seeds_that_keep_the_risk_are_counted(tmp_path):
    start = "**Seeds differ.**"
    uneven = {f"{OURS}, {DIAL}": lambda seed: {"p": 0.2 if seed == 3 else 0.0, "mean": 9.5, "selected": (0.0, 9.5)}}
    assert shortcoming(tmp_path / "a", start, uneven).endswith("point (1 of 5).")
    assert shortcoming(tmp_path / "b", start) is None


def test_a_rival_that_is_better_is_named(tmp_path):
    start = "**Beaten at the chosen settings**"
    assert shortcoming(tmp_path / "a", start, {CVAR: (0.0, 10.0), OURS: (0.05, 9.5)}) == (
        "**Beaten at the chosen settings** on point by QR-DQN CVaR (shaped DQN has more risk and less return)."
    )
    assert shortcoming(tmp_path / "b", start) is None


def test_no_claim_is_left_when_nothing_is_wrong(tmp_path):
    good = {OURS: {"p": 0.02, "mean": 9.5, "training": 0.0}, PLAIN: {"p": 0.2, "mean": 10.0, "training": 0.0}}
    text = page(tmp_path, good)
    assert "- None of these shortcomings was found." in text


def test_the_plan_names_a_title_for_each_world(tmp_path):
    jobs = plan(PRESET._replace(worlds=("lander", "cliff", "delayed"), seeds=1))
    for world in ("lander", "cliff", "delayed"):
        plant(tmp_path, preset=PRESET._replace(worlds=(world,), seeds=1))
    assert [c.title for c in collect(jobs, tmp_path).chapters] == ["cliff", "delayed cliff", "LunarLander in wind"]


def test_runs_that_are_kept_beside_the_page_are_linked(tmp_path):
    jobs = plant(tmp_path)
    assert "deep-runs" not in report.write_page(jobs, tmp_path, tmp_path).read_text()
    (tmp_path / "deep-runs.tar.xz").write_bytes(b"")
    assert "kept in [deep-runs.tar.xz](deep-runs.tar.xz)" in report.write_page(jobs, tmp_path, tmp_path).read_text()
