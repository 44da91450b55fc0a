"""Limits of the kernel (sysctl) that are higher while a script runs."""
import contextlib
import signal
import sys
from pathlib import Path

ROOT = Path("/proc/sys")
ENDS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def path_of(name):
    return ROOT / name.replace(".", "/")


def raise_limit(name, wanted, before):
    """A limit that may not be written stays."""
    try:
        old = int(path_of(name).read_text())
        if old < wanted:
            before[name] = old  # before the change: a signal may come at any time
            path_of(name).write_text(str(wanted))
    except (OSError, ValueError):
        pass


def restore(limits, before):
    """Restores limits that still have our value.  If another program has changed a limit meanwhile, that value stays.
    May run again, and may interrupt itself."""
    for name, old in before.items():
        with contextlib.suppress(OSError, ValueError):
            if int(path_of(name).read_text()) == limits[name]:
                path_of(name).write_text(str(old))


@contextlib.contextmanager
def raised(limits):
    """Limits, {name: value}, are at least so high within the block.  They are restored however the block ends, also by
    a signal (except SIGKILL).  A signal restores them at once, because the interrupted code may take a while to end.
    Call this on the main thread."""
    before = {}

    def end(number, _):
        restore(limits, before)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(1)

    # Signals that nohup ignores stay ignored.
    handlers = {number: signal.signal(number, end) for number in ENDS if signal.getsignal(number) != signal.SIG_IGN}
    try:
        for name, wanted in limits.items():
            raise_limit(name, wanted, before)
        yield
    finally:
        restore(limits, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
