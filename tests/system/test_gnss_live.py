"""Satellites followed live: a digitiser sends known signals, and metrics, sensors and the status page describe them."""
import re
import sys
import time

import numpy as np
import pytest

import browser
import control
import harness
from test_status_page import WELL, cell, check_banner, check_contrast, number, show

sys.path.insert(0, str(harness.ROOT / "scripts"))
import array_plan  # noqa: E402

pytestmark = pytest.mark.skipif(harness.SANITIZED, reason="a browser beside an array in real time wants a fast array")

RATE_HZ, CENTRE_HZ, PASS_HZ = 4e6, 1e6, 1.6e6
AGE_S = 410 * 86400  # of the sync time: timestamps are more than 2^47, nearer to the next wrap than to 0
SUBSAMPLING = 2  # of decimation 1, with a pass bandwidth
CHUNK = 48 * 4096  # 49 ms, so that four buffers bear a stall of 0.2 s
SKY_HZ = 1575.37e6  # at the centre, so that the carrier has 1.05 MHz
SEEN = {7: (48, -1500), 19: (45, 2500)}  # number: C/N0 and Doppler
UNSEEN, STEERED = 32, 7
STREAM, ROW = "gnss-l1", "m000 gnss-l1"


def gnss(prn):
    cn0, doppler = SEEN[prn]
    return f"gnss(L1CA, {prn}, {cn0}, 0.1, {CENTRE_HZ + 1575.42e6 - SKY_HZ:.0f}, {1000 + prn}.25, {doppler}, 0)"


def configs():
    """Configurations of fgpu, and of a digitiser that feeds it with both satellites and noise."""
    now, feeds = int(time.time()), [harness.groups(), harness.groups()]
    signals = " + ".join(gnss(prn) for prn in SEEN)
    live = {"interface": harness.LOOPBACK, "ttl": 0}
    sample_rate = {"sync_time": now - AGE_S, "adc_sample_rate": RATE_HZ}
    fgpu = harness.merge(harness.FGPU, {
        "time": sample_rate | {"timebase": "clock"},
        "recv": {"interface": harness.LOOPBACK, "sample_bits": 8, "packet_samples": 4096, "chunk_samples": CHUNK, "chunks": 128,
                 "buffer": 64 << 20},
        "antennas": [{"name": "m000", "feng_id": 0, "pol0": feeds[0], "pol1": feeds[1]}],
        "outputs": [harness.FGPU_OUTPUT | {"destinations": harness.groups(), "taps": 4, "spectra_per_heap": 256}],
        "gnss": [{"name": STREAM, "destination": harness.groups(), "centre_frequency": CENTRE_HZ, "decimation": 1,
                  "pass_bandwidth": PASS_HZ, "sky_frequency": SKY_HZ}],
        "satellites": [{"signal": "L1CA", "prns": [*SEEN, UNSEEN], "doppler_range": 4000}],
        "send": live | {"array_size": 1},
        "http": {"listen": f"{harness.LOOPBACK}:{harness.free_tcp_port()}"},
        "katcp": {"listen": f"{harness.LOOPBACK}:{harness.free_tcp_port()}"}})
    dsim = {
        "time": sample_rate, "digitiser": {"packet_samples": 4096, "sample_bits": 8, "period": 4096000, "dither_seed": 1},
        "signals": {"specification": f"a = {signals}; a + wgn(0.1, 1); a + wgn(0.1, 2);"},
        "antennas": [{"name": "m000", "digitiser_id": 0, "pol0": feeds[0], "pol1": feeds[1]}], "send": live}
    return fgpu, dsim


def of(metrics, name, prn, **labels):
    return metrics.get(f"fgpu_gnss_{name}", antenna="m000", stream=STREAM, satellite=f"L1CA-{prn}", **labels)


def check_metrics(metrics):
    for prn, (cn0, doppler) in SEEN.items():
        assert all(abs(of(metrics, "cn0_db_hz", prn, pol=pol) - cn0) < 2 for pol in (0, 1))
        assert abs(of(metrics, "doppler_hz", prn) - doppler) < 5
        assert of(metrics, "losses_total", prn) == 0
    assert [of(metrics, "searches_total", prn) > 0 for prn in SEEN] == [prn != STEERED for prn in SEEN]
    assert [of(metrics, name, UNSEEN) for name in ("stage", "doppler_hz")] == [0, 0]
    assert [of(metrics, "cn0_db_hz", UNSEEN, pol=pol) for pol in (0, 1)] == [0, 0]
    heaps, samples = (metrics.get(f"fgpu_gnss_{name}_total", antenna="m000", stream=STREAM) for name in ("heaps", "samples"))
    assert heaps > 20 and abs(samples / (heaps * CHUNK / SUBSAMPLING) - 1) < 0.2


