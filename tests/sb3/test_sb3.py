"""The adapter where its library is missing."""

HIDDEN = """
import sys
sys.modules["stable_baselines3"] = None  # as if it were not installed
import safereplay as sr
assert "torch" not in sys.modules
sr.Shaper(10, key=sr.ExactKey())
try:
    import safereplay.sb3
except sr.MissingExtra as error:
    print(error)
assert "torch" not in sys.modules
"""


def test_without_sb3_one_line_says_what_to_install(in_new_process):
    wanted = "safereplay.sb3 needs Stable-Baselines3; install it with: pip install 'safereplay[sb3]'\n"
    assert in_new_process(HIDDEN) == wanted
