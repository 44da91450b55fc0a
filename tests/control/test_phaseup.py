"""Tests phaseup's solution against a simulation in numpy, and its command with a file of the same simulation."""
import importlib.machinery
import importlib.util
import sys

import h5py
import numpy as np
import pytest

import harness
import phaseup_read
import phaseup_send
import phaseup_solve
import skymodel
from gnsscal_read import Unusable
from harness import SEED

PHASEUP = harness.ROOT / "control" / "phaseup"
CHANNEL_HZ = 208984.375  # 4096 channels at 1712 MS/s
SIGMAS = 6  # an error this large happens by chance once in 10^8


def observe(rng, n_ant=7, n_chan=256, n_spectra=400, correlation=0.1):
    """Returns (Truth of each polarisation, voltages of each polarisation)."""
    truth = [skymodel.random_truth(rng, n_ant) for _ in range(2)]
    return truth, [skymodel.voltages(rng, one.gain(n_chan, CHANNEL_HZ), n_spectra, correlation) for one in truth]


def wrap(phase):
    return np.angle(np.exp(1j * phase))


def deviations(truth, solution, ant, reference):
    """(delay, phase) of an antenna, each as (found - true) / error."""
    delay, phase = solution.delay_s[ant], solution.phase_rad[ant]
    return ((delay.value - truth.delay_s[ant] + truth.delay_s[reference]) / delay.error,
            wrap(phase.value - truth.phase_rad[ant] + truth.phase_rad[reference]) / phase.error)


def gain_deviations(truth, solution):
    solved = [ant for ant, gain in enumerate(solution.gain_db) if gain]
    decibel = 20 * np.log10(truth.amplitude[solved])
    return [(solution.gain_db[ant].value - true) / solution.gain_db[ant].error
            for ant, true in zip(solved, decibel - decibel.mean())]


def check_recovered(truth, solution, reference, solved):
    assert [ant for ant, delay in enumerate(solution.delay_s) if delay] == solved
    for ant in solved:
        if ant != reference:
            away = deviations(truth, solution, ant, reference)
            assert max(np.abs(away)) < SIGMAS, f"antenna {ant}, polarisation {solution.pol}: {away}"
    assert max(np.abs(gain_deviations(truth, solution))) < SIGMAS


def corrected_coherence(gain, solution, n_chan, solved):
    """Coherence of the sum of a noiseless point source's visibilities, after the correction by phaseup's phases."""
    phase = [phaseup_solve.line_phase(solution, ant, n_chan, CHANNEL_HZ) for ant in solved]
    g = gain[solved] * np.exp(-1j * np.array(phase))
    vis = np.array([g[i] * g[j].conj() for j in range(len(g)) for i in range(j)])
    return abs(vis.real.sum()) / np.abs(vis).sum()


# ---- Solution --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("correlation", [0.03, 0.7])
def test_recovers(rng, correlation):
    """Delays, phases and gains are found within their errors, and the correction reaches the required coherence."""
    truth, v = observe(rng, correlation=correlation)
    reference, solutions = phaseup_solve.solve(skymodel.data_of(v, v[0].shape[2], CHANNEL_HZ), "m002")
    assert reference == "m002"
    for one, solution in zip(truth, solutions):
        check_recovered(one, solution, 2, list(range(7)))
        assert solution.delay_s[2].value == solution.phase_rad[2].value == 0
        gain = one.gain(256, CHANNEL_HZ)
        assert corrected_coherence(gain, solution, 256, range(7)) > 0.99
        np.testing.assert_allclose(solution.level, one.amplitude, rtol=0.02)


def test_weak_source(rng):
    """Single baselines do not show the fringes of a weak source, but sums of antennas show them."""
    truth = [skymodel.random_truth(rng, 16, delay_s=1e-6) for _ in range(2)]
    data = skymodel.data_of([skymodel.voltages(rng, one.gain(128, CHANNEL_HZ), 100, 0.045) for one in truth], 100,
                            CHANNEL_HZ)
    _, solutions = phaseup_solve.solve(data, "m000")
    for one, solution in zip(truth, solutions):
        check_recovered(one, solution, 0, list(range(16)))


