"""Processes for work in Python that threads cannot share."""

from __future__ import annotations

import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def processes(number: int) -> ProcessPoolExecutor:
    """New Python processes. Ctrl-C reaches every process of a terminal; these leave it to the one that started them.

    A script that calls this needs ``if __name__ == "__main__"``, since each process imports it.
    """
    return ProcessPoolExecutor(number, get_context("spawn"), signal.signal, (signal.SIGINT, signal.SIG_IGN))