def check_sensors(fgpu):
    with control.Client(fgpu) as client:
        reading = lambda prn, name: client.reading(f"{STREAM}.ant0.L1CA-{prn}.{name}")[1:]
        for prn, (cn0, doppler) in SEEN.items():
            assert reading(prn, "stage") == ("nominal", "tracking")
            for name, low, high in (("cn0", cn0 - 2, cn0 + 2), ("doppler", doppler - 5, doppler + 5), ("age", 1.4, 60)):
                status, value = reading(prn, name)
                assert status == "nominal" and low < float(value) < high, (prn, name, value)
        assert reading(UNSEEN, "stage") == ("inactive", "search")
        assert reading(UNSEEN, "age") == ("inactive", "0")


def mean_peak(heaps, prn, end):
    """Means of the taps' amplitudes over a second, of the records of heaps that begin before 'end', relative to the prompt's."""
    records = np.concatenate([heap.items["gnss_sums"] for heap in heaps if heap.items["timestamp"] < end])
    records = records[records["prn"] == prn]
    amplitudes = np.sqrt(np.sum(records["sums"] ** 2, axis=(2, 3)))
    # An integration weighs by e^-age, its age in seconds to the nearest millisecond.
    age_s = (records["timestamp"][-1] - records["timestamp"]) / RATE_HZ
    means = np.average(amplitudes[-8000:], axis=0, weights=np.exp(-age_s[-8000:]))
    return means / means[1]


def check_status(fgpu, receiver):
    """The peak is the peak of the sent sums."""
    def look():
        (told,) = fgpu.status()["gnss"]
        return 0 <= time.time() - told["time"] < 5 and told

    told = harness.until(look, "sums of now")
    end = round((told["time"] - fgpu.config["time"]["sync_time"]) * RATE_HZ)
    receiver.wait(lambda heaps: any(heap.kind == "data" and heap.items["timestamp"] >= end for heap in heaps), "later heaps")
    satellites = {int(sat["name"].removeprefix("L1CA-")): sat for sat in told["satellites"]}
    assert list(satellites) == [*SEEN, UNSEEN] and satellites[UNSEEN]["taps"] is None
    for prn in SEEN:
        sat, expected = satellites[prn], mean_peak(receiver.data(), prn, end)
        assert (sat["stage"], sat["tap_chips"], sat["taps"][1]) == ("tracking", 0.25, 1)
        assert 0.6 < sat["taps"][0] < 0.95 and 0.6 < sat["taps"][2] < 0.95
        assert np.abs(sat["taps"] - expected).max() < 4e-3, f"{prn}: {sat['taps']}, not {expected}"


def check_rows(page):
    """The table shows the values of the metrics.  Satellites below the horizon have dashes."""
    table = page.get_by_role("table", name=ROW)
    at = lambda prn, key: table.locator(f"tr[data-row='L1CA-{prn}'] td[data-key='{key}']")
    text = lambda prn, key: at(prn, key).locator("span").text_content()
    for prn, (cn0, doppler) in SEEN.items():
        assert text(prn, "stage") == "tracking" and abs(number(text(prn, "doppler")) - doppler) < 5
        for pol in (0, 1):
            # one call, because the page may show the next values between two calls
            shown, bar, box = at(prn, f"cn0{pol}").evaluate(
                """cell => [cell.querySelector("span").textContent, ...[".gauge i", ".gauge"].map(
                    part => cell.querySelector(part).getBoundingClientRect().width)]"""
            )
            said = number(shown)
            assert abs(said - cn0) < 2
            assert abs(bar / box - (said - 20) / 35) < 0.02
        shown, hidden, points = at(prn, "peak").evaluate(
            """cell => [cell.querySelector("span").textContent, cell.querySelector("svg").getAttribute("aria-hidden"),
                        cell.querySelector("svg polyline").getAttribute("points")]"""
        )
        assert re.fullmatch(r"early 0\.\d\d", shown) and hidden == "true"
        heights = [26 - float(point.split(",")[1]) for point in points.split()]
        assert abs(heights[0] / heights[1] - number(shown[6:])) < 0.01
    assert [text(UNSEEN, key) for key in ("stage", "cn00", "cn01", "doppler", "age", "peak")] == ["search"] + 5 * ["–"]
    assert cell(page, "gnss-streams", ROW, "tracked")[0] == "2 of 3"
    assert page.locator("#streams tr[data-row]").count() == 1  # the voltages


def check_troubles(page):
    """A satellite that is not seen is no trouble; heaps that are dropped are, and a stream that sends nothing."""
    row = f"s.streams.find(t => t.stream === '{STREAM}')"
    check_banner(page, "", "ok", "Receiving", "nothing is lost")
    check_banner(page, f"{row}.dropped_heaps.per_s = 2; ", "warn", "Dropping output", ROW)
    check_banner(page, f"{row}.heaps.total = 0; ", "warn", "Output silent", f"no heaps of {ROW} have been sent")
    check_banner(page, f"{row}.heaps.total = 0; s.uptime_s = 29; ", "ok", "Receiving", "nothing is lost")


