"""Assigns antennas, substreams and addresses to the engines of an array, and computes the load on each host.

The order of the file determines everything.  So the same file always gives the same plan (docs/array.md).
"""
import ipaddress
import math
from dataclasses import dataclass, field

from array_file import Section, nearest

N_POLS = 2
FRAME_BYTES = 66  # size of a packet's headers: Ethernet (with checksum, preamble and gap), IPv4 and UDP
SPEAD_BYTES = 8 * 5  # size of a packet's SPEAD header and of the items that every packet has
DIGITISER_ITEMS, F_ITEMS, X_ITEMS, BEAM_ITEMS, GNSS_ITEMS = 4, 4, 3, 4, 3
POWER_ITEMS = {"float32": 5, "uint8": 7}  # number of items in a packet of detected beams, by format
GIB = 1 << 30
PROCESS_BYTES = 64 << 20  # memory for code, stacks and sockets; no key sets this size
HUGE_PAGE_BYTES = 2 << 20
BEAM_BUFFERS = 8, 64  # least and largest number of an xbgpu's output buffers for beams
BEAM_BUFFERS_S = 0.05  # duration of the data in all buffers together, within the limits BEAM_BUFFERS
BEAM_MODELS, STEERING_BYTES = 8, 40  # XBGPU_BEAM_MODELS; size of an antenna's struct beam_steering
GNSS_CARRIERS_HZ = {"L1CA": 1575.42e6, "E1B": 1575.42e6, "E1C": 1575.42e6, "L5I": 1176.45e6, "L5Q": 1176.45e6}
GNSS_PERIODS_S = {"L1CA": 0.001, "E1B": 0.004, "E1C": 0.004, "L5I": 0.001, "L5Q": 0.001}  # of the codes
GNSS_CHIPS = {"L1CA": 1023, "E1B": 4092, "E1C": 4092, "L5I": 10230, "L5Q": 10230}
GNSS_TABLE_BYTES = {"L1CA": 1023, "E1B": 12 * 4092, "E1C": 12 * 4092, "L5I": 10230, "L5Q": 10230}
# Sizes in bytes: a record in a heap; a piece of an integration with its sums; the state of a satellite.
GNSS_RECORD_BYTES, GNSS_PIECE_BYTES, GNSS_FOLLOWED_BYTES = 184, 152, 3 << 10
GNSS_BUFFERS, GNSS_TRANSFORMS = 4, 32
RECEIVER_BYTES = 14 << 20  # memory that a receive thread needs for a batch of packets, in whole huge pages
FLOWS = ("recv", "send")
N_CPUS = 4096
MAC_BITS = 0x7FFFFF  # mask of the bits that an IPv4 multicast address shares with its Ethernet address


@dataclass
class Engine:
    """One process: its assignment and its load."""

    name: str
    kind: str
    host: Section
    given: Section  # the engine's entry in array.yaml
    index: int  # number of the engine on its host, from 0
    interface: Section
    home: Section = None  # the host that has the engine in array.yaml; 'host' is a spare if the engine has moved
    gpu: str = "auto"
    antennas: list = field(default_factory=list)  # fgpu: [(feng_id, Section)]
    stream: Section = None  # xbgpu: the item of f_outputs whose stream the engine receives
    substream: int = 0  # xbgpu
    in_gbps: float = 0.0
    out_gbps: float = 0.0
    memory_bytes: float = 0.0  # of the host
    threads: int = 0
    flow_threads: dict = field(default_factory=dict)  # "recv", "send" -> number of threads
    cpus: dict = field(default_factory=dict)  # "recv", "send" -> [CPU of each thread], if the file has 'cpus'
    service: str = None  # name in a Kubernetes cluster (array_kubernetes.py); None without a cluster

    @property
    def on_cpu(self):
        return self.gpu == "cpu"

    def carries(self):
        if self.kind == "fgpu":
            names = [antenna["name"] for _, antenna in self.antennas]
            return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]} ({len(names)})"
        width = self.stream["channels"] // self.stream["substreams"]
        first = self.substream * width
        return f"{self.stream['name']}: channels {first} to {first + width - 1}"


def made_of(array, section, stream):
    """Returns the items of 'section' (x_outputs, beams or detected) that X-engines make from a stream."""
    return [output for output in array[section] if output["stream"] == stream["name"]]


@dataclass
class Plan:
    array: Section
    engines: list = field(default_factory=list)
    f_groups: dict = field(default_factory=dict)  # stream of f_outputs -> [address of each substream]
    x_groups: dict = field(default_factory=dict)  # item of x_outputs -> [address of each substream]
    beam_groups: dict = field(default_factory=dict)  # item of beams or detected -> [address of each substream]
    gnss_addresses: dict = field(default_factory=dict)  # stream of gnss -> address, the same for all antennas
    recorders: list = field(default_factory=list)  # [array_recorder.Recorder or .BeamRecorder]
    controller: object = None  # array_control.Controller
    moves: dict = field(default_factory=dict)  # name of a host -> name of the spare that runs the host's programs

    def made_of(self, section, stream):
        return made_of(self.array, section, stream)

    def stream(self, output):
        return next(s for s in self.array["f_outputs"] if s["name"] == output["stream"])

    def on(self, host):
        return [engine for engine in self.engines if engine.host is host]

    def place(self, home):
        """Returns the host that runs the programs of the host 'home': a spare if they have moved."""
        name = self.moves.get(home["name"], home["name"])
        return next(host for host in self.array["hosts"] if host["name"] == name)

    def programs_of(self, home):
        """Returns the engines and recorders that array.yaml places on a host."""
        return [process for process in self.engines + self.recorders if process.home is home]


