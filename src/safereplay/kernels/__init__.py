"""The compiled core.

    rng, tree, memory, step, loop   a generator, a sum tree, a memory of outcomes, an iteration, and the loop over it
    wide, device                    the sum tree and the loop for a GPU
    sweep, episodes                 value iteration in place, and episodes of a policy, for the theory

Kernels do not check their input, allocate nothing inside a loop, and import nothing from the rest of the package.
Public classes do the checks. Every function is plain Python as well: with ``NUMBA_DISABLE_JIT=1`` the same source
runs uncompiled, and tests compare both.
"""
