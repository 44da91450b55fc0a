"""Sends random requests to a controller from unmodified aiokatcp clients, and checks each reply.

Engines are good, stopped (no process) or hung (a process that has been stopped).  A request that concerns only good
engines must succeed.  Any other request must fail, and its reply must name exactly the engines that are not good.
"""
import asyncio
import random
import re
import time
from dataclasses import dataclass

import aiokatcp

from controlled import SYNC_TIME_S
from harness import LOOPBACK

NAMED = re.compile(r"\b([fx]\d+) on cbf\d+ ")


@dataclass
class Answer:
    """A reply, its times (monotonic), and a text by which the engines' notes name the request."""

    name: str
    tag: str
    start_s: float
    end_s: float
    is_right: bool
    late: list  # good engines that the reply names
    text: str


def requests(config, rng, n):
    """Yields n random requests: (tag, name, arguments, names of the engines concerned)."""
    labels = [a["name"] + pol for a in config["antennas"] for pol in "vh"]
    fengs = {name: e["name"] for e in config["engines"] for name in e.get("antennas", [])}
    xengs = [e["name"] for e in config["engines"] if e["program"] == "xbgpu"]
    n_ants = len(config["antennas"])
    for i in range(n):
        some = rng.sample(labels, rng.randint(1, 4))
        label, value, start = some[0], f"{i + 1}.0", f"{SYNC_TIME_S + i}.5"
        yield rng.choice([
            (value, "gain", ("wide", label, value), [fengs[label[:-1]]]),
            (value, "gain-all", ("wide", value), list(fengs.values())),
            (start, "delays", ("wide", start, *["0,0:0,0"] * len(labels)), list(fengs.values())),
            (start, "delays", ("wide", start, *[f"{each}=1e-9,0:0,0" for each in some]),
             [fengs[each[:-1]] for each in some]),
            (value, "beam-weights", ("wide-beam", *[value] * n_ants), xengs),
            (start, "beam-delays", ("search.1", start, *["0:0"] * n_ants), xengs),
            (value, "beam-quant-gains", ("wide-beam", value), xengs),
            (value, "beam-calibration", ("wide", label, value), xengs),
            (str(i), "capture-start", ("wide-vis", str(i)), xengs)])


async def client(port, queue, bad, answers):
    async with await aiokatcp.Client.connect(LOOPBACK, port) as katcp:
        for tag, name, args, engines in queue:
            start_s = time.monotonic()
            reply, _ = await katcp.request_raw(name, *args)
            end_s = time.monotonic()
            status, *text = (arg.decode() for arg in reply.arguments)
            text = text[0] if text else ""
            expected = sorted(bad & set(engines))
            named = NAMED.findall(text)
            is_right = status == ("fail" if expected else "ok") and sorted(named) == expected
            answers.append(Answer(name, tag, start_s, end_s, is_right, sorted(set(named) - bad), text))


async def run(config, seed, n, bad, n_clients=4):
    """Sends n requests from several clients at once.  'bad' are the names of engines that are stopped or hung.  Returns
    the answers."""
    port = int(config["katcp"]["listen"].split(":")[1])
    queue, answers = requests(config, random.Random(seed), n), []
    await asyncio.gather(*(client(port, queue, bad, answers) for _ in range(n_clients)))
    return answers


async def replied_s(config, bad):
    """Returns {(request, tag): monotonic time of the last reply of a good engine}."""
    last = {}
    for engine in config["engines"]:
        if engine["name"] not in bad:
            async with await aiokatcp.Client.connect(LOOPBACK, int(engine["katcp"].split(":")[1])) as katcp:
                for inform in (await katcp.request("requests"))[1]:
                    at_s, note = (arg.decode() for arg in inform.arguments)
                    name, *args = note.split()
                    for tag in args:
                        last[name, tag] = max(last.get((name, tag), 0), float(at_s))
    return last


def overheads_s(answers, last, timeout_s):
    """Returns how long after the slowest good engine's reply, or after the time-out, each request was answered.

    A request may wait behind the request that found a hung engine.  It was then answered when that engine was found.
    """
    hung_s = max((answer.end_s for answer in answers if "did not answer" in answer.text), default=0)
    found = []
    for answer in answers:
        begun_s = max(last.get((answer.name, answer.tag), 0), answer.start_s)
        if answer.start_s < hung_s and re.search("answer|busy", answer.text):
            begun_s = max(begun_s, min(hung_s, answer.start_s + timeout_s))
        found.append(answer.end_s - begun_s)
    return sorted(found)