# ---- Addresses -------------------------------------------------------------------------------------------------------


def parse_feed(text):
    """Returns [(address as a number, port)] of one endpoint, or None."""
    host, _, port = text.strip().partition(":")
    base, plus, extra = host.partition("+")
    try:
        first, n = int(ipaddress.IPv4Address(base)), int(extra) if plus else 0
        port = int(port) if port else 7148
    except ValueError:
        return None
    return [(first + i, port) for i in range(n + 1)] if 0 <= n < 4096 and 0 < port < 65536 else None


def multicast_range(array, faults):
    """The range from which addresses are assigned, or None."""
    section = array["multicast"]
    mark, text = section.mark_at("range"), section["range"]
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        faults.add(mark, f"multicast.range must be a.b.c.d/bits: {error}")
        return None
    if not network.is_multicast:
        faults.add(mark, f"multicast.range must be within 224.0.0.0/4, not {text}")
        return None
    if int(network[0]) & MAC_BITS < 256:
        faults.add(mark, f"multicast.range {text} has Ethernet addresses of 224.0.0.0/24, which switches send to every "
                         f"port: begin the range at least 256 addresses later")
        return None
    return network


def span(addresses):
    """The lowest and the highest address, as text."""
    first, last = ipaddress.IPv4Address(min(addresses)), ipaddress.IPv4Address(max(addresses))
    return str(first) if first == last else f"{first} to {last}"


def check_feeds(array, network, faults):
    """Checks that each address belongs to one input, and that no address lies in the range for the streams."""
    owners, twice, inside = {}, {}, []
    dealt = range(int(network[0]) & MAC_BITS, (int(network[-1]) & MAC_BITS) + 1) if network else ()
    for antenna in array["antennas"]:
        for pol in ("pol0", "pol1"):
            if pol not in antenna.given:
                continue
            who, mark = f"{antenna['name']} {pol}", antenna.mark_at(pol)
            for text in [part for value in antenna[pol] for part in value.split(",")]:
                feed = parse_feed(text)
                if feed is None:
                    faults.add(mark, f"\"{text}\" is not an endpoint of the form a.b.c.d[+n][:port]")
                for address, port in feed or []:
                    owner = owners.setdefault((address, port), who)
                    if owner != who:
                        twice.setdefault((who, owner, port), (mark, []))[1].append(address)
                    if ipaddress.IPv4Address(address).is_multicast and address & MAC_BITS in dealt:
                        inside.append((address, who, mark))
    for (_, owner, port), (mark, addresses) in twice.items():
        name = f"the address {span(addresses)}:{port} belongs" if len(addresses) == 1 else \
            f"the addresses {span(addresses)}, port {port}, belong"
        faults.add(mark, f"{name} to {owner} already")
    if inside:
        first, last = min(inside, key=lambda feed: feed[0]), max(inside, key=lambda feed: feed[0])
        who = first[1] if first[1] == last[1] else f"{first[1]} to {last[1]}"
        feeds = f"the address {span([first[0]])} of a digitiser ({who})" if len(inside) == 1 else \
            f"{len(inside)} addresses of digitisers, {span([first[0], last[0]])} ({who}),"
        mark = inside[0][2] if len(inside) == 1 else array["multicast"].mark_at("range")
        faults.add(mark, f"{feeds} and multicast.range {network} overlap, or their Ethernet addresses (the last 23 bits) do: "
                         f"keep them apart")


def deal_block(network, at, end, n):
    """Assigns 'n' consecutive addresses in [at, end).  The size of their block is a power of two.  The block begins at
    a multiple of its size.

    Returns the addresses and the place where the next block may begin; None if there is no room.
    """
    size = 1 << (n - 1).bit_length()
    at = (at + size - 1) // size * size
    if at + size > end:
        return None, at
    return [str(ipaddress.IPv4Address(at + i)) for i in range(n)], at + size


