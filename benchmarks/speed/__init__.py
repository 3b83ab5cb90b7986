"""Speed: compared with plain Python and other libraries, and over threads, engines and sizes of models.

    plain      updates per second of every learner, compared with a plain Python loop
    c          updates per second of the compiled loop, compared with the same by hand in C
    mushroom   updates per second of Q-learning, compared with MushroomRL
    tree       prioritised sampling, compared with cpprb
    threads    the same runs on 1, 2, ... threads
    engines    the overhead of engines
    pairs      time per update and bytes per pair on models of 10² to 4·10⁶ pairs
    solving    exact solving, compared with quantecon and mdpsolver
    sb3        the shaped replay buffer compared with SB3's, alone and in DQN
    jax        buffers in JAX compared with flashbax's, and DQNs in one program with SB3's

Contestants alternate, so that a busy moment affects all, and the results name the machine.
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
