"""Processes that are killed, stopped and restarted under a running correlator: the others carry on, and no number is
ever wrong.

CBF_KILL_ROUNDS (1) repeats the random parts.
"""
import os
import signal
import time

import pytest

import chain
from chain import Chain, Dumps, Layout

ROUNDS = int(os.environ.get("CBF_KILL_ROUNDS", "1"))
VICTIMS = ["dsim", "fgpu0", "xbgpu0", "visrec"]

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def running(daemon, work, references):
    """Makes a running chain, its layout changed by 'overrides', and a receiver that checks every dump."""
    made = []

    def start(overrides=None, names=chain.NAMES):
        layout = Layout(work, overrides)
        dumps = Dumps(layout, references)
        made.append(dumps)
        running_chain = Chain(daemon, layout)
        running_chain.start(*names)
        return running_chain, dumps

    yield start
    for dumps in made:
        dumps.receiver.stop()


def wait_survivors(running_chain, dumps, victim):
    """Those that still have input go on working: their counters rise, the dumps that can be made come."""
    after = chain.now_samples()
    if victim == "dsim":
        pass
    elif victim.startswith("fgpu"):
        survivor = 1 - int(victim[-1])
        dumps.wait_dumps(2, after, baselines=[chain.BASELINES.index((survivor, survivor))])
    elif victim.startswith("xbgpu"):
        dumps.wait_dumps(2, after, substreams=[1 - int(victim[-1])])
    else:
        dumps.wait_dumps(2, after)
    running_chain.check_alive(*running_chain.others(victim))


def check_streams(dumps):
    """Heap counts of one life of an X-engine have no gaps, no two lives share any, and the last one ended with a stop
    heap."""
    step = chain.N_SUBSTREAMS
    for substream, heaps in enumerate(dumps.heaps):
        assert heaps[-1].kind == "stop"
        assert len({h.cnt for h in heaps}) == len(heaps)
        assert all(h.cnt % step == substream for h in heaps)
        for before, after in zip(heaps, heaps[1:]):
            new_life = before.kind == "stop" or after.kind == "descriptor"
            assert after.cnt == before.cnt + step or new_life, \
                f"substream {substream}: heap {after.cnt} ({after.kind}) after {before.cnt} ({before.kind})"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_restarts(how, running, references, rng):
    """Every process in turn, in random order and at random times."""
    running_chain, dumps = running()
    dumps.wait_dumps(2, 0)
    recordings = [running_chain.recording()]
    for victim in rng.permutation(VICTIMS * ROUNDS):
        time.sleep(rng.uniform(0, chain.WINDOW / chain.RATE))
        print(f"{how.name} to {victim}")
        if how == signal.SIGKILL:
            running_chain.kill(victim)
        else:
            n_stops = [dumps.n_stops(s) for s in range(chain.N_SUBSTREAMS)]
            running_chain.terminate(victim)
            if victim == "xbgpu0":
                dumps.wait(lambda: dumps.n_stops(0) == n_stops[0] + 1, "the stop heap of xbgpu0")
        wait_survivors(running_chain, dumps, victim)
        running_chain.start(victim)
        dumps.wait_dumps(2, chain.now_samples())
        if victim == "visrec":
            recordings.append(running_chain.recording())
    n_stops = [dumps.n_stops(s) for s in range(chain.N_SUBSTREAMS)]
    running_chain.terminate(*reversed(chain.NAMES))
    dumps.wait(lambda: [dumps.n_stops(s) for s in range(chain.N_SUBSTREAMS)] == [n + 1 for n in n_stops], "stop heaps")
    check_streams(dumps)
    for path in recordings:
        windows, present = chain.check_file(path, references)
        assert present.all(axis=(1, 2)).any(), f"{path}: none of {len(windows)} dumps is complete"