def deal_addresses(plan, network, faults):
    """Assigns the addresses of all streams.  In the first half of the range, F-engines' streams go up from the start, and
    detected beams go down from the end.  In the second half, visibilities go up from the start, sums of satellites go
    up from the middle, and voltage beams go down from the end.  So an item added at the end of a list moves no other
    address."""
    first, middle, end = int(network[0]), int(network[0]) + network.num_addresses // 2, int(network[-1]) + 1
    gnss, n_gnss = end - network.num_addresses // 4, len(plan.array["gnss"])
    blocks = [(plan.f_groups, output, output["substreams"], 0) for output in plan.array["f_outputs"]]
    blocks += [(plan.x_groups, output, plan.stream(output)["substreams"], 1) for output in plan.array["x_outputs"]]
    at, ends = [first, middle], [middle, end]

    def no_room(name, n, half):
        faults.add(plan.array["multicast"].mark_at("range"), f"multicast.range {network} has no room for the {n} addresses "
                   f"of {name} in its {('first', 'second')[half]} half")

    for groups, output, n, half in blocks:
        addresses, at[half] = deal_block(network, at[half], gnss if half and n_gnss else ends[half], n)
        if addresses is None:
            return no_room(output["name"], n, half)
        groups[output["name"]] = addresses
    for i, stream in enumerate(plan.array["gnss"]):
        at[1] = gnss + i + 1
        if at[1] > end:
            return no_room(stream["name"], 1, 1)
        plan.gnss_addresses[stream["name"]] = str(ipaddress.IPv4Address(gnss + i))
    for beam, half in [(beam, 1) for beam in plan.array["beams"]] + [(stream, 0) for stream in plan.array["detected"]]:
        n = plan.stream(beam)["substreams"]
        size = 1 << (n - 1).bit_length()
        ends[half] = (ends[half] - size) // size * size
        if ends[half] < at[half]:
            return no_room(beam["name"], n, half)
        plan.beam_groups[beam["name"]] = [str(ipaddress.IPv4Address(ends[half] + i)) for i in range(n)]


# ---- Engines and their work ------------------------------------------------------------------------------------------


def check_unique(items, what, faults, key="name"):
    seen = set()
    for item in items:
        if item[key] in seen:
            faults.add(item.mark_at(key), f"two {what} are called {item[key]}")
        seen.add(item[key])


def check_outputs(array, faults):
    names = [output["name"] for output in array["f_outputs"]]
    for output in array["f_outputs"]:
        n, n_chan = output["substreams"], output["channels"]
        if n & (n - 1) or n > n_chan:
            faults.add(output.mark_at("substreams"),
                       f"substreams of {output['name']} must be a power of two, at most {n_chan}, not {n}")
        if output["kind"] == "narrowband" and "decimation" not in output.given:
            faults.add(output.mark, f"output {output['name']} is narrowband and needs a decimation")
    for output in array["x_outputs"] + array["beams"] + array["detected"]:
        if output["stream"] not in names:
            meant = nearest(output["stream"], names)
            faults.add(output.mark_at("stream"), f"there is no output '{output['stream']}' in f_outputs"
                       + (f"; did you mean '{meant}'?" if meant else f"; there are {', '.join(names)}"))
    used = {output["stream"] for output in array["x_outputs"]}
    for output in array["f_outputs"]:
        if output["name"] not in used:
            faults.add(output.mark, f"no output of x_outputs has stream: {output['name']}, so its X-engines would "
                                    f"have nothing to send")


def check_hosts(array, faults):
    addresses = {}
    for host in array["hosts"]:
        check_unique(host["interfaces"], f"interfaces of {host['name']}", faults)
        try:
            address = ipaddress.IPv4Address(host["address"])
            other = addresses.setdefault(address, host["name"])
            if other != host["name"]:
                faults.add(host.mark_at("address"), f"{address} is the address of {other} already")
        except ValueError:
            faults.add(host.mark_at("address"), f"address of {host['name']} must be a.b.c.d, not \"{host['address']}\"")
        names = [interface["name"] for interface in host["interfaces"]]
        for engine in host["engines"]:
            if engine["interface"] is not None and engine["interface"] not in names:
                meant = nearest(engine["interface"], names)
                faults.add(engine.mark_at("interface"), f"{host['name']} has no interface '{engine['interface']}'"
                           + (f"; did you mean '{meant}'?" if meant else f", only {', '.join(names)}"))
        if host["spare"] and host["engines"]:
            faults.add(host.mark_at("engines"), f"{host['name']} is a spare and must have no engines")
        check_ports(array, host, faults)


def check_ports(array, host, faults, n=None):
    """Checks the ports of the first 'n' programs of a host.  If 'n' is None, checks the ports of all engines of the
    host."""
    ports, n = array["ports"], len(host["engines"]) if n is None else n
    taken = [range(ports[key], ports[key] + n) for key in ("http", "katcp")]
    if taken[0].start < taken[1].stop and taken[1].start < taken[0].stop or max(t.stop for t in taken) > 65536:
        faults.add(ports.mark, f"the {n} programs of {host['name']} have HTTP ports from {taken[0].start} and KATCP "
                               f"ports from {taken[1].start}: choose ports that are further apart, and below 65536")


def place_interface(plan, home, name):
    """Returns the interface of a program of the host 'home'.  'name' is the interface's name on 'home'; None is the
    first interface.  If a spare runs the program, returns the spare's interface at the same position in the list."""
    names = [interface["name"] for interface in home["interfaces"]]
    return plan.place(home)["interfaces"][names.index(name or names[0])]


def numbered_gpus(home):
    """Returns the GPUs in the keys 'gpu' of a host's engines, without duplicates, in the order of the engines."""
    gpus = [engine["gpu"] for engine in home["engines"]]
    return list(dict.fromkeys(gpu for gpu in gpus if gpu not in ("auto", "cpu", None)))


