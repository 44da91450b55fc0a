#!/usr/bin/env python3
"""Takes the pictures of the status page for the documents, from the array that `make demo KEEP=1` left running.

    .venv/bin/python tests/system/screenshots.py docs/images

The waterfalls need 10 minutes to fill.  For the last picture the script breaks an F-engine with scripts/demo, and mends
it afterwards.  Each picture has less than 400 kB, most of them the noise of a waterfall.
"""
import contextlib
import pathlib
import subprocess
import sys
import time

import browser

FILL_S = 600  # what a waterfall shows
MAX_BYTES = 400_000
ROOT = pathlib.Path(__file__).resolve().parents[2]
F_PAGE, X_PAGE = "http://127.0.0.1:7181/#antenna=m003", "http://127.0.0.1:7190/#baseline=0,1"
# name, page, height; a phone has a height of its own
PICTURES = (("status-f-light", F_PAGE, 1480), ("status-x-light", X_PAGE, 1800), ("status-x-dark", X_PAGE, 1800),
            ("status-f-phone", F_PAGE, 844))


def take(page, path):
    browser.take(page, path, 96, MAX_BYTES)


def main(directory):
    with contextlib.ExitStack() as stack:
        control = stack.enter_context(browser.client())
        pages = {}
        for name, url, height in PICTURES:
            kind = name.rsplit("-", 1)[1]
            size = {"width": 390, "scale": 2} if kind == "phone" else {"width": 1200}
            page = browser.new_page(control, colours="light" if kind == "light" else "dark", height=height, **size)
            page.goto(url)
            page.wait_for_selector("#banner[data-state='ok']")
            pages[name] = page
        print(f"waiting for {FILL_S / 60:g} minutes of data", flush=True)
        time.sleep(FILL_S)
        for name, page in pages.items():
            assert page.locator("#banner").get_attribute("data-state") == "ok", page.locator("#banner").text_content()
            take(page, directory / f"{name}.png")
        page = pages["status-x-light"]
        page.set_viewport_size({"width": 1200, "height": 760})
        subprocess.run(["scripts/demo", "break", "fgpu1"], cwd=ROOT, check=True)
        page.wait_for_selector("#reason:has-text('m003 silent for')")
        page.wait_for_selector("#state:has-text('Antennas missing')")
        take(page, directory / "status-x-trouble.png")
        subprocess.run(["scripts/demo", "mend", "fgpu1"], cwd=ROOT, check=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve())
