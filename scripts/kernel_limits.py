"""Raises limits of the Linux kernel (sysctl) while a script runs."""
import contextlib
import signal
import sys
from pathlib import Path

ROOT = Path("/proc/sys")
ENDS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def path_of(name):
    return ROOT / name.replace(".", "/")


def raise_limit(name, wanted, before):
    """Raises a limit to 'wanted' if this process may change the limit.  Stores the old value in 'before'."""
    try:
        old = int(path_of(name).read_text())
        if old < wanted:
            before[name] = old  # the old value is stored before the change, because a signal may come at any time
            path_of(name).write_text(str(wanted))
    except (OSError, ValueError):
        pass


def restore(limits, before):
    """Restores the limits that still have our value.  A limit that another program has changed meanwhile stays.  This
    function may run twice, and a call (in a signal handler) may interrupt another call."""
    for name, old in before.items():
        with contextlib.suppress(OSError, ValueError):
            if int(path_of(name).read_text()) == limits[name]:
                path_of(name).write_text(str(old))


@contextlib.contextmanager
def raised(limits):
    """Raises limits for the duration of a 'with' block.  'limits' is {name: least value}.  The old limits are
    restored when the block ends, also after an exception or a signal (except SIGKILL).  A signal restores the old
    limits at once, because the interrupted code may take a while to end.  Use this function on the main thread."""
    before = {}

    def end(number, _):
        restore(limits, before)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(1)

    # A signal that is already ignored (nohup ignores SIGHUP) stays ignored.
    handlers = {number: signal.signal(number, end) for number in ENDS if signal.getsignal(number) != signal.SIG_IGN}
    try:
        for name, wanted in limits.items():
            raise_limit(name, wanted, before)
        yield
    finally:
        restore(limits, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
