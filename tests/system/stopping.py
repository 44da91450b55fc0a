"""Stops one thread of a process and no other, through the kernel's debugging interface, as a debugger does."""
import contextlib
import ctypes
import os
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


@contextlib.contextmanager
def stopped(tid):
    """The thread does not run within the block.  It may also be killed with its process."""
    _ptrace(SEIZE, tid)
    try:
        _ptrace(INTERRUPT, tid)
        os.waitpid(tid, WALL)
        yield
    finally:
        try:
            _ptrace(DETACH, tid)
        except OSError:
            # Killed with its process, which does not end until whoever traces it has heard of that.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(tid, WALL)
