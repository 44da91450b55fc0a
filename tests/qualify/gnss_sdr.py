"""gnss-sdr (Debian's package) acquires the satellites that dsim sends.  It is an independent judge of our codes.

numpy makes complex samples of dsim's real ones, without delay.  gnss-sdr then runs once for each satellite, and its
acquisition writes its result.  E1 is left out: gnss-sdr knows the true codes, and dsim would need them.
"""
import re
import shutil
import subprocess

import h5py
import numpy as np
from fengine import harness
from gnss_engine import FIRST_PACKET, PACKET, Band, feeds, remove, run, wrapped
from gnss_sky import Satellite
from report import Row
from test_dsim import read_capture

PROGRAM = "gnss-sdr"
CN0, NOISE = 48, 0.1
SECONDS = 0.4
DOPPLER_MAX, DOPPLER_STEP = 5000, 250  # Hz
N_DWELLS = 8  # code periods whose powers are added
FALSE_ALARM = 1e-6  # of a search
TIMEOUT_S = 120
# gnss-sdr 0.0.17 finds a code one sample late: its replica has the chip just before the next sample.  A correlation in
# numpy of the same file with a replica of the samples' own times finds it where the model has it.
LATE_SAMPLES = 1
SAMPLES_LIMIT = 1
SCALE = 100  # of a digitiser's step in the file of 16 bits
# System: band, gnss-sdr's names of the signal and its blocks, satellites in the sky, PRNs that are searched for.
L1, L5 = Band(4e6, 1575.42e6), Band(25e6, 1176.45e6)
SYSTEMS = {"L1CA": (L1, "1C", "GPS_L1_CA", 9, range(1, 33)), "L5": (L5, "L5", "GPS_L5", 4, range(1, 13))}

CONFIG = """[GNSS-SDR]
GNSS-SDR.internal_fs_sps={rate}
GNSS-SDR.use_acquisition_resampler=false
SignalSource.implementation=File_Signal_Source
SignalSource.filename=samples.dat
SignalSource.item_type=ishort
SignalSource.sampling_frequency={rate}
SignalSource.samples=0
SignalSource.repeat=false
SignalSource.enable_throttle_control=false
SignalConditioner.implementation=Signal_Conditioner
DataTypeAdapter.implementation=Ishort_To_Complex
InputFilter.implementation=Pass_Through
InputFilter.item_type=gr_complex
Resampler.implementation=Pass_Through
Resampler.item_type=gr_complex
Channels_{signal}.count=1
Channels.in_acquisition=1
Channel0.signal={signal}
Channel0.satellite={prn}
Acquisition_{signal}.implementation={acquisition}_PCPS_Acquisition
Acquisition_{signal}.item_type=gr_complex
Acquisition_{signal}.coherent_integration_time_ms=1
Acquisition_{signal}.pfa={pfa}
Acquisition_{signal}.doppler_max={doppler_max}
Acquisition_{signal}.doppler_step={doppler_step}
Acquisition_{signal}.max_dwells={n_dwells}
Acquisition_{signal}.use_CFAR_algorithm=true
Acquisition_{signal}.blocking=true
Acquisition_{signal}.dump=true
Acquisition_{signal}.dump_channel=0
Acquisition_{signal}.dump_filename=./acquired
Tracking_{signal}.implementation={blocks}_DLL_PLL_Tracking
Tracking_{signal}.item_type=gr_complex
TelemetryDecoder_{signal}.implementation={telemetry}_Telemetry_Decoder
Observables.implementation=Hybrid_Observables
PVT.implementation=RTKLIB_PVT
PVT.output_enabled=false
"""


def version():
    """None if gnss-sdr is not installed."""
    if not shutil.which(PROGRAM):
        return None
    done = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return (re.findall(r"\d+\.\d+\.\d+", done.stdout + done.stderr) or ["of an unknown version"])[0]


def make_sky(system, n, seed):
    rng = np.random.default_rng(seed)
    prns = 1 + rng.permutation(32 if system == "L1CA" else 12)[:n]
    return [Satellite(system, int(prn), CN0, rng.uniform(0, 0.002), doppler, 0.0)
            for prn, doppler in zip(prns, rng.uniform(-4500, 4500, n))]


def send(work, band, sky):
    """dsim's capture of the satellites."""
    terms = [f"gnss({part}, {s.prn}, {CN0}, {NOISE}, {band.adc_hz / 4}, {s.delay_s * band.adc_hz}, {s.doppler_hz}, 0"
             + (f", {s.prn})" if part != "L5Q" else ")") for s in sky for part in s.codes]
    n_packets = round(SECONDS * band.adc_hz / PACKET)
    run(work, "dsim", {
        "time": band.clock,
        "digitiser": {"packet_samples": PACKET, "sample_bits": 8, "duration": (n_packets + 0.5) * PACKET / band.adc_hz,
                      "period": n_packets * PACKET, "first_timestamp": FIRST_PACKET * PACKET, "dither_seed": 1},
        "signals": {"specification": f"sky = {' + '.join(terms)};\nsky + wgn({NOISE}, 1);\nsky + wgn({NOISE}, 2);\n"},
        "antennas": feeds(digitiser_id=0), "send": {"pcap_file": str(work / "in.pcap")}})


