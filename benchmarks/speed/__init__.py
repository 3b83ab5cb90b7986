"""How fast we are: beside plain Python and beside peers, and as threads, engines and models grow.

    plain      updates per second of every learner, beside a plain Python loop
    mushroom   updates per second of Q-learning, beside MushroomRL's
    tree       prioritised sampling on our sum tree, beside cpprb's
    threads    the same runs on 1, 2, ... threads
    engines    what an engine costs beyond learning
    pairs      what an update costs, and a pair takes, on models of 10² to 4·10⁶ pairs
    solving    exact solving, beside quantecon and mdpsolver
    sb3        our replay buffer beside SB3's own, alone and in DQN

Contestants take turns, so that a busy moment strikes all alike, and the machine is named with the results.
"""

from .learning import Speed as Speed
from .machine import machine as machine
from .page import page_folder as page_folder
from .page import write_page as write_page
from .report import PARTS as PARTS
from .report import BenchReport as BenchReport
from .report import left_out as left_out
from .report import run_bench as run_bench
from .sheets import FULL as FULL
from .sheets import QUICK as QUICK
from .sheets import Effort as Effort
