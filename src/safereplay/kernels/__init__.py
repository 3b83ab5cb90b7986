"""The compiled core: a generator, a sum tree, a memory of outcomes, the step, and the loop over it.

Nothing here checks its input or allocates inside a loop, and nothing here imports the rest of the package:
public classes do the checking, kernels fill arrays. Every function is ordinary Python as well: with
``NUMBA_DISABLE_JIT=1`` the same source runs uncompiled, which is how tests know that both do the same.
"""
