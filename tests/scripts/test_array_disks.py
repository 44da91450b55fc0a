"""scripts/array: the recorders' disks, and the removal of old recordings."""
import os
import re
import shutil
import subprocess
import time

import pytest
import yaml

import harness
from test_array import EXAMPLE, generate, write

import array_file  # noqa: E402, from scripts/, as test_array.py imports it
import array_schema  # noqa: E402
import array_spares  # noqa: E402

DAY_S = 86400


def example(**changes):
    """The example, with other values of all recorders, or of the disk."""
    array = yaml.safe_load(EXAMPLE.read_text())
    for key in ("recorders", "beam_recorders"):
        for recorder in array[key]:
            recorder |= changes.get(key, {})
    array["hosts"][-1]["disks"][0] |= changes.get("disk", {})
    return array


def test_rates(work):
    """A dump has 13 bytes for each value, and 96 for each baseline; a beam has a byte for each of its powers."""
    _, table = generate(EXAMPLE, work / "made")
    n_baselines, spectra_s = 8 * 9 // 2, 1712e6 / 16384
    vis = n_baselines * (8192 * 4 * 13 + 96) / (round(0.5 * spectra_s / 256) * 256 / spectra_s)
    narrow_s = 1712e6 / 131072
    narrow = n_baselines * (4096 * 4 * 13 + 96) / (round(2 * narrow_s / 256) * 256 / narrow_s)
    beams = 8192 * spectra_s * (2 / 16 + 16 / 128 + 1 / 128)
    for name, rate in (("r0", vis), ("r1", narrow), ("b0", beams)):
        (found,) = re.findall(rf"^store1  {name}  records .* in, (\S+) GB/s to the disk", table, re.MULTILINE)
        assert float(found) == pytest.approx(rate / 1e9, rel=0.01), name
    ((rate, size),) = re.findall(r"^store1  =  /data: (\S+) of 4 GB/s, (\S+) of 600 TB", table, re.MULTILINE)
    assert float(rate) == pytest.approx((vis + narrow + beams) / 1e9, rel=0.01)
    kept = (vis + narrow) * (31 * DAY_S + 3600) + beams * 8 * DAY_S
    assert float(size) == pytest.approx(kept / 1e12, rel=0.01)

    doctor = subprocess.run([harness.BUILD / "cbf-doctor", "config", work / "made/services/r0.yaml"], capture_output=True,
                            text=True, check=False)
    (found,) = re.findall(r"writes (\S+) Mb/s at most", " ".join(doctor.stdout.split()))
    assert float(found) == pytest.approx(8 * vis / 1e6, rel=0.001)


@pytest.fixture(scope="module")
def schema():
    return array_schema.make_schema(array_schema.engine_schemas(harness.BUILD))


def faults_of(path, schema):
    """Returns the lines that scripts/array would print, without the engines' own."""
    faults = array_file.Faults(path)
    array_spares.plan_of(array_file.load(path, schema, faults), faults)
    return "\n".join(faults.lines())


MUCH = {"rate": 20, "size": 1e5}


@pytest.mark.parametrize("changes, said", [
    ({"disk": {"rate": 0.25}}, "recorders would write 0.255 GB/s to /data of store1, which takes 0.25: move recorders (r0, "),
    ({"disk": {"rate": 0.26}}, ""),
    ({"disk": {"size": 240}}, "the recordings that r0, r1, b0 keep need 245 TB on /data of store1, which has 240: lower re"),
    ({"disk": {"size": 100}, "recorders": {"retention": 0}}, "r0, r1, b0 keep need 153 TB on /data of store1"),
    ({"disk": {"size": 1e-3}, "recorders": {"retention": 0}, "beam_recorders": {"retention": 0}}, ""),
    ({"disk": {"size": 1e-3, "directory": "/dat"}}, ""),  # no recorder writes to this disk
    ({"disk": {"directory": "data"}}, 'directory of a disk must begin with /, not "data"'),
    # Two beams of 6 bytes, and 17 powers of 4 bytes in 128 spectra.
    ({"beam_recorders": {"voltages": True, "bits": 32, "sum_spectra": 1}, "disk": {"size": 1e5}},
     "recorders would write 10.8 GB/s to /data"),
    ({"beam_recorders": {"voltages": True, "bits": 32, "sum_spectra": 1}, "disk": MUCH}, ""),
    ({"recorders": {"max_file_time": 0}}, "retention of r0 needs max_file_time or max_file_size"),
    ({"recorders": {"directory": "/data/a b"}}, "retention needs a directory of letters, digits and the characters / . _"),
    ({"recorders": {"directory": "/data/../etc"}}, "retention needs a directory of letters"),
    ({"recorders": {"directory": "/var"}}, "retention would remove the old files of /var"),
    ({"beam_recorders": {"directory": "/data/vis"}}, "files of b0 in /data/vis would be removed after 30 days, like those of r0"),
    ({"beam_recorders": {"directory": "/data/vis", "retention": 30}, "disk": MUCH}, ""),
    ({"recorders": {"directory": "/data/"}}, ""),  # the files of b0 below it have a retention of their own
    ({"recorders": {"directory": "/data/"}, "beam_recorders": {"retention": 0}}, "files of b0 in /data/beams would be removed")])
def test_limits(work, schema, changes, said):
    found = faults_of(write(work, example(**changes)), schema)
    assert said in found if said else not found


def test_directory_of_its_own(work, schema):
    """Without a directory, the recorder's unit owns the files, and nothing removes them."""
    array = example()
    del array["recorders"][0]["directory"]
    assert "retention of r0 needs a directory" in faults_of(write(work, array), schema)
    array["recorders"][0]["retention"] = 0
    assert not faults_of(write(work, array), schema)


def test_old_recordings(work):
    """systemd-tmpfiles removes the old files of each directory, and nothing else."""
    if not shutil.which("systemd-tmpfiles"):
        pytest.skip("systemd-tmpfiles is not installed (Debian: systemd)")
    data = work / "data"
    array = example(recorders={"directory": str(data / "vis")}, beam_recorders={"directory": str(data / "vis/beams")})
    made, _ = generate(write(work, array), work / "made")
    hosts = made["inventory.yaml"]["all"]["children"]["cbf"]["hosts"]
    assert [name for name, host in hosts.items() if "cbf_removals" in host] == ["store1"]
    (work / "removals.conf").write_text("\n".join(hosts["store1"]["cbf_removals"]) + "\n")
    ages = {"vis/new.uvh5": 29.5, "vis/old.uvh5": 30.5, "vis/sub/old.uvh5": 31, "vis/sub/new.uvh5": 1, "vis/beams/new.fil": 6.5,
            "vis/beams/old.fil": 7.5, "other/old.uvh5": 1000}
    for name, days in ages.items():
        path = data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("recording")
        os.utime(path, (time.time(), time.time() - days * DAY_S))  # read a moment ago
    (data / "vis/empty").mkdir()
    done = subprocess.run(["systemd-tmpfiles", "--clean", work / "removals.conf"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    left = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}
    assert left == {"vis/new.uvh5", "vis/sub/new.uvh5", "vis/beams/new.fil", "other/old.uvh5"}
    assert (data / "vis/empty").is_dir()
