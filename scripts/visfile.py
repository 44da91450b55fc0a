"""Reads one polarisation product of visrec's files into arrays, without pyuvdata.

As in the file, a visibility is V(a1, a2) = <conj(e_a1) e_a2>.  docs/visibilities.md explains the sign.
"""

from dataclasses import dataclass

import h5py
import numpy as np

POL_NAMES = {-5: "xx", -6: "yy", -7: "xy", -8: "yx"}
JD_UNIX_EPOCH = 2440587.5


@dataclass
class Visibilities:
    path: str
    telescope: str
    pol: str
    names: list  # antennas' names
    baselines: list  # [(a1, a2)] with a1 <= a2
    freqs_hz: np.ndarray  # [chan]
    unix_s: np.ndarray  # [time]: UNIX time of the middle of each dump
    integration_s: float
    vis: np.ma.MaskedArray  # complex [time, baseline, chan], masked where flagged
    nsamples: np.ndarray  # [time, baseline, chan]

    def index(self, a1, a2):
        """Returns the index of a baseline."""
        return self.baselines.index((a1, a2))

    def label(self, a1, a2):
        return f"{self.names[a1]} – {self.names[a2]}"


class Unreadable(Exception):
    """An error whose text says in one sentence why a file cannot be used."""


def load(path, pol="xx", dumps=slice(None)):
    """Loads one polarisation product of a file.  dumps: a slice of consecutive dumps."""
    try:
        with h5py.File(path, "r") as file:
            return _load(path, file, pol, dumps)
    except (OSError, KeyError) as error:
        raise Unreadable(f"{path}: not a UVH5 file of visrec: {error}") from error


def _load(path, file, pol, dumps):
    header, data = file["Header"], file["Data"]
    n_times, n_baselines = int(header["Ntimes"][()]), int(header["Nbls"][()])
    if n_times == 0:
        raise Unreadable(f"{path}: has no dumps")
    pols = [POL_NAMES[number] for number in header["polarization_array"]]
    if pol not in pols:
        raise Unreadable(f"{path}: has no polarisation product {pol}, only {', '.join(pols)}")
    at = pols.index(pol)
    first_time, end_time, _ = dumps.indices(n_times)  # visrec may have added dumps since the counts were read
    rows = slice(first_time * n_baselines, end_time * n_baselines)
    shape = (end_time - first_time, n_baselines, -1)
    raw = data["visdata"][rows, :, at]
    vis = (raw if raw.dtype.kind == "c" else raw["r"] + 1j * raw["i"]).reshape(shape)
    flags = data["flags"][rows, :, at].reshape(shape)
    first = slice(0, n_baselines)
    return Visibilities(
        path=str(path),
        telescope=header["telescope_name"][()].decode(),
        pol=pol,
        names=[name.decode() for name in header["antenna_names"]],
        baselines=list(zip(header["ant_1_array"][first].tolist(), header["ant_2_array"][first].tolist())),
        freqs_hz=header["freq_array"][:],
        unix_s=(header["time_array"][rows][::n_baselines] - JD_UNIX_EPOCH) * 86400,
        integration_s=float(header["integration_time"][0]),
        vis=np.ma.MaskedArray(vis, flags),
        nsamples=data["nsamples"][rows, :, at].reshape(shape),
    )
