"""Stops one thread of a process and no other, through the kernel's debugging interface, as a debugger does."""
import contextlib
import ctypes
import os
import random
import time
from pathlib import Path

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request, tid):
    if _libc.ptrace(request, tid, None, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def threads(pid):
    """{name: tid} of the threads of a process; of several with one name, the first."""
    found = {}
    for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda t: int(t.name)):
        found.setdefault((task / "comm").read_text().strip(), int(task.name))
    return found


# Numbers of the system calls in which threads wait: poll, futex, clock_nanosleep, epoll_wait, ppoll, epoll_pwait and
# recvmmsg on x86-64; ppoll, futex, clock_nanosleep, epoll_pwait and recvmmsg on aarch64.
WAITS = {7, 202, 230, 232, 271, 281, 299} | {73, 98, 115, 22, 243}


def _seize(tid):
    _ptrace(SEIZE, tid)
    _ptrace(INTERRUPT, tid)
    os.waitpid(tid, WALL)


def _waits(pid, tid):
    """Whether a stopped thread waits in a system call.  In such a call the threads hold no lock for which others wait."""
    return int(Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()[0]) in WAITS


@contextlib.contextmanager
def stopped(tid, waiting_pid=None):
    """The thread does not run within the block.  It may also be killed with its process.  With 'waiting_pid', its
    process, the thread is stopped while it waits."""
    _seize(tid)
    end = time.monotonic() + 10
    while waiting_pid and not _waits(waiting_pid, tid):
        _ptrace(DETACH, tid)
        assert time.monotonic() < end, f"thread {tid} never waits"
        time.sleep(random.uniform(0, 0.01))
        _seize(tid)
    try:
        yield
    finally:
        try:
            _ptrace(DETACH, tid)
        except OSError:
            # Killed with its process, which does not end until whoever traces it has heard of that.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(tid, WALL)
