"""scripts/array: the files from one array.yaml, the refusals, and a run of the result: three hosts in network
namespaces."""
import ipaddress
import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml

import harness

SCRIPT = harness.ROOT / "scripts/array"
EXAMPLE = harness.ROOT / "config/array/array.yaml"
THREE_HOSTS = harness.ROOT / "tests/netns/three_hosts.py"
sys.path.insert(0, str(harness.ROOT / "scripts"))


def run_array(path, *options):
    return subprocess.run([sys.executable, SCRIPT, path, "--programs", harness.BUILD, *options], capture_output=True,
                          text=True, timeout=harness.TIMEOUT_S, check=False)


def generate(path, output):
    """The files made from an array.yaml, by name: the contents of YAML and JSON, the text of others."""
    done = run_array(path, "--output", output)
    assert done.returncode == 0, done.stderr
    load = {".yaml": yaml.safe_load, ".json": json.loads}
    return {str(file.relative_to(output)): load.get(file.suffix, str)(file.read_text())
            for file in output.rglob("*") if file.is_file()}, done.stdout


def write(work, array, name="array.yaml"):
    path = work / name
    path.write_text(yaml.safe_dump(array, sort_keys=False))
    return path


def free_ports(n):
    """The first of 'n' TCP ports in a row that are free."""
    first = harness.free_tcp_port()
    while [harness.free_tcp_port() for _ in range(n - 1)] != list(range(first + 1, first + n)):
        first = harness.free_tcp_port()
    return first


GNSS = {"name": "g0", "centre_frequency": 2000000, "decimation": 2, "sky_frequency": 1575.42e6}
SATELLITES = {"time": {"adc_sample_rate": 8000000}, "fgpu": {"recv": {"chunk_samples": 1 << 18}}, "gnss": [GNSS],
              "satellites": [{"signal": "L1CA", "prns": [7, 19]}]}  # what small() needs for them
N_PORTS = 8  # of each kind, for the programs of the host


def small(**changes):
    """An array of two antennas on one host, which runs here if asked to."""
    first_port = free_ports(2 * N_PORTS)
    array = {
        "name": "small",
        "time": {"sync_time": 1700000000, "adc_sample_rate": 1000000},
        "antennas": [{"name": f"m{i:03}", "pol0": f"239.99.{i}.0", "pol1": f"239.99.{i}.1"} | ({"from": "10.0.0.0/8"} if i else {})
                     for i in range(2)],
        "f_outputs": [{"name": "wide", "channels": 1024, "spectra_per_heap": 32, "substreams": 2}],
        "x_outputs": [{"name": "vis", "stream": "wide", "integration_time": 0.5}],
        "multicast": {"range": "239.98.0.0/24"},
        "ports": {"http": first_port, "katcp": first_port + N_PORTS},  # one each, from these on
        "hosts": [{"name": "here", "address": "127.0.0.1", "memory": 8, "cores": 64,
                   "interfaces": [{"name": "lo", "rate": 10}],
                   "engines": [{"kind": "fgpu", "gpu": "cpu"}, {"kind": "xbgpu", "gpu": "cpu"},
                               {"kind": "xbgpu", "gpu": "cpu"}]}],
        "fgpu": {"device": {"threads": 1}},
        "xbgpu": {"device": {"threads": 1}},
    }
    return harness.merge(array, changes)


# ---- What is made ----------------------------------------------------------------------------------------------------


