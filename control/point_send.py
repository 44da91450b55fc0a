"""Sends models through the array's controller, each ahead of its load time."""
import asyncio
import logging
import time

import aiokatcp

LATE_S = 0.2  # shortest time from the sending of a model to the model's load time; a later model may take effect late
REPLY_TIMEOUT_S = 5
ERRORS = (OSError, TimeoutError, aiokatcp.FailReply, aiokatcp.InvalidReply)
log = logging.getLogger("cbf-point")


class Sender:
    """A connection to the controller, which connects again by itself.  A failure is logged once; pointing continues."""

    def __init__(self, host, port):
        self.client = aiokatcp.Client(host, port)
        self.trouble = {}  # {name of a request: reason of its failure}

    async def close(self):
        self.client.close()
        await self.client.wait_closed()

    async def request(self, name, *arguments):
        """Returns the reply's arguments, or None after a failure."""
        try:
            async with asyncio.timeout(REPLY_TIMEOUT_S):
                await self.client.wait_connected()
                reply, _ = await self.client.request(name, *arguments)
        except ERRORS as error:
            why = str(error) or f"no reply from the controller within {REPLY_TIMEOUT_S} s"
            if self.trouble.get(name) != why:
                log.warning("?%s: %s", name, why)
            self.trouble[name] = why
            return None
        if self.trouble.pop(name, None):
            log.info("?%s succeeds again", name)
        return reply

    async def sensor(self, name):
        """Returns a sensor's value as text; None if there is no such sensor, or no value."""
        try:
            async with asyncio.timeout(REPLY_TIMEOUT_S):
                await self.client.wait_connected()
                _, informs = await self.client.request("sensor-value", name)
        except ERRORS:
            return None
        if len(informs) != 1 or informs[0].arguments[3] in (b"unknown", b"unreachable", b"inactive"):
            return None
        return informs[0].arguments[4].decode()


async def sleep_until(unix_s, stop):
    """Waits until a UNIX time, or until 'stop' is set.  Returns True if 'stop' is set."""
    try:
        async with asyncio.timeout(max(0.0, unix_s - time.time())):
            await stop.wait()
    except TimeoutError:
        pass
    return stop.is_set()


async def follow(sender, pointing, stream, request, name, options, stop):
    """Sends models of a stream or beam 'name' until 'stop' is set or the duration ends.  'request' is delays or
    beam-delays.  Returns False if the target is below the lowest elevation."""
    first_s = float(int(time.time() + options.lead) + 1)
    for models in pointing.sequence(first_s, options.interval):
        end_s = models.start_s + models.length_s
        if options.duration and models.start_s >= first_s + options.duration:
            await sleep_until(first_s + options.duration, stop)
            return True
        if models.elevation_rad < options.lowest_rad:
            return False
        if end_s < time.time():  # this process was stopped for a while
            continue
        if models.error_s > pointing.accuracy_s:
            log.warning("models differ from the exact delays by up to %.1f ps", models.error_s * 1e12)
        if await sleep_until(models.start_s - options.lead, stop):
            return True
        if time.time() > models.start_s - LATE_S:
            log.warning("the models for the UNIX time %.3f are sent late", models.start_s)
        texts = models.texts(stream, per_input=request == "delays")
        accepted = await sender.request(request, name, models.load_time(stream), *texts) is not None
        if accepted and request == "delays":  # the controller has sensors for the pointing of streams, not of beams
            await sender.request("pointing-report", name, pointing.target.text, f"{end_s:.3f}",
                                 f"{pointing.earth.age_s():.0f}")
    raise AssertionError("a sequence of models has no end")