def convert(work):
    """samples.dat: the upper half of the spectrum around a quarter of the rate, as complex samples; no delay."""
    heaps = read_capture(work / "in.pcap", "239.108.0.0")
    x = np.concatenate([samples for heap, samples in heaps if samples is not None and not heap.descriptors])
    # A Hilbert transform, moved down by a quarter of the rate, of which every other sample is kept.
    spectrum = np.fft.rfft(x.astype(np.float32))
    z = np.fft.ifft(np.fft.ifftshift(spectrum[:len(x) // 2]))
    parts = np.stack([z.real, z.imag], -1)
    np.clip(np.rint(SCALE * parts), -32768, 32767).astype("<i2").tofile(work / "samples.dat")


def acquire(work, system, prn):
    """(sample, delay in samples, Doppler in Hz) of the first positive acquisition, or None."""
    band, signal, blocks, _, _ = SYSTEMS[system]
    remove(*work.glob("acquired*"))
    (work / "gnss-sdr.conf").write_text(CONFIG.format(
        rate=round(band.rate_hz), signal=signal, prn=prn, blocks=blocks, pfa=FALSE_ALARM, doppler_max=DOPPLER_MAX,
        doppler_step=DOPPLER_STEP, n_dwells=N_DWELLS, acquisition="GPS_L5i" if system == "L5" else blocks,
        telemetry=blocks))
    done = subprocess.run([PROGRAM, "--config_file=gnss-sdr.conf", "--log_dir=."], cwd=work, capture_output=True,
                          text=True, timeout=TIMEOUT_S, check=False)
    (work / "gnss-sdr.txt").write_text(done.stdout + done.stderr)
    dumps = sorted(work.glob(f"acquired*_sat_{prn}.mat"))
    if not dumps:
        raise RuntimeError(f"{PROGRAM} wrote no acquisition of PRN {prn}:\n{(done.stdout + done.stderr)[-2000:]}")
    for path in dumps:
        with h5py.File(path) as dump:
            one = {key: dump[key][()].ravel()[0] for key in ("d_positive_acq", "sample_counter", "acq_delay_samples",
                                                             "acq_doppler_hz")}
        if one["d_positive_acq"]:
            return one["sample_counter"], one["acq_delay_samples"], one["acq_doppler_hz"]
    return None


def measure(system, work, seed=1):
    """(rows, lines of a table)"""
    band, _, _, n, prns = SYSTEMS[system]
    sky = {s.prn: s for s in make_sky(system, n, seed)}
    send(work, band, list(sky.values()))
    convert(work)
    remove(work / "in.pcap")
    found = {prn: acquire(work, system, prn) for prn in prns}
    acquired = {prn: where for prn, where in found.items() if where}
    lines = ["| satellite | Doppler, gnss-sdr minus dsim | code, samples |", "|---|---|---|"]
    dopplers, codes = [0.0], [0.0]
    for prn, (sample, delay, doppler) in acquired.items():
        if prn not in sky:
            lines.append(f"| {system}-{prn} | **not in the sky** | |")
            continue
        t = (FIRST_PACKET * PACKET / 2 + float(sample) + float(delay) - LATE_SAMPLES) / band.rate_hz
        late = wrapped(sky[prn].chips(t), sky[prn].n_chips) / sky[prn].code.chip_rate * band.rate_hz
        dopplers.append(float(doppler) - sky[prn].doppler_hz)
        codes.append(late)
        lines.append(f"| {system}-{prn} | {dopplers[-1]:+.0f} Hz | {late:+.2f} |")
    n_true, n_false = len(acquired.keys() & sky.keys()), len(acquired.keys() - sky.keys())
    doppler, code = np.abs(dopplers).max(), np.abs(codes).max()
    part = f"{system} by gnss-sdr"
    return [Row(part, "satellites of dsim that gnss-sdr acquires", "all", f"{n_true} of {n}", n_true == n),
            Row(part, f"other satellites that gnss-sdr acquires, of {len(prns) - n} searched for", "0", f"{n_false}",
                n_false == 0),
            Row(part, "largest error of the Doppler, Hz", f"<= {DOPPLER_STEP}, gnss-sdr's step", f"{doppler:.0f}",
                doppler <= DOPPLER_STEP),
            Row(part, "largest error of the code phase, samples", f"<= {SAMPLES_LIMIT}", f"{code:.2f}",
                code <= SAMPLES_LIMIT)], "\n".join(lines) + "\n"
