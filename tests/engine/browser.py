"""Headless Chromium, as Debian has it, through playwright's client; where either is missing, tests that need them skip."""
import contextlib
import shutil

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)


@contextlib.contextmanager
def page(width=1280, height=900, colours="light", scale=1):
    """A page of a browser of its own; whatever it complains of fails the test."""
    playwright = pytest.importorskip("playwright.sync_api", reason="there is no playwright: scripts/setup ci")
    if not CHROMIUM:
        pytest.skip("there is no Chromium: scripts/setup ci")
    complaints = []
    with playwright.sync_playwright() as control:
        browser = control.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=colours,
                                      device_scale_factor=scale)
        made = context.new_page()
        made.set_default_timeout(60000)
        made.on("console", lambda message: message.type == "error" and complaints.append(message.text))
        made.on("pageerror", lambda error: complaints.append(str(error)))
        made.complaints = complaints
        yield made
        browser.close()


def wait_shown(made, n=1):
    """Waits until answers have been shown so many times more; the page counts them."""
    shown = int(made.locator("body").get_attribute("data-shown") or 0)
    for i in range(shown + 1, shown + n + 1):
        made.wait_for_selector(f"body[data-shown='{i}']")
