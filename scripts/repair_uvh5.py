#!/usr/bin/env python3
"""repair_uvh5 FILE...: repairs a recording whose visrec was killed.

Hardly any recording needs a repair.  After each dump, visrec changes the tables of the file within tens of microseconds.
If visrec is killed during this time, the file does not open: in place of HDF5's signature, the file begins with the address
of a journal, which contains all changes of the tables.  The program makes these changes and restores the signature.  A file
that opens stays unchanged.  Do not repair a file while the recording is still running.
"""
import struct
import sys

import h5py

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MAGIC = b"visrec J"


def changes(file):
    """Returns the changes (address, bytes) in the journal of a file without a signature."""
    start, = struct.unpack("<Q", file.read(8))
    file.seek(0, 2)
    if start + 16 > file.tell():
        raise OSError("not a file of visrec")
    file.seek(start)
    magic, n_bytes = struct.unpack("<8sQ", file.read(16))
    journal = file.read(n_bytes)
    if magic != MAGIC or len(journal) != n_bytes:
        raise OSError("not a file of visrec")
    at = 0
    while at < n_bytes:
        address, n_changed = struct.unpack_from("<QQ", journal, at)
        at += 16 + n_changed
        yield address, journal[at - n_changed:at]


def repair(path):
    """Repairs a file, if necessary.  Returns the number of dumps."""
    with open(path, "r+b") as file:
        is_damaged = file.read(8) != SIGNATURE
        file.seek(0)
        for address, new in list(changes(file)) if is_damaged else []:
            file.seek(address)
            file.write(new)
        if is_damaged:
            file.flush()
            file.seek(0)
            file.write(SIGNATURE)
    with h5py.File(path, "r") as file:
        return int(file["Header/Ntimes"][()])


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    failed = False
    for path in sys.argv[1:]:
        try:
            print(f"{path}: {repair(path)} dumps")
        except (OSError, KeyError, RuntimeError, struct.error) as error:
            print(f"{path}: cannot be repaired: {error}", file=sys.stderr)
            failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
