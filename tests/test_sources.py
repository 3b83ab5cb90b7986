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
    for source, said in (
        (str(tmp_path / "noise.txt"), "must be a text map or a saved TabularMDP, got something else"),
        (str(tmp_path / "absent.npz"), "model must be an existing file, got"),
        ("x" * 5000, "model must be a file that can be read, got 'File name too long'"),
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
