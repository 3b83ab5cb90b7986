"""The compiled core.

    rng, tree, memory, step, loop   a generator, a sum tree, a memory of outcomes, an iteration, and the loop over it
    wide, device                    the sum tree and the loop as a GPU has them
    sweep, episodes                 value iteration in place, and episodes of a policy, for the theory

Nothing here checks its input or allocates inside a loop, and nothing here imports the rest of the package:
public classes do the checking, kernels fill arrays. Every function is ordinary Python as well: with
``NUMBA_DISABLE_JIT=1`` the same source runs uncompiled, which is how tests know that both do the same.
"""