def check_page(page, url):
    page.goto(url)
    page.wait_for_selector("#satellites tr[data-row='L1CA-7'] svg")
    browser.wait_shown(page, 2)
    check_rows(page)
    for colours in ("light", "dark"):
        page.emulate_media(color_scheme=colours)
        check_contrast(page, colours)
    assert page.evaluate("Math.max(...[...document.querySelectorAll('main > *:not([hidden]), #satellites-card td')]"
                         ".map(e => e.getBoundingClientRect().right + scrollX))") <= page.viewport_size["width"]
    check_troubles(page)
    show(page, WELL + "s.time = s.gnss[0].time + 10.4; ")
    assert page.locator("#satellites .when").text_content().endswith(" UTC, 10 s old")
    assert page.locator("#satellites td[data-key='cn00'] > span").count() == 3
    assert page.locator("#satellites td[data-key='cn00'][data-level='idle']").count() == 3
    check_contrast(page, "old")
    assert not page.complaints, page.complaints


WRONG = [
    (("gnss-drop", "wide", "L1CA-7"), "there is no stream of satellites 'wide'"),
    (("gnss-add", STREAM, "E1B-7"), f"stream {STREAM} has no satellite 'E1B-7'; satellites have names like L1CA-7"),
    (("gnss-drop", STREAM, "L1CA-7", "m001"), "there is no antenna 'm001'"),
    (("gnss-steer", STREAM, "L1CA-7", "m000", "-1", "0", "0"), "the timestamp must be a number from 0 to"),
    (("gnss-steer", STREAM, "L1CA-7", "m000", "0", "1024", "0"), "the code phase must be a number from 0 to 1023"),
    (("gnss-steer", STREAM, "L1CA-7", "m000", "0", "0", "x"), "the Doppler must be a number from -50000 to 50000"),
]


def steer(client, fgpu, prn, unix_s, doppler_error_hz):
    """Sends fgpu the place of the satellite's code at a time."""
    doppler = SEEN[prn][1]
    timestamp = round((unix_s - fgpu.config["time"]["sync_time"]) * RATE_HZ)
    code = 1.023e6 * (1 + doppler / 1575.42e6) * (timestamp - 1000.25 - prn) / RATE_HZ % 1023
    client.ask("gnss-steer", STREAM, f"L1CA-{prn}", "m000", timestamp, code, doppler + doppler_error_hz)


def check_requests(fgpu):
    """A dropped satellite stays dropped.  After it is steered to its place, fgpu follows it without a search."""
    prn = 19
    doppler = SEEN[prn][1]
    with control.Client(fgpu) as client:
        for request, says in WRONG:
            with pytest.raises(control.FailReply, match=re.escape(says)):
                client.ask(*request)
        client.ask("gnss-drop", STREAM, f"L1CA-{prn}")
        fgpu.wait_metric(lambda m: of(m, "stage", prn) == 0, "the satellite is dropped")
        n_searches = of(fgpu.metrics(), "searches_total", prn)
        steer(client, fgpu, prn, fgpu.status()["gnss"][0]["time"], 20)
        metrics = fgpu.wait_metric(lambda m: of(m, "stage", prn) == 3, "the satellite is steered to")
        assert of(metrics, "searches_total", prn) == n_searches and abs(of(metrics, "doppler_hz", prn) - doppler) < 5
        client.ask("gnss-drop", STREAM, f"L1CA-{prn}", "m000")
        fgpu.wait_metric(lambda m: of(m, "stage", prn) == 0, "the satellite is dropped again")
        client.ask("gnss-add", STREAM, f"L1CA-{prn}")
        fgpu.wait_metric(lambda m: of(m, "stage", prn) > 0, "the satellite is found again")
        assert of(fgpu.metrics(), "searches_total", prn) > n_searches


def check_plan(config, heaps):
    """scripts/array plans with heaps of this size."""
    array = {"time": config["time"], "fgpu": {"recv": config["recv"]}, "satellites": config["satellites"]}
    assert {len(heap.items["gnss_sums"]) for heap in heaps} == {array_plan.gnss_pieces(array, config["gnss"][0])}
    assert heaps[0].items["gnss_sums"].dtype.itemsize == array_plan.GNSS_RECORD_BYTES


def test_live(daemon):
    config, dsim = configs()
    with harness.Receiver(config["gnss"][0]["destination"]) as receiver:
        fgpu = daemon("fgpu", config, first=True).wait_ready()
        with control.Client(fgpu) as client:
            steer(client, fgpu, STEERED, time.time(), 0)  # before there are data
        daemon("dsim", dsim, first=True).wait_ready()
        # A search may take a strong satellite for the absent one, because codes correlate.  The loops must then lose it.
        metrics = fgpu.wait_metric(lambda m: all(of(m, "stage", prn) == 3 for prn in SEEN) and of(m, "stage", UNSEEN) == 0,
                                   "satellites are tracked")
        check_metrics(metrics)
        check_sensors(fgpu)
        check_status(fgpu, receiver)
        check_plan(config, receiver.data())
        url = f"http://{fgpu.config['http']['listen']}/"
        with browser.client() as chromium:
            for size in ({}, {"width": 360, "height": 740, "scale": 2}):
                check_page(browser.new_page(chromium, **size), url)
    check_requests(fgpu)
    fgpu.terminate().wait_end()
