"""Debian's headless Chromium, through playwright's client.  If either is missing, tests that need them skip."""
import contextlib
import shutil

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)


@contextlib.contextmanager
def client():
    """A browser without pages."""
    playwright = pytest.importorskip("playwright.sync_api", reason="there is no playwright: scripts/setup ci")
    if not CHROMIUM:
        pytest.skip("there is no Chromium: scripts/setup ci")
    with playwright.sync_playwright() as control:
        made = control.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


def new_page(made, width=1280, height=900, colours="light", scale=1):
    """A page of a browser. The list 'complaints' has the page's errors."""
    context = made.new_context(viewport={"width": width, "height": height}, color_scheme=colours, device_scale_factor=scale)
    page_made = context.new_page()
    page_made.set_default_timeout(150000)  # a loss while the array starts is told for a minute
    page_made.complaints = []
    page_made.on("console", lambda message: message.type == "error" and page_made.complaints.append(
        f"{message.text} {message.location.get('url', '')}".strip()))
    page_made.on("pageerror", lambda error: page_made.complaints.append(str(error)))
    return page_made


@contextlib.contextmanager
def page(**options):
    """A page of a separate browser."""
    with client() as made:
        yield new_page(made, **options)


def take(made, path, n_colours, max_bytes, **options):
    """Writes a picture of the page with few colours."""
    from PIL import Image

    made.mouse.move(0, 0)
    made.screenshot(path=path, **options)
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(n_colours, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    assert path.stat().st_size < max_bytes, f"{path} has {path.stat().st_size} bytes"


def wait_shown(made, n=1):
    """Waits until answers have been shown so many times more; the page counts them."""
    shown = int(made.locator("body").get_attribute("data-shown") or 0)
    made.wait_for_function("n => Number(document.body.dataset.shown || 0) >= n", arg=shown + n)
