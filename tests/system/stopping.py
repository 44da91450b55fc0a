"""Stops one thread of a process and no other, through the kernel's debugging interface, as a debugger does."""
import contextlib
import ctypes
import os
import platform
import time
from pathlib import Path

SEIZE, INTERRUPT, DETACH, CONTINUE = 0x4206, 0x4207, 17, 7
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
# recvmmsg.  aarch64 has neither poll nor epoll_wait.
WAITS = {"x86_64": {7, 202, 230, 232, 271, 281, 299}, "aarch64": {98, 115, 73, 22, 243}}


def _interrupt(tid):
    _ptrace(INTERRUPT, tid)
    os.waitpid(tid, WALL)


def _waits(pid, tid):
    """Returns whether a stopped thread is in a system call in which threads wait.  Such a thread holds no lock, except
    while it waits for a second lock."""
    number = Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()[0]
    return int(number) in WAITS[platform.machine()]


@contextlib.contextmanager
def stopped(tid, waiting_pid=None):
    """The thread does not run within the block.  It may also be killed with its process.  'waiting_pid' is the thread's
    process.  If it is given, the thread is stopped only while it waits."""
    _ptrace(SEIZE, tid)
    try:
        _interrupt(tid)
        end = time.monotonic() + 10
        while waiting_pid and not _waits(waiting_pid, tid):
            assert time.monotonic() < end, f"thread {tid} never waits"
            _ptrace(CONTINUE, tid)
            time.sleep(0.003)
            _interrupt(tid)
        yield
    finally:
        try:
            _ptrace(DETACH, tid)
        except OSError:
            # Killed with its process, which does not end until whoever traces it has heard of that.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(tid, WALL)
