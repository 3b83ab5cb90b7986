"""Progress, with a clock that the test holds; and when compiling is announced."""

import io
import os
import signal
import sys
import threading

import pytest
from waiting import END

import safereplay as sr
from safereplay import _progress
from safereplay._progress import Bar, Compiling, attended, shown, tell, unmoved


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still: ``clock[0]`` is the time."""
    held = [100.0]
    monkeypatch.setattr(_progress, "monotonic", lambda: held[0])
    return held


@pytest.fixture
def piped(monkeypatch, capsys):
    """What is written to standard error, which is no terminal, by a command."""
    monkeypatch.setattr(_progress, "from_command", True)
    return lambda: capsys.readouterr().err


def done_at(clock, bar, *moments):
    """Update a bar at these (seconds, done)."""
    began = clock[0]
    for seconds, done in moments:
        clock[0] = began + seconds
        bar.update(done)


def test_work_under_two_seconds_is_not_told(clock, piped):
    with Bar("learning", 100) as bar:
        done_at(clock, bar, (0.0, 0), (1.0, 50), (1.99, 99))
    assert piped() == ""


def test_where_there_is_no_terminal_each_tenth_is_a_line(clock, piped):
    with Bar("learning", 100) as bar:
        done_at(clock, bar, (2.0, 20), (5.0, 29), (6.0, 30), (9.0, 55))
    assert piped() == " 20%  learning\n 30%  learning\n 55%  learning\n"


def test_lines_are_two_seconds_apart_at_least_and_a_minute_at_most(clock, piped):
    with Bar("learning", 100) as bar:
        done_at(clock, bar, (2.0, 20), (3.0, 30), (3.9, 40), (4.0, 50), (63.9, 51), (64.0, 51))
        bar.update(52, "judging")
    assert piped() == " 20%  learning\n 50%  learning\n 51%  learning\n"


def test_a_line_has_the_latest_label(clock, piped):
    with Bar("comparing", 3) as bar:
        clock[0] += 2.0
        bar.update(1, "cliff: replay")
    assert piped() == " 33%  cliff: replay\n"


@pytest.mark.parametrize(("quiet", "from_command"), [(True, True), (False, False)])
def test_no_line_is_written_when_quiet_or_in_a_program_that_uses_the_library(
    clock, piped, monkeypatch, quiet, from_command
):
    monkeypatch.setattr(_progress, "from_command", from_command)
    with Bar("learning", 100, quiet) as bar:
        done_at(clock, bar, (10.0, 50))
    assert piped() == ""


@pytest.mark.parametrize("columns", [40, 100])
def test_a_terminal_has_a_bar_that_fits(clock, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with Bar("learning", 100) as bar:
        done_at(clock, bar, (1.0, 10))
        assert screen.getvalue() == ""
        done_at(clock, bar, (2.0, 50))
    assert "learning" in screen.getvalue()
    assert "50%" in screen.getvalue()
    assert ("left" in screen.getvalue()) == (columns == 100)


def test_compiling_is_one_line_where_there_is_no_terminal(piped):
    compiling = Compiling()
    for _ in range(3):  # three functions, the second for the first
        compiling.begin()
        compiling.begin()
        compiling.end()
        compiling.end()
    assert piped() == "compiling: this is done once, and may take a minute\n"


def test_compiling_is_shown_in_place_on_a_terminal_and_leaves_nothing(monkeypatch):
    screen, compiling = Terminal(), Compiling()
    monkeypatch.setattr(sys, "stderr", screen)
    compiling.begin()
    compiling.begin()
    compiling.end()
    assert screen.getvalue() == "compiling…"
    compiling.end()
    assert screen.getvalue() == "compiling…\r\x1b[K"


def test_while_there_is_a_bar_compiling_is_part_of_its_label(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    screen, compiling = Terminal(), Compiling()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(_progress, "compiling", compiling)
    with Bar("learning", 100) as bar:
        compiling.begin()
        done_at(clock, bar, (2.0, 0))
        assert screen.getvalue().startswith("compiling…\r\x1b[K")  # gives way to the bar
        compiling.end()
        compiling.begin()
    assert screen.getvalue().count("compiling…") == 1
    assert "learning: compiling" in screen.getvalue()


@pytest.mark.whole
def test_numba_is_heard_when_it_compiles_and_not_when_it_finds_it_compiled(in_new_process, tmp_path):
    """The function is in a file of its own, kept on disk by numba: the second process finds it."""
    (tmp_path / "added.py").write_text(
        "from numba import njit\n@njit(cache=True)\ndef added(x, y):\n    return x + y\n"
    )
    script = (
        "import sys\nfrom safereplay import _progress\n"
        "sys.stderr = sys.stdout\n_progress.announce_compiling()\n_progress.announce_compiling()\n"
        "from added import added\nprint(added(1, 2), added(3, 4), added(0.5, 1.0))"
    )
    paths = {"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}", "NUMBA_CACHE_DIR": str(tmp_path)}
    first, second = (in_new_process(script, **paths) for _ in range(2))
    assert first == "compiling: this is done once, and may take a minute\n3 7 1.5\n"
    assert second == "3 7 1.5\n"


def test_only_commands_announce(monkeypatch, capsys):
    from safereplay.cli import run

    heard = []
    monkeypatch.setattr(_progress, "announce_compiling", lambda: heard.append("announced"))
    assert run(["learn", "volatile", "--episodes", "10", "--seeds", "1"]) == 0
    assert heard == []
    monkeypatch.setattr(_progress, "from_command", True)
    assert run(["learn", "--help"]) == 0
    assert heard == []
    assert run(["learn", "volatile", "--episodes", "10", "--seeds", "1"]) == 0
    assert heard == ["announced"]


# -- one bar for a block ------------------------------------------------------------------------------------------------


def test_functions_called_in_a_block_move_its_bar_and_never_back(clock, piped):
    with shown("solving"):
        for seconds, share in ((3.0, 0.3), (3.0, 0.1), (3.0, None), (3.0, 0.5), (3.0, 7.0)):
            clock[0] += seconds
            tell(share)
    assert piped() == " 30%  solving\n 50%  solving\n100%  solving\n"


def test_a_block_inside_another_has_no_bar_of_its_own(clock, piped):
    with shown("outer"):
        clock[0] += 3.0
        with shown("inner"):
            tell(0.4)
        with unmoved():
            clock[0] += 3.0
            tell(0.9)
    tell(1.0)
    assert piped() == " 40%  outer\n"


def test_quiet_is_quiet(clock, piped):
    with shown("solving", quiet=True):
        clock[0] += 3.0
        tell(0.5)
    assert piped() == ""


def test_work_in_another_thread_gives_its_result_or_its_error():
    assert attended(threading.current_thread) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        attended(lambda: 1 // 0)


def test_ctrl_c_ends_the_wait_for_work_that_goes_on():
    go_on, before = threading.Event(), signal.signal(signal.SIGINT, signal.default_int_handler)

    def endless():
        os.kill(os.getpid(), signal.SIGINT)
        go_on.wait(END)

    try:
        with pytest.raises(KeyboardInterrupt):
            attended(endless)
    finally:
        signal.signal(signal.SIGINT, before)
        go_on.set()


@pytest.mark.parametrize(
    ("work", "label"),
    [
        (lambda mdp, quiet: sr.fixed_point(mdp, sr.VarianceReplay(1.0), quiet=quiet), "fixed point"),
        (lambda mdp, quiet: sr.fixed_point(mdp, sr.ReturnReplay(1.0), quiet=quiet), "fixed point"),
        (lambda mdp, quiet: sr.exact(mdp, sr.QLearning(), quiet=quiet), "exact limit"),
        (lambda mdp, quiet: sr.evaluate(mdp, [2] * mdp.n_states, quiet=quiet), "evaluating: harm"),
    ],
)
def test_exact_work_is_told(monkeypatch, piped, work, label):
    """With a clock on which each look takes ten seconds."""
    mdp, ticks = sr.grids.from_map("\n".join(["." * 20] * 19 + ["." * 19 + "G"]), slip=0.1), iter(range(0, 10**9, 10))
    monkeypatch.setattr(_progress, "monotonic", lambda: float(next(ticks)))
    work(mdp, True)
    assert piped() == ""
    work(mdp, False)
    assert label in piped()
