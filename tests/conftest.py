"""Shared by every engine test: a directory that stays after a failure, the seed of all random numbers, and a check of the
sanitizers' reports."""
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

import harness
from harness import SEED

try:
    from astropy.utils import iers
except ImportError:  # where there is a GPU, but not what visibilities are compared with
    iers = None

# The earth's rotation by the table that is installed, whatever its age, and past its end without corrections: nothing is
# fetched, and no result depends on the day that the tests run.
if iers:
    iers.conf.auto_download = False
    iers.conf.auto_max_age = None
    iers.conf.iers_degraded_accuracy = "ignore"


def pytest_report_header(config):
    return f"daemons: {harness.BUILD}, fgpu on {harness.DEVICE}, CBF_SEED={SEED}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Lets the 'work' fixture see whether its test failed, and names the directory in the report."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.failed = report.failed
        if report.failed and getattr(item, "work_dir", None):
            report.sections.append(("what the daemons read and wrote", str(item.work_dir)))


@pytest.fixture(autouse=True)
def no_sanitizer_reports(monkeypatch):
    """Fails the test if a sanitizer reports a fault of any program that the test starts, however that program ends."""
    with tempfile.TemporaryDirectory(prefix="cbf-sanitizer-") as reports:
        for options in ("ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"):
            set_by_user = os.environ.get(options, "")
            monkeypatch.setenv(options, f"{set_by_user}:exitcode=66:log_path={reports}/report")
        yield
        texts = [path.read_text(errors="replace") for path in sorted(Path(reports).iterdir())]
        assert not texts, "\n".join(texts)


# A directory that its group may write to is not taken for state or compiled kernels.
os.umask(0o022)


@pytest.fixture
def work(request):
    """A directory for the scenario's YAML, captures and logs.  If the test fails, the directory is kept and its name
    printed."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:60]
    path = Path(tempfile.mkdtemp(prefix=f"cbf-{name}-"))
    request.node.work_dir = path
    yield path
    if not getattr(request.node, "failed", True):
        shutil.rmtree(path)


@pytest.fixture
def rng(request):
    """Random numbers that depend on the test's name and CBF_SEED only."""
    return np.random.default_rng([SEED, *request.node.name.encode()])


@pytest.fixture
def daemon(work):
    """Starts daemons.  Daemons that still run at the end of the test are killed."""
    started = []

    def start(program, config, name=None, **options):
        process = harness.Daemon(program, config, work, name or f"{program}{len(started)}", **options)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def fake_cuda(work, monkeypatch):
    """fake_cuda(settings): later daemons use a cuda device that needs no GPU (tests/fakes/cuda).  Its kernels are the
    CUDA variants.  Skips if they cannot run."""
    if why := harness.why_no_fake_cuda():
        pytest.skip(why)
    for name in ("common", "kernels", "tests"):  # the emulator compiles kernels as if in the root of the tree
        (work / name).symlink_to(harness.ROOT / name)

    def use(settings="gpus=1"):
        monkeypatch.setenv("CBF_CUDA_DEVICE", str(harness.FAKE_CUDA))
        monkeypatch.setenv("CBF_FAKE_CUDA", f"emulate=1,{settings}")

    use()
    return use


@pytest.fixture(scope="session")
def references(tmp_path_factory):
    """The dumps that a chain's must be equal to; see chain.py."""
    import chain

    work = tmp_path_factory.mktemp("references")
    started = []

    def start(program, config, name):
        started.append(harness.Daemon(program, config, work, name))
        return started[-1]

    try:
        return chain.replay_references(start, work)
    finally:
        for process in started:
            process.kill()


@pytest.fixture
def running(daemon, work, references):
    """Makes a running chain, its layout changed by 'overrides', and a receiver that checks every dump."""
    import chain

    made = []

    def start(overrides=None):
        layout = chain.Layout(work, overrides)
        dumps = chain.Dumps(layout, references)
        made.append(dumps)
        running_chain = chain.Chain(daemon, layout)
        running_chain.start(*chain.NAMES)
        return running_chain, dumps

    yield start
    for dumps in made:
        dumps.receiver.stop()
