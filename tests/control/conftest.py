"""Fixtures of the controller's tests: processes that end with the test."""
import pytest

import control
import controlled


class Running:
    """Starts controllers, fake engines and clients of one test."""

    def __init__(self, work):
        self.work, self.started = work, []

    def _keep(self, what, end):
        self.started.append(end)
        return what

    def fakes(self, config, names=None, delay_s=0.0):
        fakes = controlled.Fakes(config, names, delay_s)
        return self._keep(fakes, fakes.kill)

    def controller(self, config):
        controller = controlled.Controller(config, self.work, f"control{len(self.started)}")
        self._keep(controller, controller.kill)
        return controller.wait_ready()

    def client(self, process):
        client = control.Client(process)
        return self._keep(client, client.close)

    def engine(self, config, name):
        """A client of an engine."""
        (engine,) = [e for e in config["engines"] if e["name"] == name]
        return self.client(controlled.Address(engine["katcp"]))

    def end(self):
        while self.started:
            self.started.pop()()


@pytest.fixture
def running(work):
    running = Running(work)
    yield running
    running.end()