def place_gpu(plan, home, gpu):
    """Returns the GPU of an engine of the host 'home'.  If a spare runs the engine, the spare's first GPU replaces the
    first GPU of 'home', and so on."""
    gpus, place = numbered_gpus(home), plan.place(home)
    return place["gpus"][gpus.index(gpu)] if place is not home and gpu in gpus else gpu


def make_engines(plan):
    """Names the engines f0, f1, ... and x0, x1, ... in the order of the file."""
    counts = {"fgpu": 0, "xbgpu": 0}
    for host in plan.array["hosts"]:
        for index, given in enumerate(host["engines"]):
            kind = given["kind"]
            place, interface = plan.place(host), place_interface(plan, host, given["interface"])
            plan.engines.append(Engine(f"{kind[0]}{counts[kind]}", kind, place, given, index, interface, host,
                                       place_gpu(plan, host, given["gpu"])))
            counts[kind] += 1


def deal(plan, faults):
    """Assigns antennas to F-engines, as evenly as possible, and substreams to X-engines."""
    antennas, streams = plan.array["antennas"], plan.array["f_outputs"]
    f_engines = [engine for engine in plan.engines if engine.kind == "fgpu"]
    x_engines = [engine for engine in plan.engines if engine.kind == "xbgpu"]
    hosts = plan.array.mark_at("hosts")
    if not 1 <= len(f_engines) <= len(antennas):
        faults.add(hosts, f"hosts have {len(f_engines)} engines of kind fgpu for {len(antennas)} antennas: at least "
                          f"one is needed, and at most one for each antenna")
        return
    for e, engine in enumerate(f_engines):
        first, end = e * len(antennas) // len(f_engines), (e + 1) * len(antennas) // len(f_engines)
        engine.antennas = [(i, antennas[i]) for i in range(first, end)]
        if end - first > 256:
            faults.add(hosts, f"{engine.name} would have {end - first} antennas, but the maximum is 256: add engines "
                              f"of kind fgpu")
    wanted = [(stream, s) for stream in streams for s in range(stream["substreams"])]
    if len(wanted) != len(x_engines):
        needs = ", ".join(f"{stream['substreams']} for {stream['name']}" for stream in streams)
        faults.add(hosts, f"hosts have {len(x_engines)} engines of kind xbgpu, but there must be {len(wanted)}: one "
                          f"for each substream, {needs}")
        return
    for engine, (stream, substream) in zip(x_engines, wanted):
        engine.stream, engine.substream = stream, substream


# ---- Load on the hosts -----------------------------------------------------------------------------------------------


def decimation(stream):
    return stream["decimation"] if stream["kind"] == "narrowband" else 1


def samples_between_spectra(stream):
    return 2 * stream["channels"] * decimation(stream)


def batch_samples(stream):
    return stream["spectra_per_heap"] * samples_between_spectra(stream)


def batch_bytes(stream):
    """Returns the bytes of a batch of one antenna, in all substreams together."""
    return stream["channels"] * stream["spectra_per_heap"] * N_POLS * 2 * stream["sample_bits"] // 8


def wire_bytes(heap_bytes, payload, n_items):
    """Bytes of a heap on the cable, with the headers of its packets."""
    return heap_bytes + math.ceil(heap_bytes / payload) * (FRAME_BYTES + SPEAD_BYTES + 8 * n_items)