def check_services(array, made):
    """Each antenna and each channel of each stream has one engine, ends meet, and no address is used twice."""
    services = {name.split("/")[1][:-5]: config for name, config in made.items() if name.startswith("services/")}
    listed = {service["name"]: service["program"] for host in made["inventory.yaml"]["all"]["children"]["cbf"]["hosts"]
              .values() for service in host["cbf_services"]}
    control = services.pop("control", None)
    assert set(listed) == set(services)
    fgpus = [config for name, config in services.items() if listed[name] == "fgpu"]
    xbgpus = [config for name, config in services.items() if listed[name] == "xbgpu"]
    n_ants = len(array["antennas"])

    antennas = {antenna["feng_id"]: antenna for config in fgpus for antenna in config["antennas"]}
    assert sum(len(config["antennas"]) for config in fgpus) == n_ants == len(antennas)
    for feng_id, wanted in enumerate(array["antennas"]):
        for key in ("name", "pol0", "pol1"):
            assert antennas[feng_id][key] in (wanted[key], [wanted[key]])
        assert antennas[feng_id].get("from") == wanted.get("from")
    sizes = [len(config["antennas"]) for config in fgpus]
    assert max(sizes) - min(sizes) <= 1

    taken = [endpoint for antenna in array["antennas"] for pol in ("pol0", "pol1")
             for endpoint in harness.endpoints(antenna[pol] + ":7148")]
    for f_output in array["f_outputs"]:
        (destinations,) = {output["destinations"] for config in fgpus for output in config["outputs"]
                           if output["name"] == f_output["name"]}
        destinations = harness.endpoints(destinations)
        assert len(destinations) == f_output["substreams"]
        taken += destinations
        width = f_output["channels"] // f_output["substreams"]
        for substream, endpoint in enumerate(destinations):
            (mine,) = [config for config in xbgpus if harness.endpoints(config["recv"]["sources"]) == [endpoint]]
            recv = mine["recv"]
            assert recv["antennas"] == n_ants and recv["channels"] == f_output["channels"]
            assert recv["channels_per_substream"] == width and recv["channel_offset"] == substream * width
            assert recv["samples_between_spectra"] == 2 * f_output["channels"] * f_output.get("decimation", 1)
            assert recv["spectra_per_heap"] == f_output.get("spectra_per_heap", 256)
            names = [x_output["name"] for x_output in array["x_outputs"] if x_output["stream"] == f_output["name"]]
            assert [output["name"] for output in mine["outputs"]] == names
            for output in mine["outputs"]:
                (endpoint,) = harness.endpoints(output["destination"])
                taken.append(endpoint)
                (listing,) = [x for x in made["streams.yaml"]["x_outputs"] if x["name"] == output["name"]]
                assert harness.endpoints(listing["destinations"])[substream] == endpoint
            taken += check_beams(array, made, mine, f_output["name"], substream)
    taken += check_gnss(array, made, fgpus)
    check_recorders(array, made, services, xbgpus)
    check_beam_recorders(array, made, services, xbgpus)
    assert len(set(taken)) == len(taken)
    network = ipaddress.ip_network(array["multicast"]["range"])
    n_feeds = sum(len(harness.endpoints(a[pol] + ":7148")) for a in array["antennas"] for pol in ("pol0", "pol1"))
    assert all(ipaddress.ip_address(host) in network for host, _ in taken[n_feeds:])
    # Different Ethernet addresses, too.
    assert len({int(ipaddress.ip_address(host)) & 0x7FFFFF for host, _ in taken}) == len(taken)
    ports = [config["http"]["listen"] for config in services.values()]
    assert len(set(ports)) == len(ports)
    ports += [control["http"]["listen"]] if control else []
    assert {target["targets"][0] for target in made["prometheus/targets.yaml"]} == set(ports)
    return services, listed


def check_seeds(services, listed):
    """Each stream with dither has a seed, the same in all engines, and no other stream has this seed."""
    seeds = {}
    for name, config in services.items():
        streams = {"fgpu": config.get("outputs", []), "xbgpu": config.get("beams", [])}.get(listed[name], [])
        for stream in streams:
            seeds.setdefault(stream["name"], set()).add(stream["dither_seed"])
    assert all(len(seed) == 1 for seed in seeds.values()), seeds
    assert len(set.union(*seeds.values())) == len(seeds) >= 4


def check_gnss(array, made, fgpus):
    """All F-engines make all streams of all antennas, each stream to one address.  Returns these."""
    for config in fgpus:
        assert config.get("satellites", []) == array.get("satellites", [])
        streams = [{key: stream[key] for key in stream if key != "destination"} for stream in config.get("gnss", [])]
        assert streams == array.get("gnss", [])
    listed = made["streams.yaml"].get("gnss", [])
    for config in fgpus:
        assert [{key: stream[key] for key in ("name", "destination")} for stream in config.get("gnss", [])] == listed
    return [endpoint for stream in listed for endpoint in harness.endpoints(stream["destination"])]


# Keys of detected beams and their defaults.
DETECTED = {"kind": "coherent", "beams": 1, "products": "I", "spectra": 16, "channels": 1, "windows": 16, "format": "float32"}


def check_beams(array, made, xbgpu, stream, substream):
    """An X-engine makes all beams of its stream, voltages and detected, each to a separate address.  Returns these
    addresses."""
    taken = []
    for section, keys in (("beams", {"pol": None}), ("detected", DETECTED)):
        wanted = [beam for beam in array.get(section, []) if beam["stream"] == stream]
        beams = xbgpu.get(section, [])
        own = ("destination", "dither_seed")
        assert [{key: beam[key] for key in beam if key not in own} for beam in beams] == [
            {key: beam[key] for key in beam if key != "stream"} for beam in wanted]
        for beam in beams:
            (listing,) = [listed for listed in made["streams.yaml"][section] if listed["name"] == beam["name"]]
            assert {key: listing[key] for key in keys} == {key: beam.get(key, keys[key]) for key in keys}
            assert listing["stream"] == stream
            assert harness.endpoints(beam["destination"]) == harness.endpoints(listing["destinations"])[substream:][:1]
            taken += harness.endpoints(beam["destination"])
    assert ("filter_samples" in xbgpu["recv"]) == bool(xbgpu.get("detected"))
    return taken


