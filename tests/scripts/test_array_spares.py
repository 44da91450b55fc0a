"""scripts/array --move: the engines of a dead host on a spare, and two instances that send the same bytes."""
import difflib

import pytest
import yaml

import harness
import scenario
from test_array import EXAMPLE, generate, run_array, small, write

import array_file  # noqa: E402, from scripts/, as test_array.py imports it
import array_schema  # noqa: E402
import array_spares  # noqa: E402


@pytest.fixture(scope="module")
def schema():
    return array_schema.make_schema(array_schema.engine_schemas(harness.BUILD))


def load(path, schema):
    faults = array_file.Faults(path)
    return array_file.load(path, schema, faults), faults


def texts(directory):
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


def contents(directory):
    return {name: yaml.safe_load(text) for name, text in texts(directory).items() if name.endswith(".yaml")}


def move(path, output, source, target):
    done = run_array(path, "--output", output, "--move", source, target)
    assert done.returncode == 0, done.stderr
    return done.stdout


def example(**spare):
    array = yaml.safe_load(EXAMPLE.read_text())
    (host,) = [host for host in array["hosts"] if host.get("spare")]
    host |= spare
    return array


# ---- What moves ------------------------------------------------------------------------------------------------------


def changed_lines(before, after):
    """Pairs of the lines that differ."""
    lines = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "-+"]
    removed, added = ([line[2:] for line in lines if line[0] == sign] for sign in "-+")
    assert len(removed) == len(added)
    return list(zip(removed, added))


def test_what_a_move_changes(work):
    """Only addresses of control, interfaces and GPUs of the moved engines change."""
    gpu = "GPU-01234567-89ab-cdef-0123-456789abcdef"
    path = write(work, example(gpus=[gpu, "0000:3b:00.0"]))
    generate(path, work / "made")
    before = texts(work / "made")
    said = move(path, work / "made", "cbf4", "spare1")
    after = texts(work / "made")
    assert set(after) == set(before) | {"moves.yaml"}
    moved = {f"services/{name}.yaml" for name in ("f3", "x3", "x4")}
    follow = {"services/control.yaml", "inventory.yaml", "prometheus/targets.yaml", "prometheus/rules.yaml"}
    assert {name for name in before if before[name] != after[name]} == moved | follow
    new = {"ens1f0np0": "ens2f0np0", "ens1f1np1": "ens2f1np1", 'gpu: "0"': f'gpu: "{gpu}"',
           'gpu: "1"': 'gpu: "0000:3b:00.0"', "10.8.0.4:": "10.8.0.5:", "on cbf4": "on spare1"}
    for name in moved:
        for old_line, new_line in changed_lines(before[name], after[name]):
            (old,) = [part for part in new if part in old_line]
            assert new_line == old_line.replace(old, new[old]), name
    for name in ("services/control.yaml", "prometheus/targets.yaml"):  # with the same ports
        assert before[name].replace("10.8.0.4", "10.8.0.5").replace("cbf4", "spare1").split() == after[name].split(), name
    hosts = yaml.safe_load(after["inventory.yaml"])["all"]["children"]["cbf"]["hosts"]
    assert hosts["cbf4"]["cbf_services"] == []
    assert [service["name"] for service in hosts["spare1"]["cbf_services"]] == ["f3", "x3", "x4"]
    made = work / "made"
    assert said.rstrip().endswith(f"ansible-playbook -i {made}/inventory.yaml {made}/playbook.yaml --skip-tags install "
                                  f"--limit spare1,cbf-control")

    generate(path, work / "made")  # a later run keeps the move
    assert texts(work / "made") == after
    move(path, work / "made", "spare1", "cbf4")
    assert texts(work / "made") == before


def test_controller_and_recorders_move(work):
    """The engines accept the controller on the spare without a change of their files."""
    array = example()
    array["control"]["allow"] = "10.9.0.0/16"
    path = write(work, array)
    made, _ = generate(path, work / "made")
    assert made["services/f1.yaml"]["katcp"]["allow"] == "10.9.0.0/16, 10.8.0.1, 10.8.0.5"
    move(path, work / "made", "cbf1", "spare1")
    moved = contents(work / "made")
    assert moved["services/f1.yaml"] == made["services/f1.yaml"]
    control = moved["services/control.yaml"]
    assert (control["katcp"]["listen"], control["http"]["listen"]) == ("10.8.0.5:7147", "10.8.0.5:8080")
    groups = moved["inventory.yaml"]["all"]["children"]
    assert groups["cbf_control"]["hosts"]["cbf-control"]["ansible_host"] == "10.8.0.5"
    assert groups["cbf"]["hosts"]["spare1"]["cbf_controller"] and "cbf_controller" not in groups["cbf"]["hosts"]["cbf1"]

    array = example(disks=[{"directory": "/data", "rate": 4, "size": 600}])
    path = write(work, array, "store.yaml")
    made, _ = generate(path, work / "store")
    move(path, work / "store", "store1", "spare1")
    moved = contents(work / "store")
    hosts = moved["inventory.yaml"]["all"]["children"]["cbf"]["hosts"]
    assert [service["name"] for service in hosts["spare1"]["cbf_services"]] == ["r0", "r1", "b0"]
    assert "cbf_removals" in hosts["spare1"] and "cbf_removals" not in hosts["store1"]
    assert moved["services/r1.yaml"]["http"]["listen"] == "10.8.0.5:8001"
    assert moved["services/r1.yaml"]["recv"]["interface"] == "ens2f0np0"
    assert moved["services/r1.yaml"]["output"] == made["services/r1.yaml"]["output"]


