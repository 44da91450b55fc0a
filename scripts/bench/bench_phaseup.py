#!/usr/bin/env python3
"""bench_phaseup: measures how long phaseup takes to solve simulated visibilities on one core.

    scripts/bench/bench_phaseup.py --antennas 80 --channels 4096

Prints a row for each strength of the source and for each size of the bandpass's groups.  'correlation' is the
source's share of each input's power.
"""
import argparse
import os
import sys
import time
from pathlib import Path

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"  # before numpy is imported

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "control"), str(ROOT / "scripts")]

import numpy as np  # noqa: E402

import phaseup_search  # noqa: E402
import phaseup_solve  # noqa: E402

CHANNEL_HZ = 208984.375  # 4096 channels at 1712 MS/s
N_SPECTRA = 1e6  # 4.8 s
DELAY_S = 30e-9
DECIBEL = 3


def simulate(rng, n_ant, n_chan, correlation):
    """Returns (Data, delays [pol, ant]).  Every visibility has independent noise, which is right for weak sources."""
    turn = 2 * np.pi * CHANNEL_HZ * (np.arange(n_chan) - n_chan // 2)
    shape = (2, n_ant * (n_ant + 1) // 2, n_chan)
    vis, delays = np.empty(shape, np.complex64), rng.uniform(-DELAY_S, DELAY_S, (2, n_ant))
    for pol in range(2):
        amplitude = 10 ** (rng.uniform(-DECIBEL, DECIBEL, n_ant) / 20)
        phase = rng.uniform(-np.pi, np.pi, n_ant)[:, None] - turn * delays[pol][:, None]
        gain = (amplitude[:, None] * np.exp(1j * phase)).astype(np.complex64)
        for ant in range(n_ant):
            noise = rng.standard_normal((2, ant, n_chan), np.float32) * np.sqrt(N_SPECTRA / 2)
            noise = (noise[0] + 1j * noise[1]) * (amplitude[:ant] * amplitude[ant])[:, None]
            vis[pol, phaseup_search.row(ant)] = N_SPECTRA * correlation * gain[:ant] * gain[ant].conj() + noise
            vis[pol, phaseup_search.baseline_of(ant, ant)] = N_SPECTRA * amplitude[ant]**2
    names = [f"m{ant:03}" for ant in range(n_ant)]
    return phaseup_solve.Data(names, CHANNEL_HZ, vis, np.full(shape, N_SPECTRA, np.float32), 0, 1), delays


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--antennas", type=int, default=80)
    parser.add_argument("--channels", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3, help="the fastest round counts")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(f"{args.antennas} antennas x 2 polarisations x {args.channels} channels, seed {args.seed}")
    print(f"{'correlation':>11} {'bandpass':>8} {'wall s':>7} {'CPU s':>7} {'delay error ps':>14} "
          f"{'coherence before':>16} {'after':>7}")
    for correlation in (1e-2, 1e-3, 7e-5):
        data, delays = simulate(np.random.default_rng(args.seed), args.antennas, args.channels, correlation)
        for bandpass in (0, 1) if correlation >= 1e-3 else (0,):
            walls, cpus = [], []
            for _ in range(args.rounds):
                wall_s, cpu_s = time.perf_counter(), time.process_time()
                _, solutions = phaseup_solve.solve(data, bandpass=bandpass)
                walls.append(time.perf_counter() - wall_s)
                cpus.append(time.process_time() - cpu_s)
            found = [np.array([delay.value if delay else np.nan for delay in one.delay_s]) for one in solutions]
            away = [one - true + true[0] for one, true in zip(found, delays)]
            print(f"{correlation:>11g} {bandpass or 'lines':>8} {min(walls):>7.2f} {min(cpus):>7.2f} "
                  f"{1e12 * np.sqrt(np.nanmean(np.square(away))):>14.2f} {solutions[0].coherence_before:>16.4f} "
                  f"{solutions[0].coherence_after:>7.4f}" + (f"  unsolved: {len(solutions[0].unsolved)}" if any(
                      one.unsolved for one in solutions) else ""))


if __name__ == "__main__":
    main()
