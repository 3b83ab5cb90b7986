import os

import pytest

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.sources import model_from


def test_a_grids_name_takes_gamma_and_options():
    assert model_from("cliff", 0.9, {"slip": 0.2, "slip_to": "others"}) == sr.grids.cliff(
        0.9, slip=0.2, slip_to="others"
    )


def test_a_map_file_is_named_after_itself(tmp_path):
    (tmp_path / "bridge.txt").write_text("S..G\n.XX.\n")
    mdp = model_from(str(tmp_path / "bridge.txt"), options={"slip": 0.1})
    assert (mdp.name, mdp.layout.shape) == ("bridge", (2, 4))


def test_a_map_file_can_carry_its_options(tmp_path):
    file = tmp_path / "own.map"
    file.write_text('SX.G\n.>..\n\nslip = 0.1\ngamma = 0.8\nvolatiles = { "1,1" = [[0.9, 4.0], [0.1, -60.0]] }\n')
    wanted = {"slip": 0.1, "volatiles": {(1, 1): [(0.9, 4.0), (0.1, -60.0)]}}
    assert model_from(str(file)) == sr.grids.from_map("SX.G\n.>..", gamma=0.8, **wanted)
    assert model_from(str(file)).name == "own"


def test_what_is_asked_for_wins_over_what_a_map_file_says(tmp_path):
    file = tmp_path / "own.map"
    file.write_text('S..G\n\nslip = 0.1\ngamma = 0.8\ngoals = { "0,3" = 50.0 }\nname = "short"\n')
    mdp = model_from(str(file), 0.7, {"slip": 0.2, "goals": {"0,3": 60.0}})
    assert mdp == sr.grids.from_map("S..G", gamma=0.7, slip=0.2, goals={(0, 3): 60.0})
    assert mdp.name == "short"


def test_the_other_worlds_have_names_too():
    assert model_from("bridge", options={"slip": 0.2}) == sr.grids.bridge(slip=0.2)
    with pytest.raises(BadInput, match=r"unknown model 'frozen-lake'; did you mean 'frozen_lake'\?"):
        model_from("frozen-lake")


def test_a_saved_model_keeps_its_gamma_unless_told(tmp_path):
    saved = str(sr.grids.cliff(0.8).save(tmp_path / "model"))
    assert model_from(saved).gamma == 0.8
    assert model_from(saved, 0.5).gamma == 0.5
    with pytest.raises(BadInput, match="option must be left out for a saved model, got 'slip'"):
        model_from(saved, options={"slip": 0.1})


def test_a_gymnasium_id_takes_its_own_options():
    sure, slippery = (model_from("FrozenLake-v1", options={"is_slippery": s}) for s in (False, True))
    assert sure.r.size < slippery.r.size
    with pytest.raises(BadInput, match="option must be one of the environment's own, got 'env'"):
        model_from("FrozenLake-v1", options={"env": 5})


def test_what_cannot_be_a_model_gets_one_line(tmp_path):
    (tmp_path / "noise.txt").write_bytes(bytes(range(128, 256)))
    (tmp_path / "typo.txt").write_text("S..G\n\nslipp = 0.1\n")
    for source, said in (
        (str(tmp_path / "noise.txt"), "must be a text map or a saved TabularMDP, got something else"),
        (str(tmp_path / "typo.txt"), "unknown option of the map 'slipp'; did you mean 'slip'?"),
        (str(tmp_path / "absent.npz"), "model must be an existing file, got"),
        ("x" * 5000, "model must be a file that can be read, got 'File name too long'"),
        ("/dev/null", "/dev/null must be a regular file, got a device"),
        ("volatil", "unknown model 'volatil'; did you mean 'volatile'?"),
    ):
        with pytest.raises(BadInput, match=r"^[^\n]*$") as caught:
            model_from(source)
        assert said in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every file")
def test_a_file_that_cannot_be_read_gets_one_line(tmp_path):
    (tmp_path / "secret.txt").write_text("S.G")
    (tmp_path / "secret.txt").chmod(0)
    with pytest.raises(BadInput, match="model must be a file that can be read, got 'Permission denied'"):
        model_from(str(tmp_path / "secret.txt"))