def test_random_moves(work, rng, schema):
    """Each host's engines are on one host; an impossible move changes nothing."""
    homes, spares = [f"h{i}" for i in range(4)], ["s0", "s1"]
    array = small()
    host = array["hosts"][0]
    array["hosts"] = [host | {"name": name, "address": f"127.0.0.{i + 1}", "engines": host["engines"][:1] if i < 2 else
                              host["engines"][1:2]} for i, name in enumerate(homes)]
    array["hosts"] += [{key: host[key] for key in ("memory", "cores", "interfaces")}
                       | {"name": name, "address": f"127.0.0.{i + 9}", "spare": True} for i, name in enumerate(spares)]
    section, faults = load(write(work, array), schema)
    moves, where = {}, {home: home for home in homes}
    for _ in range(300):
        source, target = (str(name) for name in rng.choice(homes + spares, 2))
        faults = array_file.Faults("array.yaml")
        moves = array_spares.move(section, moves, source, target, faults)
        (home,) = [home for home, place in where.items() if place == source] or [None]
        possible = home and target not in where.values() and (target in spares or target == home)
        assert bool(faults.faults) == (not possible), (source, target, where, faults.lines())
        if possible:
            where[home] = target
        assert moves == {home: place for home, place in where.items() if place != home}
        plan = array_spares.plan_of(section, array_file.Faults("array.yaml"), moves)
        assert [engine.host["name"] for engine in plan.engines] == [where[home] for home in homes]


# ---- What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spare, said", [
    ({"gpus": ["GPU-1", "1"]}, 'gpus of spare1 must be indices, UUIDs (GPU-...) or PCI addresses (0000:3b:00.0), not "GPU-1"'),
    ({"gpus": [0]}, "spare1 can replace no host; cbf1: spare1 has 1 GPUs, but the engines of cbf1 use 2"),
    ({"memory": 0.5}, "spare1 can replace no host; cbf1: the engines of spare1 need about 1.1"),
    ({"cores": 8}, "spare1 can replace no host; cbf1: the engines of spare1 have 11 busy threads, but it has 8 cores"),
    ({"interfaces": [{"name": "e0", "rate": 100}]}, "spare1 can replace no host; cbf1: spare1 would receive 126 Gb/s on e0"),
    ({"interfaces": [{"name": "e0", "rate": 200}]}, {"spare1": ["cbf1", "cbf2", "cbf3"]}),
    ({"disks": [{"directory": "/data", "rate": 4, "size": 600}]}, {"spare1": ["cbf1", "cbf2", "cbf3", "cbf4", "store1"]}),
    ({}, {"spare1": ["cbf1", "cbf2", "cbf3", "cbf4"]})])
def test_able(work, schema, spare, said):
    """A plan says which hosts a spare can replace."""
    path = write(work, example(**spare))
    array, faults = load(path, schema)
    able = array_spares.check_spares(array, {}, path, faults)
    if isinstance(said, dict):
        assert able == said and not faults.lines()
    else:
        (line,) = faults.lines()
        assert said in line


@pytest.mark.parametrize("source, target, said", [
    ("cbf9", "spare1", "there is no host 'cbf9'; did you mean 'cbf1'?"),
    ("cbf2", "spare", "there is no host 'spare'; did you mean 'spare1'?"),
    ("cbf2", "cbf3", "cbf3 is not a spare"),
    ("cbf2", "cbf2", "the engines are on cbf2 already"),
    ("spare1", "cbf2", "no engine of the plan is on spare1"),
    ("store1", "spare1", "spare1 has no disk for /data/vis, to which r0 of store1 writes")])