def check_beam_recorders(array, made, services, xbgpus):
    """Each takes all substreams of all beams of its stream, in the shape that the X-engines give them."""
    for i, given in enumerate(array.get("beam_recorders", [])):
        config, every, names = services[f"b{i}"], [], []
        for section in ("beams", "detected"):
            listed = [beam for beam in made["streams.yaml"].get(section, []) if beam["stream"] == given["stream"]]
            assert [(beam["name"], beam["sources"]) for beam in config.get(section, [])] == [
                (beam["name"], beam["destinations"]) for beam in listed]
            every += listed
            names += [beam["name"] for beam in listed]
        senders = [x for x in xbgpus if [b["name"] for b in x.get("beams", []) + x.get("detected", [])] == names]
        assert len(senders) == len(harness.endpoints(every[0]["destinations"]))
        for sender in senders:
            for key in ("channels", "channels_per_substream", "spectra_per_heap", "samples_between_spectra"):
                assert config["stream"][key] == sender["recv"][key], key
            assert config["time"] == sender["time"]
        for beam in config.get("beams", []):
            assert beam["filterbank"] == f"{given['directory']}/{array['name']}-{beam['name']}-%Y%m%dT%H%M%SZ.fil"
            assert ("voltages" in beam) == given.get("voltages", False) and beam.get("sum_spectra") == given.get("sum_spectra")
        for beam in config.get("detected", []):
            name = f"{given['directory']}/{array['name']}-{beam['name']}.{{beam}}-%Y%m%dT%H%M%SZ"
            assert beam["filterbank"] == f"{name}.fil"
            assert beam.get("dada") == (f"{name}.dada" if given.get("dada") else None)
            (x_beam,) = [x_beam for x_beam in senders[0]["detected"] if x_beam["name"] == beam["name"]]
            assert all(beam.get(key) == x_beam.get(key) for key in DETECTED if key != "kind")
        (row,) = [row for row in made["prometheus/targets.yaml"] if row["labels"]["engine"] == f"b{i}"]
        assert row["labels"]["program"] == "beamrec" and row["labels"]["host"] == given["host"]


def check_recorders(array, made, services, xbgpus):
    """Each takes all substreams of its output, in the shape that the X-engines give them."""
    for i, given in enumerate(array.get("recorders", [])):
        config = services[f"r{i}"]
        (listing,) = [x for x in made["streams.yaml"]["x_outputs"] if x["name"] == given["output"]]
        sources = harness.endpoints(config["recv"]["sources"])
        assert sources == harness.endpoints(listing["destinations"])
        senders = [x for x in xbgpus for output in x["outputs"] if harness.endpoints(output["destination"])[0] in sources]
        assert len(senders) == len(sources)
        for sender in senders:
            for key in ("channels", "channels_per_substream", "spectra_per_heap", "samples_between_spectra"):
                assert config["stream"][key] == sender["recv"][key], key
            assert config["time"] == sender["time"]
        assert config["stream"]["integration_batches"] == listing["integration_batches"]
        assert config["antennas"] == [{key: antenna[key] for key in ("name", "position")} for antenna in array["antennas"]]
        assert config["output"]["file"].startswith(given["directory"] + f"/{array['name']}-{given['output']}-%Y%m%d")
        assert config["output"]["max_file_time"] == given["max_file_time"]
        (row,) = [row for row in made["prometheus/targets.yaml"] if row["labels"]["engine"] == f"r{i}"]
        assert row["labels"]["program"] == "visrec" and row["labels"]["host"] == given["host"]


