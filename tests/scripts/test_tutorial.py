"""docs/tutorial.md: its commands, unchanged, recover the delay of its recording."""
import contextlib
import os
import re
import signal
import subprocess

import pytest

import harness

PAGE = harness.ROOT / "docs" / "tutorial.md"
FIRST, LAST = "## 1. ", "## Other recordings"  # the commands between these headings


def commands():
    """The page's shell blocks, one after the other, as a reader pastes them into one terminal."""
    text = PAGE.read_text()
    return "".join(re.findall(r"^```sh\n(.*?)^```$", text[text.index(FIRST):text.index(LAST)], re.M | re.S))


def on_free_ports(script):
    """Beside other arrays on this host."""
    for port in sorted(set(re.findall(r"127\.0\.0\.1:(\d+)", script))):
        script = script.replace(f"127.0.0.1:{port}", f"127.0.0.1:{harness.free_tcp_port()}")
    return script.replace(":7148", f":{harness.PORT}")


def test_every_key_has_its_example():
    """The page's files use keys that --print-example explains."""
    for program in ("dsim", "fgpu", "xbgpu", "visrec"):
        example = subprocess.run([harness.BUILD / program, "--print-example"], capture_output=True, text=True, check=True).stdout
        file = re.search(rf"^cat > {program}\.yaml <<'EOF'\n(.*?)^EOF$", commands(), re.M | re.S)[1]
        for key in re.findall(r"(?:^|[{\s])(\w+): ", file):
            assert re.search(rf"^ *[-#]* *{key}:", example, re.M), f"{program}.yaml: {key}"


def run(script, work):
    """Runs the commands.  Returns their output."""
    first = ["nice", "-n", "-10"] if os.geteuid() == 0 else []  # before other tests: it lives in real time
    env = os.environ | {"HOME": str(work)}
    env.pop("NOTIFY_SOCKET", None)
    with (work / "tutorial.log").open("wb") as log:
        shell = subprocess.Popen([*first, "bash", "-c", script], cwd=harness.ROOT, env=env, stdout=log, stderr=log,
                                 start_new_session=True)
    try:
        shell.wait(300)  # matplotlib makes its list of fonts, because HOME is new
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)  # programs that a failure left running
    return (work / "tutorial.log").read_text()


@pytest.mark.skipif(harness.SANITIZED, reason="too slow for samples in real time")
def test_tutorial(work):
    planted = int(re.search(r"delay = 4 << 20, (\d+)", commands())[1])
    script = on_free_ports(commands()).replace('"$PWD/build:$PWD/.venv/bin:', f'"{harness.BUILD}:$PWD/.venv/bin:')
    assert str(harness.BUILD) in script
    for _ in range(3):
        said = run(script, work)
        if "all dumps of a channel are flagged" not in said:  # else the host was too slow for real time, and the script says so
            break
        print(said)
    for program in ("dsim", "fgpu", "xbgpu", "visrec"):
        assert f"{program}.yaml: OK" in said
    found = re.search(r"the sky reaches m001 (\S+) us after m000: (\S+) samples", said)
    assert found, said
    assert abs(float(found[1]) - planted) < 0.05 and float(found[2]) == planted
    assert (work / "my-array" / "fringes.png").stat().st_size > 5000
    for program in ("dsim", "fgpu", "xbgpu"):
        log = (work / "my-array" / f"{program}.log").read_text()
        assert "stopping on a signal" in log and "error" not in log, log
