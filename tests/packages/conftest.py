import os

import pytest

from machine import Machine


@pytest.fixture(scope="session")
def machine():
    """A booted machine with the packages installed."""
    machine = Machine(os.environ["CBF_SYSTEMD_ROOT"])
    try:
        machine.boot()
    except RuntimeError as why:
        pytest.skip(str(why))
    yield machine
    machine.halt()


@pytest.fixture(autouse=True)
def all_stopped(request):
    """Leaves no unit of a test running, and none failed."""
    yield
    if "machine" in request.fixturenames:
        machine = request.getfixturevalue("machine")
        machine.run("systemctl stop gpucbf.target 'fgpu@*' 'xbgpu@*' 'visrec@*' 'beamrec@*' 'sim-*'; systemctl reset-failed; "
                    "rm -rf /run/systemd/system/*.d /etc/cbf/*; systemctl daemon-reload")
