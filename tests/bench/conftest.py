"""The benchmarks are beside the package: their tests are in the slow suite, but for those of the command."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "bench" and item.path.name != "test_command.py":
            item.add_marker(pytest.mark.slow)
