#!/usr/bin/env python3
"""Takes the pictures of the array page for the documents.  One shows 64 antennas with hand-made answers.  One shows the
demonstration's array with a cut feed and a killed F-engine.

    CBF_BUILD=build .venv/bin/python tests/control/array_screenshots.py docs/images
"""

import pathlib
import signal
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/system", "tests/models", "scripts", "control")]

import array_page
import browser
import control
import demo_array
import harness
import status_pages
from test_watch import Array

MAX_BYTES = 150 << 10
DEMO_S = 60  # length of the history of the demonstration's array


def take(page, path):
    browser.take(page, path, 64, MAX_BYTES)
    print(path, path.stat().st_size)


def hour(*faults):
    """An array of 64 antennas after an hour.  Its faults (functions of the array) begin in the last four minutes."""
    report = {
        "pointing": {"wide": {"target": "PKS 1934-638", "until": time.time() + 600}},
        "calibration": {"wide": {"time": time.time() - 4000, "coherence": 0.995, "reference": "m000"}},
    }
    array = Array(controller=status_pages.Controller(report=report))
    array.now = time.time() - 3600
    for i in range(180):
        array.answers["f7"]["inputs"][1]["missing_heaps"] = status_pages.counter(
            77 if i >= 100 else 0, 3.0 if 100 <= i < 103 else 0.0
        )
        if i == 168:
            for fault in faults:
                fault(array)
        array.look(after_s=20)
    return array.config, array.watch.state


def cut_feed(array):
    array.silence_feed(13)
    array.answers["f13"]["troubles"] = [
        status_pages.trouble(
            "m013 pol 0",
            "digitiser to F-engine",
            "no packets",
            ongoing=True,
            unit="s",
            since=array.now,
            last=array.now,
            advice="look at the digitiser, its cable and its switch port; cbf-doctor streams shows what arrives",
        )
    ]


def kill_engine(array):
    del array.answers["f33"]
    array.mute(33)


def lose_packets(array):
    array.answers["f20"]["inputs"][0].update(missing_heaps=status_pages.counter(500, 420.0))


def hand_made(directory, made):
    for name, faults, size, height in (
        ("array-healthy", (), {"width": 1280}, 1250),
        ("array-trouble", (cut_feed, kill_engine, lose_packets), {"width": 1280}, 1560),
        ("array-phone", (cut_feed, kill_engine, lose_packets), {"width": 360, "scale": 2, "colours": "dark"}, 1000),
    ):
        served = array_page.FixedPage(*hour(*faults))
        page = browser.new_page(made, height=height, **size)
        page.goto(served.url)
        browser.wait_shown(page, 2)
        take(page, directory / f"{name}.png")
        page.close()
        served.stop()


def demo(directory, made, work):
    started = []

    def daemon(program, config, name=None, **options):
        started.append(harness.Daemon(program, config, work, name, **options))
        return started[-1]

    try:
        array = demo_array.Array(daemon, work, katcp=True, recording=work / "recording.uvh5").start(
            *demo_array.ENGINES, "visrec", "dsim"
        )
        served = array_page.ArrayPage(array_page.config_of(array))
        dsim = control.Client(array["dsim"])
        page = browser.new_page(made, width=1200, height=900)
        page.goto(served.url + "#baseline=m000,m001")
        page.wait_for_selector("#banner[data-state='ok']")
        time.sleep(DEMO_S)
        page.set_viewport_size({"width": 1200, "height": 1500})
        take(page, directory / "array-demo.png")
        dsim.request("loss", "m001", 1)
        page.wait_for_selector("#reason:has-text('m001: no data')")
        page.wait_for_selector("#troubles-table td:has-text('m001 pol 0')")
        browser.wait_shown(page, 3)
        page.set_viewport_size({"width": 1200, "height": 1180})
        take(page, directory / "array-cut-feed.png")
        dsim.request("loss", "m001", 0)
        page.wait_for_function("() => document.querySelectorAll('#antenna-lamps [data-level=bad]').length === 0")
        array["fgpu1"].process.send_signal(signal.SIGKILL)
        page.wait_for_selector("#reason:has-text('fgpu1 on cbf2 does not answer')")
        page.wait_for_selector("#troubles-table td:has-text('fgpu1')")
        browser.wait_shown(page, 3)
        take(page, directory / "array-killed.png")
        served.stop()
        dsim.close()
    finally:
        for process in started:
            process.kill()


def main(directory):
    with browser.client() as made, tempfile.TemporaryDirectory() as work:
        hand_made(directory, made)
        demo(directory, made, pathlib.Path(work))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve())