def f_substream_gbps(array, stream):
    """Rate in Gb/s of one antenna's voltages in one substream.  Pacing may exceed this rate for short times."""
    payload = array["fgpu"]["send"]["packet_payload"]
    heap = wire_bytes(batch_bytes(stream) // stream["substreams"], payload, F_ITEMS)
    return 8e-9 * heap * array["time"]["adc_sample_rate"] / batch_samples(stream)


def digitiser_gbps(array):
    """Rate in Gb/s of the digitiser packets of one polarisation."""
    digitiser = array["digitiser"]
    packet = digitiser["packet_samples"] * digitiser["sample_bits"] // 8
    return 8e-9 * wire_bytes(packet, packet, DIGITISER_ITEMS) * array["time"]["adc_sample_rate"] \
        / digitiser["packet_samples"]


def integration_batches(array, output, stream):
    if output["integration_batches"]:
        return output["integration_batches"]
    return max(1, round(output["integration_time"] * array["time"]["adc_sample_rate"] / batch_samples(stream)))


def vis_bytes(array, stream):
    """Bytes of one dump of one substream."""
    n = len(array["antennas"])
    return stream["channels"] // stream["substreams"] * (n * (n + 1) // 2) * N_POLS**2 * 2 * 4


def x_output_gbps(array, output, stream):
    weights = output["missing"] == "weights"
    n = len(array["antennas"])
    heap = vis_bytes(array, stream) + weights * 4 * (n * (n + 1) // 2)
    dump_s = integration_batches(array, output, stream) * batch_samples(stream) / array["time"]["adc_sample_rate"]
    return 8e-9 * wire_bytes(heap, array["xbgpu"]["send"]["packet_payload"], X_ITEMS + weights) / dump_s


def beam_bytes(stream):
    """Bytes of a voltage beam's heap in one substream."""
    return stream["channels"] // stream["substreams"] * stream["spectra_per_heap"] * 2


def beam_gbps(array, stream):
    """Rate in Gb/s of one voltage beam in one substream."""
    heap = wire_bytes(beam_bytes(stream), array["xbgpu"]["send"]["packet_payload"], BEAM_ITEMS)
    return 8e-9 * heap * array["time"]["adc_sample_rate"] / batch_samples(stream)


def powers(stream, detected):
    """Number of powers in a heap of detected beams in one substream."""
    n_products = 4 if detected["products"] == "IQUV" else 1
    n_groups = stream["channels"] // stream["substreams"] // detected["channels"]
    return detected["beams"] * detected["windows"] * n_products * n_groups


def detected_bytes(stream, detected):
    """Bytes of a heap of detected beams in one substream.  Powers of 8 bits come with offsets and scales."""
    n, n_windows = powers(stream, detected), detected["windows"]
    return 4 * n_windows + (n + 2 * 4 * n // n_windows if detected["format"] == "uint8" else 4 * n)


def detected_s(array, stream, detected):
    """Seconds of data in a heap of detected beams."""
    n_samples = detected["windows"] * detected["spectra"] * samples_between_spectra(stream)
    return n_samples / array["time"]["adc_sample_rate"]


def detected_gbps(array, stream, detected):
    """Rate in Gb/s of a stream of detected beams in one substream."""
    heap = wire_bytes(detected_bytes(stream, detected), array["xbgpu"]["send"]["packet_payload"],
                      POWER_ITEMS[detected["format"]])
    return 8e-9 * heap / detected_s(array, stream, detected)


def beams_gbps(array, stream):
    """Rate in Gb/s of all voltage beams and detected beams that one X-engine makes from a stream."""
    return len(made_of(array, "beams", stream)) * beam_gbps(array, stream) \
        + sum(detected_gbps(array, stream, detected) for detected in made_of(array, "detected", stream))


def pinned_bytes(n_bytes, engine):
    """Returns the size in bytes of a host buffer from which or to which a GPU copies.  A buffer of at least one huge
    page takes a whole number of huge pages."""
    return n_bytes if engine.on_cpu or n_bytes < HUGE_PAGE_BYTES else -(-n_bytes // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES


def chunk_pool_bytes(n_chunks, n_heaps, heap_bytes, engine):
    """Bytes of a pool of chunks: payload, a bit for every 8 bytes of payload, and a record for each heap."""
    return n_chunks * (pinned_bytes(n_heaps * heap_bytes, engine) + n_heaps * (heap_bytes / 64 + 16))


def f_window_samples(stream):
    if stream["kind"] != "narrowband":
        return stream["taps"] * 2 * stream["channels"]
    subsampling, bins = narrow_shape(stream)
    return (stream["taps"] * bins - 1) * subsampling + (stream["ddc_taps"] or 16 * subsampling)


def subsampling(band):
    """Returns the number of input samples for each sample of a narrow band."""
    return band["decimation"] * (2 if band["pass_bandwidth"] > 0 else 1)


def narrow_shape(stream):
    """Returns the number of input samples for each sample of the narrow band, and the number of points of the
    transform."""
    return subsampling(stream), stream["channels"] * (1 if stream["pass_bandwidth"] > 0 else 2)


def gnss_window_samples(gnss):
    return (gnss["ddc_taps"] or 16 * subsampling(gnss)) + 2 * subsampling(gnss)


def gnss_signals(array, gnss):
    """A list: the signal of each satellite whose carrier lies in the stream's band."""
    half_hz = gnss["pass_bandwidth"] / 2 or array["time"]["adc_sample_rate"] / 4 / gnss["decimation"]
    return [satellites["signal"] for satellites in array["satellites"] for _ in satellites["prns"]
            if abs(GNSS_CARRIERS_HZ[satellites["signal"]] - gnss["sky_frequency"]) <= half_hz]


def gnss_period(array, gnss, signal):
    """Number of samples in a period of the signal's code."""
    return math.ceil(GNSS_PERIODS_S[signal] * array["time"]["adc_sample_rate"] / subsampling(gnss))


def gnss_pieces(array, gnss):
    """Returns the largest number of integrations and parts of integrations in a heap of one antenna."""
    n_samples = array["fgpu"]["recv"]["chunk_samples"] // subsampling(gnss) + 3
    periods = [gnss_period(array, gnss, signal) for signal in gnss_signals(array, gnss)]
    return sum(2 + n_samples // (period - period // 8) for period in periods)


def gnss_gbps(array, gnss):
    """Rate in Gb/s of one antenna's sums of satellites."""
    heap = wire_bytes(gnss_pieces(array, gnss) * GNSS_RECORD_BYTES, array["fgpu"]["send"]["packet_payload"], GNSS_ITEMS)
    return 8e-9 * heap * array["time"]["adc_sample_rate"] / array["fgpu"]["recv"]["chunk_samples"]


def gnss_search_memory(array, gnss):
    """Device memory of the searches of one antenna, and device memory that the searches of a process share."""
    cells, row_bins, bins = 0, 0, 0
    for satellites in array["satellites"]:
        signal = satellites["signal"]
        if signal not in gnss_signals(array, gnss):
            continue
        bins_here = 1 << (4 * GNSS_CHIPS[signal] - 1).bit_length()
        for n_periods, range_hz in ((gnss["acquire_periods"], 2 * satellites["doppler_range"]),
                                    (max(gnss["acquire_periods"], 4), 3 / GNSS_PERIODS_S[signal] / gnss["acquire_periods"])):
            n_dopplers = math.ceil(range_hz * 2 * GNSS_PERIODS_S[signal] * n_periods) + 4
            cells, row_bins = max(cells, n_dopplers * bins_here), max(row_bins, (n_periods + 1) * bins_here)
        bins = max(bins, bins_here)
    return 8 * cells + 16 * bins, 16 * row_bins + 4 * GNSS_TRANSFORMS * 8 * bins


def gnss_memory(array, gnss, history, n_ants):
    """Host and device memory of one antenna of a process: buffers, codes, satellites, a search, the band's samples of
    the chunks that wait for other antennas as floats, and of one chunk as 8 bits."""
    signals, pieces, recv = gnss_signals(array, gnss), gnss_pieces(array, gnss), array["fgpu"]["recv"]
    tables, chunk = sum(GNSS_TABLE_BYTES[signal] for signal in signals), recv["chunk_samples"]
    search = max([gnss_period(array, gnss, signal) for signal in signals], default=0) * max(gnss["acquire_periods"], 4)
    own, shared = gnss_search_memory(array, gnss)
    delay = gnss["max_antenna_delay"] * array["time"]["adc_sample_rate"] / subsampling(gnss) if n_ants > 1 else 0
    slots, row = max(recv["window"], 3) + 5 if n_ants > 1 else 2, N_POLS * (chunk / subsampling(gnss) + 2 * delay)
    host = GNSS_BUFFERS * pieces * (GNSS_PIECE_BYTES + GNSS_RECORD_BYTES) + len(signals) * GNSS_FOLLOWED_BYTES
    device = GNSS_BUFFERS * pieces * GNSS_PIECE_BYTES + N_POLS * 8 * (chunk + history) / subsampling(gnss)
    device += slots * 8 * row + 2 * row + N_POLS * 2 * search + own
    return host + tables / n_ants, device + (tables + shared) / n_ants


def f_buffers(array, stream):
    """Number of output buffers of each antenna."""
    chunk_buffers = math.ceil(array["fgpu"]["recv"]["chunk_samples"] / (batch_samples(stream) * stream["batches_per_buffer"]))
    return stream["buffers"] or 2 * chunk_buffers + 2


def x_window(array, stream):
    """Returns recv.window and recv.chunks of an xbgpu.  The output buffers of an fgpu hold a certain time of data.  The
    xbgpu waits this time for the data of a late antenna."""
    recv = array["xbgpu"]["recv"]
    if "window" in recv.given or "chunks" in recv.given:
        return recv["window"], recv["chunks"]
    n_chunks = math.ceil(f_buffers(array, stream) * stream["batches_per_buffer"] / recv["batches_per_chunk"])
    window = min(max(n_chunks + 1, recv["window"]), recv.schema["properties"]["window"]["maximum"])
    return window, max(2 * window + 3, recv["chunks"])


def fgpu_memory(array, engine):
    recv, digitiser = array["fgpu"]["recv"], array["digitiser"]
    packet, samples = digitiser["packet_samples"], recv["chunk_samples"]
    bytes_of = lambda n: n * digitiser["sample_bits"] / 8  # noqa: E731
    host = N_POLS * chunk_pool_bytes(recv["chunks"], samples // packet, bytes_of(packet), engine)
    windows = [f_window_samples(s) for s in array["f_outputs"]] + [gnss_window_samples(s) for s in array["gnss"]]
    device, window = 0.0, max(windows)
    history = math.ceil((window + recv["max_delay_diff"]) / packet) * packet
    for stream in array["f_outputs"]:
        n_spectra = stream["spectra_per_heap"] * stream["batches_per_buffer"]
        buffer = stream["batches_per_buffer"] * batch_bytes(stream) + n_spectra * N_POLS * 2 * 4
        n_buffers = f_buffers(array, stream)
        subsampling, bins = narrow_shape(stream) if stream["kind"] == "narrowband" else (0, 0)
        row = 2 * bins or 2 * stream["channels"]
        host += n_buffers * pinned_bytes(buffer, engine)
        device += n_buffers * buffer + 2 * N_POLS * n_spectra * row * 4
        device += N_POLS * 8 * (samples + history) / subsampling if subsampling else 0
    of_gnss = [gnss_memory(array, gnss, history, len(engine.antennas)) for gnss in array["gnss"]]
    host += sum(bytes_here for bytes_here, _ in of_gnss)
    device += sum(bytes_there for _, bytes_there in of_gnss)
    device += N_POLS * 3 * bytes_of(history + samples)
    return len(engine.antennas) * (host + (device if engine.on_cpu else 0))


def beam_buffers(buffer_s):
    """Returns the number of output buffers for beams.  Each buffer holds 'buffer_s' seconds of data."""
    least, most = BEAM_BUFFERS
    return min(max(math.ceil(BEAM_BUFFERS_S / buffer_s), least), most)


def beams_memory(array, engine):
    """Host and device memory for the voltage beams of an xbgpu: each buffer holds a chunk of all beams."""
    stream, n_batches = engine.stream, array["xbgpu"]["recv"]["batches_per_chunk"]
    beams = n_batches * len(made_of(array, "beams", stream)) * beam_bytes(stream)
    n_buffers = beam_buffers(n_batches * batch_samples(stream) / array["time"]["adc_sample_rate"])
    return n_buffers * pinned_bytes(beams, engine), n_buffers * beams


def detected_memory(array, engine, detected):
    """Returns the host and device memory for a stream of detected beams.  Each buffer holds a heap.  On the device, a
    buffer also holds the heap's sums, which have 64 bits."""
    stream, heap = engine.stream, detected_bytes(engine.stream, detected)
    chunk_spectra = array["xbgpu"]["recv"]["batches_per_chunk"] * stream["spectra_per_heap"]
    least = 2 * (chunk_spectra // (detected["windows"] * detected["spectra"]) + 1) + 1
    n_buffers = detected["buffers"] or max(least, beam_buffers(detected_s(array, stream, detected)))
    return n_buffers * pinned_bytes(heap, engine), n_buffers * (heap + 8 * powers(stream, detected))


def steering_memory(array, stream):
    """Returns the host and device memory for the beams' delay models and coefficients.  Each detected beam has models
    for both polarisations."""
    coherent = [d for d in made_of(array, "detected", stream) if d["kind"] == "coherent"]
    n_beams = len(made_of(array, "beams", stream)) + N_POLS * sum(d["beams"] for d in coherent)
    models = n_beams * BEAM_MODELS * len(array["antennas"]) * STEERING_BYTES
    coefficients = n_beams * stream["channels"] // stream["substreams"] * (len(array["antennas"]) * 2 + 2) * 2
    return 4 * models, models + coefficients  # host: models for 3 inputs in flight, and new models


def xbgpu_memory(array, engine):
    recv, stream = array["xbgpu"]["recv"], engine.stream
    n_ants = len(array["antennas"])
    heap = batch_bytes(stream) // stream["substreams"]
    _, n_chunks = x_window(array, stream)
    host = chunk_pool_bytes(n_chunks, recv["batches_per_chunk"] * n_ants, heap, engine)
    device = 3 * recv["batches_per_chunk"] * n_ants * heap
    for output in made_of(array, "x_outputs", stream):
        dumps = math.ceil(recv["batches_per_chunk"] / integration_batches(array, output, stream))
        dump = vis_bytes(array, stream)
        host += (output["buffers"] or 2 * dumps + 2) * pinned_bytes(dump, engine)
        device += ((output["buffers"] or 2 * dumps + 2) + 3) * dump
    of_beams = [beams_memory(array, engine), steering_memory(array, stream)]
    of_beams += [detected_memory(array, engine, detected) for detected in made_of(array, "detected", stream)]
    host += sum(bytes_here for bytes_here, _ in of_beams)
    device += sum(bytes_there for _, bytes_there in of_beams)
    return host + (device if engine.on_cpu else 0)


def cost(array, engine):
    """Fills in rates, memory and threads."""
    n_ants, keys = len(array["antennas"]), array[engine.kind]
    if engine.kind == "fgpu":
        n = len(engine.antennas)
        engine.in_gbps = n * N_POLS * digitiser_gbps(array)
        engine.out_gbps = n * (sum(s["substreams"] * f_substream_gbps(array, s) for s in array["f_outputs"])
                               + sum(gnss_gbps(array, gnss) for gnss in array["gnss"]))
        engine.memory_bytes = fgpu_memory(array, engine) + PROCESS_BYTES
        receivers = min(keys["recv"]["threads"] or n * N_POLS, n * N_POLS)
    else:
        engine.in_gbps = n_ants * f_substream_gbps(array, engine.stream)
        engine.out_gbps = beams_gbps(array, engine.stream) + sum(
            x_output_gbps(array, output, engine.stream) for output in made_of(array, "x_outputs", engine.stream))
        engine.memory_bytes = xbgpu_memory(array, engine) + PROCESS_BYTES
        receivers = min(keys["recv"]["threads"], n_ants)
    engine.memory_bytes += receivers * RECEIVER_BYTES
    engine.flow_threads = {"recv": receivers, "send": keys["send"]["threads"]}
    engine.threads = sum(engine.flow_threads.values()) + 1  # and the worker
    if engine.on_cpu:
        engine.threads += keys["device"]["threads"] or engine.host["cores"]


def check_capacity(plan, host, faults):
    """Checks whether a host can carry its engines.  Reports each overload."""
    engines = plan.on(host)
    for interface in host["interfaces"]:
        mine = [engine for engine in engines if engine.interface is interface]
        for verb, gbps in (("receive", sum(e.in_gbps for e in mine)), ("send", sum(e.out_gbps for e in mine))):
            if gbps > interface["rate"]:
                faults.add(interface.mark_at("rate"),
                           f"{host['name']} would {verb} {gbps:.4g} Gb/s on {interface['name']}, which carries "
                           f"{interface['rate']:.4g}: move engines ({', '.join(e.name for e in mine)}) to other "
                           f"interfaces or hosts")
    memory = sum(engine.memory_bytes for engine in engines) / GIB
    if memory > host["memory"]:
        faults.add(host.mark_at("memory"), f"the engines of {host['name']} need about {memory:.3g} GiB of memory, but "
                                           f"it has {host['memory']:.3g}: lower recv.chunk_samples, recv.window, recv.chunks, "
                                           f"recv.batches_per_chunk or buffers, or move engines to other hosts")
    threads = sum(engine.threads for engine in engines)
    if threads > host["cores"]:
        cpu = any(engine.on_cpu for engine in engines)
        faults.add(host.mark_at("cores"),
                   f"the engines of {host['name']} have {threads} busy threads, but it has {host['cores']} cores: "
                   f"lower recv.threads or send.threads{', or device.threads' if cpu else ''}, or move engines to "
                   f"other hosts")


def parse_cpus(text):
    """Returns the CPUs of a list such as 0-3,8; None if the text is not such a list."""
    cpus = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or dash and not last.isdigit():
            return None
        cpus += range(int(first), int(last if dash else first) + 1)
    return cpus if cpus and max(cpus) < N_CPUS else None


def deal_cpus(host, engines, faults):
    """Assigns a separate CPU to each receive and send thread, near the thread's interface."""
    taken = {cpu for engine in engines for name in FLOWS for cpu in engine.given[f"{name}_affinity"] or []}
    for interface in host["interfaces"]:
        if "cpus" not in interface.given:
            continue
        text, mine = interface["cpus"], [engine for engine in engines if engine.interface is interface]
        near = parse_cpus(text)
        if near is None:
            faults.add(interface.mark_at("cpus"), f"cpus of {interface['name']} must be a list such as \"0-15,32-47\", of CPUs "
                                                  f"below {N_CPUS}, not \"{text}\"")
            continue
        wanted = [(engine, name) for engine in mine for name in FLOWS if f"{name}_affinity" not in engine.given.given]
        n_wanted = sum(engine.flow_threads[name] for engine, name in wanted)
        free = [cpu for cpu in near if cpu not in taken]
        if len(free) < n_wanted:
            faults.add(interface.mark_at("cpus"),
                       f"{n_wanted} receive and send threads of {', '.join(e.name for e in mine)} need separate CPUs "
                       f"near {interface['name']}, but {len(free)} of {text} are free: lower recv.threads or "
                       f"send.threads, add CPUs, or remove the key cpus")
            continue
        for engine, name in wanted:
            n = engine.flow_threads[name]
            engine.cpus[name], free = free[:n], free[n:]
            taken.update(engine.cpus[name])


def make_plan(array, faults, moves=None):
    """The plan of an array whose keys are right, or None after a conflict was reported.

    moves: {name of a host: name of the spare that runs its programs}; array_spares.py checks the names
    """
    plan = Plan(array, moves=moves or {})
    check_unique(array["antennas"], "antennas", faults)
    check_unique(array["f_outputs"] + array["gnss"], "outputs of f_outputs and gnss", faults)
    check_unique(array["x_outputs"] + array["beams"] + array["detected"], "outputs of x_outputs, beams and detected", faults)
    check_unique(array["hosts"], "hosts", faults)
    check_outputs(array, faults)
    check_hosts(array, faults)
    network = multicast_range(array, faults)
    check_feeds(array, network, faults)
    if faults.faults:
        return None
    deal_addresses(plan, network, faults)
    make_engines(plan)
    deal(plan, faults)
    if faults.faults:
        return None
    for engine in plan.engines:
        cost(array, engine)
    for host in array["hosts"]:
        check_capacity(plan, host, faults)
        deal_cpus(host, plan.on(host), faults)
    return plan


def print_table(plan, out):
    """Prints which engine runs where, and the load on each host."""
    rows = [("host", "engine", "carries", "interface", "in Gb/s", "out Gb/s", "memory GiB", "threads")]

    def numbers(in_gbps, out_gbps, memory, threads):
        return f"{in_gbps:.3g}", f"{out_gbps:.3g}", f"{memory / GIB:.3g}", str(threads)

    for host in plan.array["hosts"]:
        engines = plan.on(host)
        for engine in engines:
            rows.append((host["name"], engine.name, engine.carries(), engine.interface["name"],
                         *numbers(engine.in_gbps, engine.out_gbps, engine.memory_bytes, engine.threads)))
        for i, interface in enumerate(host["interfaces"]):
            mine = [engine for engine in engines if engine.interface is interface]
            total = numbers(sum(e.in_gbps for e in mine), sum(e.out_gbps for e in mine),
                            sum(e.memory_bytes for e in engines), sum(e.threads for e in engines))
            limits = [f"{interface['rate']:g}"] * 2 + [f"{host['memory']:g}", f"{host['cores']}"]
            together = [f"{have} of {limit}" for have, limit in zip(total, limits)]
            rows.append((host["name"], "=", "all", interface["name"], *together[:2],
                         *(together[2:] if i == 0 else ("", ""))))
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) if c < 4 else cell.rjust(width) for c, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip(), file=out)