def test_example(work):
    array = yaml.safe_load(EXAMPLE.read_text())
    made, table = generate(EXAMPLE, work / "made")
    services, listed = check_services(array, made)
    check_seeds(services, listed)
    for name, program in listed.items():
        done = subprocess.run([harness.BUILD / program, "--check-config", work / f"made/services/{name}.yaml"],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0 and not done.stderr, done.stderr
    doctor = harness.BUILD / "cbf-doctor"
    if doctor.exists():
        done = subprocess.run([doctor, "config", *(work / "made/services").iterdir()], capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, done.stdout
    # 1712 MS/s of 10 bits in packets of 5120 bytes, with 66 bytes of Ethernet, IP and UDP, and 72 of SPEAD.
    (row,) = [line.split() for line in table.splitlines() if line.split()[:2] == ["cbf1", "f0"]]
    assert float(row[-4]) == pytest.approx(2 * 2 * 17.12 * (5120 + 138) / 5120, rel=0.01)
    # A quarter of 8192 channels has dumps of 36 baselines, two voltage beams, 16 beams of 8 bits and a sum of floats.
    (row,) = [line.split() for line in table.splitlines() if line.split()[:2] == ["cbf1", "x0"]]
    spectra_s, n = 1712e6 / 16384, 2048
    rate = 2 * n * 2 * spectra_s + (16 * n * (16 + 8) + n * 16 * 4) / 16 * spectra_s / 128 + n * 36 * 4 * 8 / 0.5
    assert float(row[-3]) == pytest.approx(8e-9 * rate * (8192 + 138) / 8192, rel=0.005)
    again, _ = generate(EXAMPLE, work / "again")
    assert again == made


def test_windows_and_cpus(work):
    """X-engines wait as long as F-engines' buffers last.  Each thread has a separate CPU near its interface."""
    def made_of(**changes):
        changes |= {"fgpu": {"recv": {"chunk_samples": 1 << 16, "max_delay_diff": 1 << 14}}}  # a batch
        made, _ = generate(write(work, small(**changes)), work / "made")
        return {name: made[f"services/{name}.yaml"] for name in ("f0", "x0", "x1")}

    stream = small()["f_outputs"][0] | {"buffers": 8}
    recv = made_of(f_outputs=[stream])["x0"]["recv"]
    assert "window" not in recv and "chunks" not in recv and "affinity" not in recv
    stream |= {"buffers": 90, "batches_per_buffer": 2}
    recv = made_of(f_outputs=[stream])["x0"]["recv"]
    assert recv["window"] == 1 + 23 and recv["chunks"] == 2 * 24 + 3  # 180 batches, 8 to a chunk
    recv = made_of(f_outputs=[stream], xbgpu={"recv": {"window": 5, "chunks": 20}})["x0"]["recv"]
    assert (recv["window"], recv["chunks"]) == (5, 20)
    assert made_of(f_outputs=[stream | {"buffers": 800}])["x0"]["recv"]["window"] == 64  # no key allows more

    host = small()["hosts"][0]
    host["interfaces"] = [{"name": "lo", "rate": 10, "cpus": "8-11,40-47"}]
    host["engines"][1]["recv_affinity"] = [41]
    made = made_of(hosts=[host])
    assert made["f0"]["recv"]["affinity"] == [8, 9, 10, 11] and made["f0"]["send"]["affinity"] == [40]
    assert made["x0"]["recv"]["affinity"] == [41] and made["x0"]["send"]["affinity"] == [42]
    assert made["x1"]["recv"]["affinity"] == [43] and made["x1"]["send"]["affinity"] == [44]
    for cpus, said in (("0-7", "8 receive and send threads of f0, x0, x1 need separate CPUs near lo, but 8 of 0-7 are free"),
                       ("0-6", "8 receive and send threads of f0, x0, x1 need separate CPUs near lo, but 7 of 0-6 are free"),
                       ("0-x", 'must be a list such as "0-15,32-47"'), ("5000", "CPUs below 4096")):
        host["interfaces"][0]["cpus"] = cpus
        done = run_array(write(work, small(hosts=[host])))
        assert (said in done.stderr) == (cpus != "0-7"), done.stderr


def test_random_arrays(work, rng):
    for i in range(6):
        n_fgpu = int(rng.integers(1, 5))
        array = small(antennas=[{"name": f"a{a}", "pol0": f"239.99.{a}.0+3", "pol1": f"239.99.{a}.4+3"}
                                for a in range(int(rng.integers(n_fgpu, 20)))])
        array["time"]["adc_sample_rate"] = 200000000
        array["fgpu"]["recv"] = {"chunk_samples": 1 << 23}  # longer than the longest window of those below, and 42 ms
        array["f_outputs"], array["x_outputs"] = [], []
        for o in range(int(rng.integers(1, 4))):
            stream = {"name": f"s{o}", "channels": int(2**rng.integers(9, 14)),
                      "substreams": int(2**rng.integers(0, 4)), "spectra_per_heap": int(16 * rng.integers(1, 17))}
            if rng.random() < 0.5:
                stream |= {"kind": "narrowband", "decimation": int(rng.integers(2, 17)), "centre_frequency": 123456.7}
            array["f_outputs"].append(stream)
            array["x_outputs"] += [{"name": f"v{o}-{x}", "stream": f"s{o}", "integration_time": 1 + x}
                                   for x in range(int(rng.integers(1, 3)))]
        array["beams"] = [{"name": f"b{b}", "stream": f"s{int(rng.integers(len(array['f_outputs'])))}", "pol": int(b % 2)}
                          for b in range(int(rng.integers(8)))]
        array["detected"] = [{"name": f"d{d}", "stream": f"s{int(rng.integers(len(array['f_outputs'])))}"}
                             | ({"kind": "incoherent"} if rng.random() < 0.3 else {"beams": int(rng.integers(1, 9))})
                             | {"products": str(rng.choice(["I", "IQUV"])), "channels": int(2**rng.integers(3)),
                                "format": str(rng.choice(["uint8", "float32"]))} for d in range(int(rng.integers(4)))]
        array["gnss"] = [GNSS | {"name": f"g{g}", "decimation": int(rng.integers(2, 65))} for g in range(int(rng.integers(3)))]
        array["satellites"] = [{"signal": "L1CA", "prns": (1 + rng.permutation(32))[:int(rng.integers(1, 33))].tolist()}
                               for _ in array["gnss"][:1]]
        array["beam_recorders"] = [{"stream": stream, "host": "h0", "directory": "/data", "voltages": bool(rng.random() < 0.5),
                                    "dada": bool(rng.random() < 0.5)}
                                   for stream in sorted({beam["stream"] for beam in array["beams"] + array["detected"]})]
        array = {key: value for key, value in array.items() if value != []}
        kinds = ["fgpu"] * n_fgpu + ["xbgpu"] * sum(stream["substreams"] for stream in array["f_outputs"])
        rng.shuffle(kinds)
        array["hosts"] = [
            {"name": f"h{h}", "address": f"10.0.0.{h}", "memory": 512, "cores": 4096,
             "interfaces": [{"name": "eth0", "rate": 10000}, {"name": "eth1", "rate": 10000}],
             "engines": [{"kind": kind, "interface": f"eth{int(rng.integers(2))}"} for kind in kinds[h::5]]}
            for h in range(min(5, len(kinds)))]
        made, _ = generate(write(work, array, f"random{i}.yaml"), work / f"random{i}")
        check_services(array, made)


def test_addresses_stay(work):
    """An addition at the end of a list moves no address."""
    array = small(beams=[{"name": "bx", "stream": "wide", "pol": 0}], detected=[{"name": "powers", "stream": "wide"}],
                  **SATELLITES)
    path = write(work, array)
    before, _ = generate(path, work / "made")
    array["beams"].append({"name": "narrow-beam", "stream": "narrow", "pol": 1})
    array["detected"].append({"name": "narrow-powers", "stream": "narrow"})
    array["gnss"] += [GNSS | {"name": "g1"}, GNSS | {"name": "g2"}]
    array["f_outputs"].append({"name": "narrow", "kind": "narrowband", "decimation": 8, "centre_frequency": 1e5,
                               "channels": 256, "substreams": 1})
    array["x_outputs"].append({"name": "narrow-vis", "stream": "narrow", "integration_time": 1})
    array["hosts"][0]["engines"].append({"kind": "xbgpu", "gpu": "cpu"})
    after, _ = generate(write(work, array, "longer.yaml"), work / "made")
    for kind in ("f_outputs", "x_outputs", "beams", "detected", "gnss"):
        assert after["streams.yaml"][kind][0] == before["streams.yaml"][kind][0]
    assert "services/x2.yaml" in after
    gone, _ = generate(path, work / "made")
    assert gone == before  # the third X-engine's file is gone


# ---- What is refused -------------------------------------------------------------------------------------------------

# What stands instead of a line of the example, or of a part of it, and what is said; # is the line's number.
ERRORS = [
    ("  adc_sample_rate: 1712e6", "  adc_sample_rte: 1712e6",
     ["#:3: unknown key 'adc_sample_rte' in time; did you mean 'adc_sample_rate'?",
      ": time.adc_sample_rate is missing and has no default (Samples per second"]),
    ("multicast:", "multicats:", ["#:1: unknown section 'multicats'; did you mean 'multicast'?"]),
    ("    channels: 8192", "    channels: 8000", ["#:15: f_outputs[0].channels must be one of 64, 128"]),
    ("    substreams: 4", "    substreams: 3", ["#:17: substreams of wide must be a power of two"]),
    ("    substreams: 4", "    substreams: 8", ["hosts have 5 engines of kind xbgpu, but there must be 9"]),
    ("stream: narrow,", "stream: narow,", ["did you mean 'narrow'?"]),
    ("  - {name: m001, ", "  - {name: m000, ", ["#:12: two antennas are called m000"]),
    ("239.8.0.16+7, ", "239.8.0.15+8, ", ["#:24: the address 239.8.0.15:7148 belongs to m000 pol1 already"]),
    ("239.8.0.16+7, ", "239.8.0.4+7, ", ["#:24: the addresses 239.8.0.4 to 239.8.0.7, port 7148, belong to m000 pol0 already"]),
    ("239.10.0.0/20", "239.8.0.0/20", ["#:10: 128 addresses of digitisers, 239.8.0.0 to 239.8.0.127 (m000 pol0 to m007 pol1), and"]),
    ("239.8.0.16+7, ", "239.138.3.4, ", ["#:24: the address 239.138.3.4 of a digitiser (m001 pol0) and multicast.range 239.10.0.0/20 overlap"]),
    ("239.10.0.0/20", "239.128.0.0/20", ["#:10: multicast.range 239.128.0.0/20 has Ethernet addresses of 224.0"]),
    ("239.10.0.0/20", "239.10.0.0/29", ["has no room for the 1 addresses of narrow in its first half"]),
    ("239.10.0.0/20", "10.10.0.0/20", ["must be within 224.0.0.0/4"]),
    ("kind: fgpu, gpu: 0, interface: ens1f0np0", "kind: fgpu, gpu: 0, interface: ens1f0np",
     ["did you mean 'ens1f0np0'?"]),
    ("    decimation: 16", "    decimation: 999", ["#:17: f_outputs[1].decimation must be an integer from 1 to 256"]),
    ("recorders:", "recorders:\n  - {output: wide-vi, host: stor1}", ["did you mean 'wide-vis'?", "did you mean 'store1'?"]),
    ("  - {name: wide-beam-0x, stream: wide,", "  - {name: wide-beam-0x, stream: wid,", ["#:34: there is no output 'wid' in f_outputs; did"]),
    ("  - {name: wide-beam-0x, stream: wide, pol: 0}", "  - {name: wide-vis, stream: wide, pol: 0}", ["called wide-vis"]),
    ("  - {name: wide-search, stream: wide,", "  - {name: wide-search, stream: wid,", ["#:33: there is no output 'wid' in f_outputs; did"]),
    ("  - {name: wide-search, stream: wide,", "  - {name: wide-beam-0x, stream: wide,", ["called wide-beam-0x"]),
    ("wide-search, stream: wide, beams: 16,", "wide-search, stream: wide, beams: 2000,", ["detected[0].beams must be an integer from 1"]),
    ("wide-search, stream: wide, beams: 16, spectra: 128,", "wide-search, stream: wide, beams: 45, spectra: 1,",
     ["cbf4 would send 12", "Gb/s on ens1f1np1, which carries 100"]),
    ("{name: gnss-l1,", "{name: wide,", ["#:12: two outputs of f_outputs and gnss are called wide"]),
    ("sky_frequency: 1575420000", "sky_frequency: 1475420000", ["fgpu: no satellite of 'satellites' has its carrier"]),
    ("{signal: L1CA, prns", "{signal: E1B, prns", ["fgpu: codes must name the file with the codes of E1B"]),
    ("{signal: L1CA, prns", "{signal: L2C, prns", ["#:14: satellites[0].signal must be one of L1CA, L5I"]),
    ("239.10.0.0/20", "239.10.0.0/27", ["no room for the 4 addresses of wide-beam-0y in its second half"]),
    ("  - {stream: wide, host: store1,", "  - {stream: narrow, host: store1,", ["#:14: there is no beam of the stream 'narrow'"]),
    ("directory: /data/beams, sum_spectra: 16", "directory: /data/beams, sum_spectra: 15", ["beamrec: sum_spectra must divide"]),
    ("telescope: {latitude: -30.7128, ", "telescope: {latitude: -91, ", ["telescope.latitude must be a number from -90"]),
    (", position: [30, 0, 0]}", "}", ["#:5: position of m001 is missing"]),
    (", position: [30, 0, 0]}", ", position: [30, 0]}", ["position of m001 must be [east, north, up]"]),
    ("directory: /data/vis, max_file_time: 3600", "directory: /data/vis, max_file_time: 0.1", ["visrec: a dump lasts 0.4997"]),
    # What people write in place of a number.
    ("  adc_sample_rate: 1712e6", "  adc_sample_rate: 1712 MHz", ["#:20: time.adc_sample_rate must be",
                                                                  "'1712 MHz' is given; write the number without a unit"]),
    ("  adc_sample_rate: 1712e6", "  adc_sample_rate: 1712MHz", ["write the number without a unit, like 1e6"]),
    ("  adc_sample_rate: 1712e6", "  adc_sample_rate: '1,712,000,000'", ["write the number without separators"]),
    ("  adc_sample_rate: 1712e6", "  adc_sample_rate: 1_712_000_000", ["write the number without separators"]),
    ("    memory: 128  # GiB", "    memory: 128GB", ["'128GB' is given; write the number without a unit"]),
    ("    channels: 8192", "    channels: 8192\n    spectra_per_heap: 256 spectra", ["write the number without a unit"]),
    # What only the engines know is told at its place here.
    ("    centre_frequency: 300e6", "    centre_frequency: 3000e6", ["#:23: fgpu: centre_frequency must be"]),
    ("    channels: 8192", "    channels: 8192\n    gain: 0", ["fgpu: gain must not be 0"]),
    ("integration_time: 2,", "integration_time: 2, integration_batches: 4,", ["xbgpu: output narrow-vis needs one of"]),
    # What hosts cannot carry.
    ("      - {name: ens1f1np1, rate: 100}", "      - {name: ens1f1np1, rate: 50}",
     ["#:33: cbf4 would receive 69.6", "Gb/s on ens1f1np1, which carries 50: move engines (x3, x4)"]),
    ("    memory: 128  # GiB", "    memory: 0.5", ["#:13: the engines of cbf1 need about 1.1"]),
    ("    cores: 32", "    cores: 8", ["#:12: the engines of cbf1 have 11 busy threads, but it has 8 cores"]),
]


@pytest.mark.parametrize("old, new, said", ERRORS, ids=[new.strip().replace("\n", " ")[:40] for _, new, _ in ERRORS])
def test_error(work, old, new, said):
    text = EXAMPLE.read_text()
    assert old in text
    number = str(text[:text.index(old)].count("\n") + 1)
    path = work / "array.yaml"
    path.write_text(text.replace(old, new, 1))
    done = run_array(path, "--output", work / "made")
    assert done.returncode == 78
    for sentence in said:
        assert sentence.replace("#:", f"array.yaml:{number}:") in done.stderr
    assert len(done.stderr.splitlines()) <= 2  # a mistake may have two consequences, not one for each address
    assert not (work / "made").exists()


def test_time_of_the_calendar(work):
    """The value is no number, and the message says how to write it as a number."""
    path = work / "array.yaml"
    path.write_text(re.sub(r"sync_time: \S+", "sync_time: 2025-10-09T00:00", EXAMPLE.read_text(), count=1))
    done = run_array(path)
    assert done.returncode == 78 and "; write seconds since 1970" in done.stderr, done.stderr


@pytest.mark.parametrize("program", ["fgpu", "xbgpu", "visrec", "beamrec", "dsim", "fsim"])
def test_file_of_a_program(program):
    path = harness.ROOT / f"config/{program}.yaml"
    done = run_array(path)
    error = f"{path}:1:1: this looks like a configuration of {program}, not of scripts/array\n"
    assert (done.returncode, done.stderr) == (78, error)


def test_all_errors_at_once(work):
    """As many as were made, in the order of the file."""
    path = work / "array.yaml"
    path.write_text("name: a b\ntime: {sync_time: -1, rate: 3}\nhosts: 7\nfoo: 1\nfgpu: {recv: {bufer: 1}}\n")
    done = run_array(path)
    lines = [line.split(": ", 1) for line in done.stderr.splitlines()]
    assert done.returncode == 78 and len(lines) == 11, done.stderr  # 4 sections and a rate are missing, too
    places = [tuple(map(int, place.rsplit(":", 2)[1:])) for place, _ in lines]
    assert places == sorted(places)
    assert not run_array(work / "none.yaml").stdout


# ---- What it costs ---------------------------------------------------------------------------------------------------

NARROW = {"name": "narrow", "kind": "narrowband", "decimation": 8, "centre_frequency": 200000, "channels": 512,
          "spectra_per_heap": 64, "substreams": 1}


@pytest.fixture(params=["wide", "narrow"])
def running(request, work, daemon):
    """The engines of an array, and the plan's figures for them."""
    import array_file
    import array_plan
    import array_schema

    array = small(
        beams=[{"name": f"b{pol}", "stream": request.param, "pol": pol} for pol in (0, 1)],
        detected=[{"name": "powers", "stream": request.param, "beams": 60, "products": "IQUV", "format": "uint8", "spectra": 8},
                  {"name": "sum", "stream": request.param, "kind": "incoherent", "windows": 4096, "buffers": 5}])
    signals = [{"signal": signal, "prns": list(range(1, 33))} for signal in ("L1CA", "L5I")]
    bands = [("g0", 16e6, 2, 1575.42e6), ("g1", 12e6, 2, 1176.45e6)]
    array = harness.merge(array, SATELLITES | {"time": {"adc_sample_rate": 64000000}, "satellites": signals, "gnss": [
        dict(zip(("name", "centre_frequency", "decimation", "sky_frequency"), band)) for band in bands]})
    array["fgpu"]["recv"]["chunk_samples"] = 1 << 21
    array["hosts"][0]["interfaces"][0]["rate"] = 100
    if request.param == "narrow":
        array["f_outputs"] = [NARROW | {"substreams": 2}]
        array["x_outputs"][0]["stream"] = "narrow"
    path = write(work, array)
    made, _ = generate(path, work / "made")
    faults = array_file.Faults(path)
    schema = array_schema.make_schema(array_schema.engine_schemas(harness.BUILD))
    plan = array_plan.make_plan(array_file.load(path, schema, faults), faults)
    services, listed = check_services(array, made)
    engines = {engine.name: (engine, daemon(listed[engine.name], services[engine.name], engine.name).wait_ready())
               for engine in plan.engines}
    return made, engines


def test_memory_and_metrics(running):
    """The memory of the table equals the engines' figures.  Every metric that rules and dashboards ask for exists."""
    import array_plan

    made, engines = running
    # Recorders' metrics are in their references, which test_reference.py holds to the programs.
    names = {"up", "ALERTS", "cbf_antenna_engine"}
    for program in ("visrec", "beamrec"):
        text = (harness.ROOT / f"docs/reference/{program}.txt").read_text()
        names |= set(re.findall(rf"^({program}_\w+)", text, re.MULTILINE))
    reasons = set()
    for engine, process in engines.values():
        found = re.search(r"(\d+) MiB of host memory, (\d+) MiB on the device", process.log.read_text())
        needed = (engine.memory_bytes - array_plan.PROCESS_BYTES) / (1 << 20)
        assert needed == pytest.approx(int(found[1]) + int(found[2]), rel=0.1, abs=4), engine.name
        samples = process.metrics().samples
        names |= {name for name, _, _ in samples}
        reasons |= {labels["reason"] for _, labels, _ in samples if "reason" in labels}
    expressions = [rule["expr"] for rule in made["prometheus/rules.yaml"]["groups"][0]["rules"] if "alert" in rule]
    expressions += [target["expr"] for board in made.values() if isinstance(board, dict) and "panels" in board
                    for panel in board["panels"] for target in panel["targets"]]
    assert len(expressions) > 50
    for expression in expressions:
        asked = re.findall(r"(\w+)\{", expression)
        assert asked and set(asked) <= names, f"no engine exports {set(asked) - names}: {expression}"
        for choice in re.findall(r'reason[=~!]+"([^"]*)"', expression):
            assert set(choice.split("|")) <= reasons, choice


# ---- Other programs' opinions ----------------------------------------------------------------------------------------


def test_ansible(work):
    if not shutil.which("ansible-playbook"):
        pytest.skip("ansible-playbook is not installed (Debian: ansible-core)")
    generate(EXAMPLE, work / "made")
    done = subprocess.run(["ansible-playbook", "-i", "inventory.yaml", "playbook.yaml", "--syntax-check"],
                          cwd=work / "made", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("release, package", [("12", "libhdf5-103-1"), ("13", "libhdf5-310")])
def test_library_of_a_release(work, release, package):
    """HDF5's package has its version in its name."""
    if not shutil.which("ansible"):
        pytest.skip("ansible is not installed (Debian: ansible-core)")
    generate(EXAMPLE, work / "made")
    variables = yaml.safe_load((work / "made/playbook.yaml").read_text())[0]["vars"]
    facts = {"distribution": "Debian", "distribution_major_version": release}
    assert "{{ cbf_hdf5 }}" in variables["cbf_libraries"]
    done = subprocess.run(["ansible", "localhost", "-m", "debug", "-a", json.dumps({"msg": variables["cbf_hdf5"]}), "-e",
                           json.dumps({"ansible_facts": facts})], capture_output=True, text=True, check=False)
    assert f'"msg": "{package}"' in done.stdout, done.stdout + done.stderr


# ---- Three hosts -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(harness.SANITIZED, reason="the chain's tests run the same programs with sanitizers")
def test_three_hosts(work):
    """The loss of a host costs its antennas or its band, and nothing else.  A spare takes the engines of the lost host, and two
    instances of an engine do no harm; see three_hosts.py."""
    done = subprocess.run([sys.executable, THREE_HOSTS, "--output", work / "three"], capture_output=True, text=True,
                          timeout=240, check=False)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
