"""The deep study is beside the package: its tests are in the slow suite, but for those of a study's files and pages."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "deep" and item.path.name != "test_study.py":
            item.add_marker(pytest.mark.slow)
