"""Fixtures of the controller's tests: processes that end with the test."""
import pytest

import controlled


@pytest.fixture
def processes(work):
    processes = controlled.Processes(work)
    yield processes
    processes.end()
