"""Sizes and names that pictures show, from where the programs have them: example files with their defaults, headers, and
the lists of metrics.  A name that the code has no longer is an error, so no picture keeps such a name."""
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def source(path):
    return (ROOT / path).read_text()


def defaults(program):
    """{"section.key": value} of config/PROGRAM.yaml: as given, or the default behind '#'.  A list gives its last item."""
    found, section = {}, None
    for line in source(f"config/{program}.yaml").splitlines():
        if match := re.match(r"(\w+):$", line):
            section = match[1]
        elif match := re.match(r" +(#?)(?:- )?(#?)(\w+): (.+)$", line):
            is_default = bool(match[1] or match[2])
            if match[4] != "(required)" and (not is_default or f"{section}.{match[3]}" not in found):
                found[f"{section}.{match[3]}"] = value_of(match[4])
    return found


def value_of(text):
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text.strip('"')


def in_source(path, *words):
    """The last of the words, all of which stand in the file."""
    for word in words:
        if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", source(path)):
            raise ValueError(f"{path} does not have {word}")
    return words[-1]


def metric(name):
    """The name, which is one of docs/reference."""
    return in_source(f"docs/reference/{name.partition('_')[0]}.txt", name)


def constant(path, name):
    """An integer that a header defines."""
    match = re.search(rf"#define {name} +\(?(?:UINT\d+_C\()?(\d+)", source(path))
    if not match:
        raise ValueError(f"{path} does not define {name}")
    return int(match[1])


def spead_ids():
    """{name of spead.h without SPEAD_: id}"""
    found = re.findall(r"^    SPEAD_(\w+) = (0x[0-9a-f]+),", source("common/net/spead.h"), re.M)
    return {name: int(value, 16) for name, value in found}


def heap_items(path, after):
    """[(name of spead.h without SPEAD_, whether the value is in the pointer)] of the items that a file gives a heap, from the
    text 'after' on."""
    items = source(path).split(after, 1)[1].split("{", 1)[1]
    items = items[:re.search(r"\}\s*[,;]\n(?!\s*[\[{])", items).start() + 1]
    found = re.findall(r"\{SPEAD_(\w+), (true|false),", items)
    if not found:
        raise ValueError(f"{path} has no items behind '{after}'")
    return [(name, immediate == "true") for name, immediate in found]


class Sizes:
    """The sizes of config/fgpu.yaml and config/xbgpu.yaml, which are a chain: times in ADC samples, lengths in bytes."""

    def __init__(self):
        f, x = defaults("fgpu"), defaults("xbgpu")
        self.f, self.x = f, x
        self.rate_hz = f["time.adc_sample_rate"]
        self.packet = f["recv.packet_samples"]
        self.packet_bytes = self.packet * f["recv.sample_bits"] // 8
        self.chunk = f["recv.chunk_samples"]
        self.chunk_bytes = self.chunk * f["recv.sample_bits"] // 8
        self.channels = f["outputs.channels"]
        self.taps = f["outputs.taps"]
        self.spectrum = 2 * self.channels  # from one spectrum to the next
        self.window = self.taps * self.spectrum
        self.spectra = f["outputs.spectra_per_heap"]
        self.batch = self.spectra * self.spectrum
        self.slice = x["recv.channels_per_substream"]
        self.substreams = self.channels // self.slice
        self.heap_bytes = self.slice * self.spectra * 2 * 2 * f["outputs.sample_bits"] // 8
        self.payload = f["send.packet_payload"]
        self.antennas = x["recv.antennas"]
        self.x_batches = x["recv.batches_per_chunk"]
        self.x_chunk = self.x_batches * self.batch
        self.x_chunk_bytes = self.x_batches * self.antennas * self.heap_bytes
        self.dump_batches = max(1, round(x["outputs.integration_time"] * self.rate_hz / self.batch))
        self.dump = self.dump_batches * self.batch
        self.baselines = self.antennas * (self.antennas + 1) // 2
        self.dump_bytes = self.slice * self.baselines * 4 * 2 * 4
        same = {"recv.channels": self.channels, "recv.samples_between_spectra": self.spectrum,
                "recv.spectra_per_heap": self.spectra,
                "time.adc_sample_rate": self.rate_hz, "recv.sample_bits": f["outputs.sample_bits"]}
        for key, value in same.items():
            if x[key] != value:
                raise ValueError(f"config/xbgpu.yaml: {key} is {x[key]}, but fgpu.yaml makes {value}")

    def time(self, samples):
        """A time in words, to three digits or so."""
        s = samples / self.rate_hz
        if s < 1e-3:
            return f"{s * 1e6:.3g} µs"
        return f"{s * 1e3:.3g} ms" if s < 0.1 else f"{s:.4f} s"


def bytes_of(n):
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n < 1024 or n % 1024 and n < 8192:
            return f"{n} {unit}"
        n = n // 1024 if n % 1024 == 0 else n / 1024
    raise ValueError(n)