def test_refused(work, schema, source, target, said):
    array, faults = load(write(work, example()), schema)
    moves = array_spares.move(array, {}, source, target, faults)
    assert faults.faults or array_spares.plan_of(array, faults, moves) is None
    assert any(said in line for line in faults.lines()), faults.lines()


@pytest.mark.parametrize("text, said", [
    ("cbf2: spare9\n", "says that the programs of cbf2 run on spare9, but array.yaml has no such host and spare"),
    ("cbf9: spare1\n", "says that the programs of cbf9 run on spare1"),
    ("[cbf2, spare1]\n", "is damaged: remove it, and repeat its moves"),
    ("cbf2: [\n", "is damaged")])
def test_kept_moves_that_fit_no_more(work, schema, text, said):
    array, faults = load(EXAMPLE, schema)
    (work / "moves.yaml").write_text(text)
    array_spares.load(work, array, faults)
    (line,) = faults.lines()
    assert said in line


def test_command_line(work):
    done = run_array(EXAMPLE, "--move", "cbf2", "spare1")
    assert done.returncode == 2 and "--move needs --output" in done.stderr
    array = example()
    array["hosts"][4]["engines"] = [{"kind": "fgpu"}]
    array["recorders"][0]["host"] = "spare1"
    done = run_array(write(work, array), "--output", work / "made", "--move", "cbf2", "spare1")
    assert done.returncode == 78 and "spare1 is a spare and must have no engines" in done.stderr
    assert not (work / "made").exists()


# ---- The same bytes --------------------------------------------------------------------------------------------------


def twins(work):
    """The files of an engine of each kind, on its host and on the spare: {name: (config, config)}."""
    array = small(digitiser={"sample_bits": 10, "packet_samples": 4096}, beams=[{"name": "bx", "stream": "wide", "pol": 0}],
                  fgpu={"recv": {"chunk_samples": 1 << 16, "max_delay_diff": 8192}, "send": {"rate_factor": 0}})
    array["f_outputs"][0] |= {"channels": 256, "gain": 0.2, "taps": 4}
    array["xbgpu"]["send"] = {"rate_factor": 0}
    array["antennas"][1].pop("from")
    array["hosts"].append({"name": "spare", "address": "127.0.0.2", "memory": 8, "cores": 64, "spare": True,
                           "interfaces": [{"name": "lo", "rate": 10}]})
    path = write(work, array)
    made, _ = generate(path, work / "made")
    move(path, work / "made", "here", "spare")
    moved = contents(work / "made")
    names = [f"services/{name}.yaml" for name in ("f0", "x0", "x1")]
    return {name[9:11]: [harness.merge(files[name], {"time": {"timebase": "packets"}}) for files in (made, moved)]
            for name in names}


def replay(daemon, work, program, config, source, name):
    """The packets of an engine's output, in any order."""
    sink = work / f"{name}.out.pcap"
    scenario.run_capture(daemon, program, config, source, sink, name)
    return sorted(harness.read_pcap(sink)), sink


def test_two_instances_send_the_same_bytes(daemon, work, rng):
    """An engine on its host and on a spare: dithered voltages, visibilities and dithered beams."""
    engines = twins(work)
    config = engines["f0"][0]
    for antenna in config["antennas"]:
        antenna |= {pol: f"{antenna[pol][0]}:7148" for pol in ("pol0", "pol1")}
    samples = scenario.noise(rng, 2, 1 << 18, 10)
    heaps = scenario.digitiser_heaps(config, samples, 0)
    harness.write_heaps(work / "in.pcap", heaps)
    one, voltages = replay(daemon, work, "fgpu", engines["f0"][0], work / "in.pcap", "f-here")
    two, _ = replay(daemon, work, "fgpu", engines["f0"][1], work / "in.pcap", "f-spare")
    assert len(one) > 120 and one == two

    # An instance that starts later sends the same voltages from its start on, with other counts of heaps.
    later = scenario.digitiser_heaps(config, samples[:, :, 1 << 17:], 1 << 17)
    first, again = (scenario.fgpu_streams(engines["f0"][0], found) for found in
                    (harness.decode_pcap(voltages), scenario.run_pcap(daemon, "fgpu", engines["f0"][1], work, later, "f-later")))
    assert set(first) == set(again)
    for key, batches in again.items():
        assert len(batches) >= 4 and all((first[key][timestamp] == batch).all() for timestamp, batch in batches.items())
        assert any(batch.any() for batch in batches.values())

    for name in ("x0", "x1"):
        one, _ = replay(daemon, work, "xbgpu", engines[name][0], voltages, f"{name}-here")
        two, _ = replay(daemon, work, "xbgpu", engines[name][1], voltages, f"{name}-spare")
        assert len(one) > 15 and one == two
