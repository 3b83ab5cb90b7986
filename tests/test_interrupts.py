import os
import signal
import threading

import pytest
from waiting import END

from safereplay._progress import ctrl_c_afterwards


@pytest.fixture
def usual():
    """Python's own handler, also where a shell started the tests in the background, which has Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def work(done):
    with ctrl_c_afterwards():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("the rest of the block")
    done.append("what follows the block")


@pytest.mark.usefixtures("usual")
def test_ctrl_c_strikes_when_the_block_ends_and_not_before():
    done = []
    with pytest.raises(KeyboardInterrupt):
        work(done)
    assert done == ["the rest of the block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("usual")
def test_without_ctrl_c_an_error_is_raised_as_it_is():
    with pytest.raises(ZeroDivisionError), ctrl_c_afterwards():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_ones_own_is_left_alone():
    heard, done = [], []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append("mine"))
    work(done)
    signal.signal(signal.SIGINT, before)
    assert heard == ["mine"]
    assert len(done) == 2


def test_other_threads_are_left_alone():
    done = []

    def inside():
        with ctrl_c_afterwards():
            done.append(threading.current_thread())

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join(END)
    assert done == [thread]