def test_coherence(rng):
    """The coherences before and after the correction are as computed from the visibilities, each divided by the roots
    of its inputs' powers."""
    truth, v = observe(rng, correlation=0.6, n_spectra=2000)
    _, solutions = phaseup_solve.solve(skymodel.data_of(v, 2000, CHANNEL_HZ))
    for one, of_pol, solution in zip(truth, v, solutions):
        vis = skymodel.correlate(of_pol / one.amplitude[:, None, None])
        cross = vis[[j * (j + 1) // 2 + i for j in range(7) for i in range(j)]]
        assert solution.coherence_before == pytest.approx(abs(cross.real.sum()) / np.abs(cross).sum(), abs=0.01)
        assert solution.coherence_after == pytest.approx(1, abs=0.005)
        assert 0.99 < solution.noise_coherence <= 1
        assert solution.coherence == pytest.approx(np.ones(7), abs=0.01)


def test_faults(rng):
    """A missing antenna, a dead polarisation, an input with noise alone, lost dumps, and interference."""
    truth, v = observe(rng, n_ant=9, n_chan=512, n_spectra=300)
    n_spectra = v[0].shape[2]
    v[0][6] = skymodel.noise(rng, *v[0][6].shape)  # only noise
    tones = [17, 18, 200, 401]
    for of_pol, one in zip(v, truth):  # from another direction, stronger than the receivers
        of_pol[:, tones] += (one.amplitude * np.exp(1j * np.arange(9)))[:, None, None] * 3 * skymodel.noise(
            rng, 1, 4, n_spectra)
        of_pol[:, [333]] += (one.amplitude * np.exp(2j * np.arange(9)))[:, None, None] * skymodel.noise(
            rng, 1, 1, n_spectra)
        of_pol[:, 333] *= np.sqrt(0.5)  # the power of other channels, so only the correlation shows the tone
    v[1][4] = 0  # dead
    data = skymodel.data_of(v, n_spectra, CHANNEL_HZ)
    data.n_spectra = data.n_spectra.copy()
    missing = [j * (j + 1) // 2 + i for j in range(9) for i in range(j + 1) if 2 in (i, j)]
    data.vis[:, missing] = data.n_spectra[:, missing] = 0
    half = slice(256, 512)  # one X-engine missed half of the dumps
    data.vis[:, :, half] = [skymodel.correlate(one[:, half, :150]) for one in v]
    data.vis[:, missing] = 0
    data.n_spectra[:, :, half] /= 2
    reference, (first, second) = phaseup_solve.solve(data)
    assert reference == "m000"
    assert first.unsolved == {"m002": "no data", "m006": "no fringes"}
    assert second.unsolved == {"m002": "no data", "m004": "no signal"}
    check_recovered(truth[0], first, 0, [0, 1, 3, 4, 5, 7, 8])
    check_recovered(truth[1], second, 0, [0, 1, 3, 5, 6, 7, 8])
    for solution in (first, second):
        assert solution.flagged[[*tones, 333]].all()
        assert solution.flagged.sum() < 20
        assert solution.coherence_after > 0.97


def test_reference_without_fringes(rng):
    """A reference antenna without fringes is refused if the user chose it.  Otherwise another antenna replaces it."""
    truth, v = observe(rng, n_ant=5, n_chan=64)
    v[1][0] = 0
    data = skymodel.data_of(v, v[0].shape[2], CHANNEL_HZ)
    with pytest.raises(Unusable, match="antenna m000: no signal in polarisation 1; choose another --reference"):
        phaseup_solve.solve(data, "m000")
    reference, solutions = phaseup_solve.solve(data)
    assert reference == "m001"
    check_recovered(truth[0], solutions[0], 1, [0, 1, 2, 3, 4])
    with pytest.raises(Unusable, match="there is no antenna 'x'"):
        phaseup_solve.solve(data, "x")


def test_no_source(rng):
    v = [skymodel.noise(rng, 6, 64, 100) for _ in range(2)]
    with pytest.raises(Unusable, match="no antenna has fringes in all polarisations"):
        phaseup_solve.solve(skymodel.data_of(v, 100, CHANNEL_HZ))


@pytest.mark.parametrize("n_ant, n_spectra, correlation", [(6, 100, 0.15), (6, 100, 0.7), (3, 200, 0.3), (2, 200, 0.5)])
def test_errors_are_honest(rng, n_ant, n_spectra, correlation):
    """Over many trials, the deviations have the size of the errors.  Strong sources have noise of their own.

    The mean of the squares of 80 trials has a scatter of about 0.15 with few antennas.  The errors grow with chi square
    of the line, so the mean is a little below 1.
    """
    delays, phases, gains, lines = [], [], [], []
    for _ in range(40):
        truth, v = observe(rng, n_ant, 64, n_spectra, correlation)
        _, solutions = phaseup_solve.solve(skymodel.data_of(v, n_spectra, CHANNEL_HZ), "m000")
        for one, solution in zip(truth, solutions):
            lines.append(solution.reduced_chi2)
            for ant in range(1, n_ant):
                delay, phase = deviations(one, solution, ant, 0)
                delays.append(delay)
                phases.append(phase)
            if n_ant > 2:
                gains += gain_deviations(one, solution)
    assert 0.85 < np.mean(lines) < 1.15, "the scatter of the groups' phases is not the expected scatter"
    for name, found in (("delay", delays), ("phase", phases), ("gain", gains)):
        if found:
            chi2 = np.mean(np.square(found))
            assert 0.55 < chi2 < 1.5, f"{name}: mean square deviation {chi2:.2f}, CBF_SEED={SEED}"
            assert abs(np.mean(found)) < 0.4, f"{name}: biased"


def test_bandpass(rng):
    """Phases that differ from a line are found for each group of channels, and are not found without --bandpass."""
    n_chan, size = 256, 4
    truth, _ = observe(rng, n_ant=6, n_chan=2)
    ripple = 0.4 * np.sin(2 * np.pi * (np.arange(n_chan) // size * size) / 64 + np.arange(6)[:, None])
    gains = [one.gain(n_chan, CHANNEL_HZ) * np.exp(1j * ripple) for one in truth]
    data = skymodel.data_of([skymodel.voltages(rng, gain, 500, 0.4) for gain in gains], 500, CHANNEL_HZ)
    _, lines = phaseup_solve.solve(data)
    _, found = phaseup_solve.solve(data, bandpass=size)
    for gain, line, one in zip(gains, lines, found):
        assert line.reduced_chi2 > 5
        assert corrected_coherence(gain, line, n_chan, range(6)) < 0.95
        assert corrected_coherence(gain, one, n_chan, range(6)) > 0.998
        assert one.coherence_after > line.coherence_after + 0.05
    with pytest.raises(Unusable, match="3 channels do not divide"):
        phaseup_solve.solve(data, bandpass=3)
    weak = skymodel.data_of([skymodel.voltages(rng, gain, 50, 0.1) for gain in gains], 50, CHANNEL_HZ)
    with pytest.raises(Unusable, match="have errors of"):
        phaseup_solve.solve(weak, bandpass=1)


def test_amplitudes(rng):
    """--amplitudes gives equal responses, the same mean power, and limited factors."""
    truth, v = observe(rng, correlation=0.5, n_spectra=1000)
    data = skymodel.data_of(v, 1000, CHANNEL_HZ)
    _, solutions = phaseup_solve.solve(data)
    labels = [[name + letter for letter in "vh"] for name in data.names]
    plain = phaseup_send.corrections(data, labels, solutions)
    equal = phaseup_send.corrections(data, labels, solutions, amplitudes=True)
    for pol, one in enumerate(truth):
        factors = np.array([np.abs(equal[labels[ant][pol]]).mean() for ant in range(7)])
        level = one.amplitude * factors
        assert level.std() / level.mean() < 0.02
        assert np.mean(level**2) == pytest.approx(np.mean(one.amplitude**2), rel=0.02)
        for ant in range(7):
            np.testing.assert_allclose(np.abs(plain[labels[ant][pol]]), 1, rtol=1e-6)
    truth[0].amplitude[3] /= 8
    v[0][3] /= 8
    data = skymodel.data_of(v, 1000, CHANNEL_HZ)
    _, solutions = phaseup_solve.solve(data)
    limited = phaseup_send.corrections(data, labels, solutions, amplitudes=True)
    assert np.abs(limited["m003v"]).max() == pytest.approx(phaseup_send.AMPLITUDE_LIMIT)


# ---- Files -----------------------------------------------------------------------------------------------------------


def write_uvh5(path, data, n_dumps, integration_s, flagged=()):
    """Writes a file like visrec's, with conj(e_a1) e_a2, and equal dumps.  flagged: numbers of flagged dumps."""
    n_ant, n_chan = len(data.names), data.n_chan
    pairs = [(i, j) for j in range(n_ant) for i in range(j + 1)]
    n_rows = n_dumps * len(pairs)
    values = np.zeros((n_rows, n_chan, 4), np.complex128)
    values[:, :, 0] = np.tile(data.vis[0].conj(), (n_dumps, 1))
    values[:, :, 1] = np.tile(data.vis[1].conj(), (n_dumps, 1))
    flags = np.zeros(values.shape, bool)
    for dump in flagged:
        rows = slice(dump * len(pairs), (dump + 1) * len(pairs))
        flags[rows], values[rows] = True, 1e9
    with h5py.File(path, "w") as file:
        header = file.create_group("Header")
        header["Ntimes"], header["Nbls"], header["telescope_name"] = n_dumps, len(pairs), b"test"
        header["polarization_array"] = [-5, -6, -7, -8]
        header["antenna_names"] = [name.encode() for name in data.names]
        header["ant_1_array"] = np.tile([i for i, _ in pairs], n_dumps)
        header["ant_2_array"] = np.tile([j for _, j in pairs], n_dumps)
        header["freq_array"] = 1e9 + CHANNEL_HZ * np.arange(n_chan)
        middle_s = 1.7e9 + np.repeat(np.arange(n_dumps) + 0.5, len(pairs)) * integration_s
        header["time_array"] = 2440587.5 + middle_s / 86400
        header["integration_time"] = np.full(n_rows, integration_s)
        file["Data/visdata"], file["Data/flags"] = values, flags
        file["Data/nsamples"] = np.where(flags, 0, 1).astype("f4")


@pytest.fixture
def phaseup(monkeypatch, capsys):
    """phaseup(arguments): runs the program in this process.  Returns its output and its error output."""
    loader = importlib.machinery.SourceFileLoader("phaseup_program", str(PHASEUP))
    program = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(program)

    def run(*args, code=0):
        monkeypatch.setattr(sys, "argv", ["phaseup", *map(str, args)])
        capsys.readouterr()
        ended, said = program.main(), capsys.readouterr()
        assert ended == code, said
        return said
    return run


def test_file(rng, work, phaseup):
    """A UVH5 file gives the same sums as the arrays.  Flagged dumps do not count.  --dumps takes the last dumps."""
    truth, v = observe(rng, n_ant=4, n_chan=64)
    one = skymodel.data_of(v, v[0].shape[2], CHANNEL_HZ)
    path = work / "a.uvh5"
    write_uvh5(path, one, 5, v[0].shape[2] / CHANNEL_HZ, flagged=(1, 4))
    data = phaseup_read.read_file(path)
    np.testing.assert_allclose(data.vis, 3 * one.vis, rtol=1e-5)
    np.testing.assert_allclose(data.n_spectra, 3 * one.n_spectra, rtol=1e-5)
    assert data.channel_hz == pytest.approx(CHANNEL_HZ, rel=1e-9)
    np.testing.assert_allclose(phaseup_read.read_file(path, 2).vis, one.vis, rtol=1e-5)
    said = phaseup("--file", path, "--dry-run", "--reference", "m001").out
    rows = {(row.split()[0], int(row.split()[1])): row.split() for row in said.splitlines() if row[:2] == "m0"}
    for ant in range(4):
        for pol in range(2):
            true_ns = 1e9 * (truth[pol].delay_s[ant] - truth[pol].delay_s[1])
            row = rows[f"m{ant:03}", pol]
            assert float(row[2]) == pytest.approx(true_ns, abs=SIGMAS * 2 * max(float(row[4]), 1e-3)), said


def test_refusals(work, phaseup):
    for args, why in (((), "--interface"), (("--file", "x"), "CONFIG is missing"),
                      (("--file", work / "none", "--dry-run"), "not a UVH5 file"),
                      (("c.yaml", "--file", "x", "--verify"), "--verify needs the live stream"),
                      (("c.yaml", "--file", "x", "--as-delays", "--beams"), "--as-delays excludes"),
                      (("/none.yaml", "--file", "x"), "cannot be read")):
        said = phaseup(*args, code=2).err
        assert said.startswith("phaseup: ") and said.count("\n") == 1 and why in said, said
