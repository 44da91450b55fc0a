#!/usr/bin/env python3
"""repair_uvh5 FILE...: repairs a recording whose visrec was killed.

Hardly any recording needs a repair.  After each dump, HDF5 updates the file's tables within tens of microseconds, and
only a kill during this time damages the file.  A damaged file does not open, or its arrays differ in length.  The
program cuts the arrays to the number of dumps in the file's header, because visrec writes the header last.  A
complete file stays unchanged.  Do not repair a file while the recording is still running.
"""
import os
import struct
import sys

import h5py

SIGNATURE = b"\x89HDF\r\n\x1a\n"
# byte position, in a superblock, of the number that gives the file's end (version 0, offsets of 8 bytes)
END_OF_FILE_AT = 40


def extend_end_of_file(path):
    """Sets the file's end, as stored in the superblock, to the file's size.  HDF5 writes the superblock last, so the
    stored end may lie before the last dump.  The file may be larger than its data, because visrec reserves room for
    the next dump."""
    with open(path, "r+b") as file:
        superblock = file.read(96)
        if superblock[:8] != SIGNATURE or superblock[8] != 0 or superblock[13] != 8:
            raise OSError("not a file of visrec")
        end, = struct.unpack_from("<Q", superblock, END_OF_FILE_AT)
        size = os.fstat(file.fileno()).st_size
        if end < size:
            file.seek(END_OF_FILE_AT)
            file.write(struct.pack("<Q", size))


def cut(path):
    """Cuts all arrays to the number of dumps in the header.  Returns this number."""
    with h5py.File(path, "r+") as file:
        header = file["Header"]
        n_times, n_baselines = int(header["Ntimes"][()]), int(header["Nbls"][()])
        n_rows = n_times * n_baselines
        header["Nblts"][()] = n_rows
        for group in (header, file["Data"]):
            for dataset in group.values():
                if isinstance(dataset, h5py.Dataset) and dataset.maxshape and dataset.maxshape[0] is None:
                    if len(dataset) < n_rows:
                        raise OSError(f"{dataset.name} has {len(dataset)} rows, not {n_rows}")
                    dataset.resize(n_rows, axis=0)
                    dataset[max(n_rows - n_baselines, 0):]  # raises an error if the last dump cannot be read
    return n_times


def repair(path):
    extend_end_of_file(path)
    return cut(path)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    failed = False
    for path in sys.argv[1:]:
        try:
            print(f"{path}: {repair(path)} dumps")
        except (OSError, KeyError, RuntimeError) as error:
            print(f"{path}: cannot be repaired: {error}", file=sys.stderr)
            failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
