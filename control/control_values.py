"""Checks of requests' arguments, with the same limits as in the engines.  Each check returns the text that the engines
get, or raises FailReply with one sentence."""
import math
import re

from aiokatcp import FailReply

MAX_GAIN = 1e9             # the same limit as in fgpu
MAX_RATE = 1e-3            # s/s
MAX_DELAY_S = 1.0          # limit for beams, and for streams without max_delay
MODEL = re.compile(r"[^,:]+(,[^,:]+){1,2}:[^,:]+(,[^,:]+){1,2}")
BEAM_DELAY = re.compile(r"[^,:]+:[^,:]+")
BEAM_MODEL = re.compile(r"[^,:]+(,[^,:]+)?:[^,:]+(,[^,:]+)?")


def number(text, what):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise FailReply(f"{what} must be a finite number, not '{text[:64]}'")
    return value


def gains(texts, channels):
    """Checks complex gains: one for all channels, or one for each channel."""
    if len(texts) not in (1, channels):
        raise FailReply(f"the request must have one gain or {channels} gains, not {len(texts)}")
    for text in texts:
        try:
            value = abs(complex(text))
        except (ValueError, OverflowError):
            value = math.nan
        if not math.isfinite(value):
            raise FailReply(f"a gain must be a finite complex number like 1-0.5j, not '{text[:64]}'")
        if value > MAX_GAIN:
            raise FailReply(f"a gain must have a magnitude of at most {MAX_GAIN:g}, not '{text[:64]}'")
    return list(texts)


def _check_numbers(text, max_delay_s):
    delay, phase = ([number(part, f"each number of the model '{text[:64]}'") for part in half.split(",")]
                    for half in text.split(":"))
    if abs(delay[0]) > max_delay_s:
        raise FailReply(f"the magnitude of a delay must be at most {max_delay_s:g} s: '{text[:64]}'")
    if len(delay) > 1 and abs(delay[1]) > MAX_RATE:
        raise FailReply(f"the magnitude of a delay rate must be at most {MAX_RATE:g} s/s: '{text[:64]}'")


def model(text, max_delay_s=MAX_DELAY_S):
    """Checks a model delay,rate:phase,phase_rate, or such a model with one or two accelerations."""
    if not MODEL.fullmatch(text):
        raise FailReply(f"a model must be delay,rate:phase,phase_rate in s, s/s, rad, rad/s, not '{text[:64]}'")
    _check_numbers(text, max_delay_s)
    return text


def models(texts, labels, max_delay_s=MAX_DELAY_S):
    """Returns {label: model} of a request.  The request has a model for each input in order, or INPUT=MODEL.  INPUT is
    a label or a number."""
    addressed = ["=" in text for text in texts]
    if not texts or (any(addressed) and not all(addressed)):
        raise FailReply("INPUT= must stand before all models or before none")
    if not any(addressed):
        if len(texts) != len(labels):
            raise FailReply(f"the request must have {len(labels)} models, one for each input, not {len(texts)}")
        return {label: model(text, max_delay_s) for label, text in zip(labels, texts)}
    found = {}
    for text in texts:
        name, _, rest = text.partition("=")
        label = input_label(name, labels)
        if label in found:
            raise FailReply(f"there are two models for input {label}")
        found[label] = model(rest, max_delay_s)
    return found


def input_label(text, labels):
    """Returns the label of an input, which may be given by its number."""
    if text in labels:
        return text
    if text.isascii() and text.isdigit() and int(text) < len(labels):
        return labels[int(text)]
    raise FailReply(f"there is no input '{text[:64]}': inputs are 0 to {len(labels) - 1}, or an antenna's name with "
                    "v or h")


def start(text, sync_time_s):
    """Checks a load time in UNIX seconds."""
    if number(text, "the load time") < sync_time_s:
        raise FailReply(f"the load time {text[:64]} is before the sync time {sync_time_s:.15g}")
    return text


def weights(texts, counts, is_incoherent=False):
    """Checks real weights.  'counts' are the possible numbers of weights."""
    if len(texts) not in counts:
        raise FailReply(f"the request must have {' or '.join(map(str, sorted(counts)))} weights, not {len(texts)}")
    for text in texts:
        if number(text, "a weight") < 0 and is_incoherent:
            raise FailReply(f"weights of an incoherent beam must be 0 or more, not '{text[:64]}'")
    return list(texts)


def beam_models(texts, counts, is_timed):
    """Checks models of a beam: delay:phase.  With a load time, they may also be delay,rate:phase,phase_rate."""
    if len(texts) not in counts:
        raise FailReply(f"the request must have {' or '.join(map(str, sorted(counts)))} delays, not {len(texts)}")
    for text in texts:
        if not BEAM_DELAY.fullmatch(text):
            if not BEAM_MODEL.fullmatch(text) or text.count(",") != 2:
                raise FailReply(f"a delay must be delay:phase or delay,rate:phase,phase_rate, not '{text[:64]}'")
            if not is_timed:
                raise FailReply(f"a model with rates needs a load time: '{text[:64]}'")
        _check_numbers(text, MAX_DELAY_S)
    return list(texts)
