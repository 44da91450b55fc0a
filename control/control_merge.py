"""Merges the status pages of all engines into the state of the array.

Flow:      control_watch.py: /status.json of each engine -> merge() -> control_memory.py, control_banner.py ->
           /array.json
Units:     rates in Gb/s and heaps per second; times in UNIX seconds; fractions from 0 to 1.
Blame:     if most X-engines miss an antenna, the antenna's lamp shows the loss.  If one X-engine misses antennas that
           other X-engines receive, the lamp of this X-engine shows the loss.
"""

from dataclasses import dataclass, field

RANK = {"ok": 0, "warn": 1, "bad": 2, "absent": 3}
OWN_STAGES = {
    "fgpu": ("F-engine", "socket of the F-engine", "host clock"),
    "xbgpu": ("X-engine", "socket of the X-engine", "host clock"),
    "visrec": None,
    "beamrec": None,
}  # stages whose troubles an engine's lamp shows; None: all stages
GONE = ("dead", "silent")  # states in which an X-engine receives nothing from an antenna
START_S = 10  # an engine may be without data for this time after its start


@dataclass
class Page:
    """The status page of an engine or a recorder.  'status' is the newest answer, or None if the page does not
    answer."""

    name: str
    program: str
    host: str
    url: str
    place: dict  # the engine's row of control.yaml
    status: dict | None = None
    why: str = "has not answered yet"
    answered: float = 0.0  # UNIX time of the newest answer
    quiet: set = field(default_factory=set)  # F-engine's inputs that got no heap between the last two answers
    fengs: dict = field(default_factory=dict)  # X-engine's antennas: {name: row of "fengs"}
    katcp: str = "present"  # state of the KATCP connection: present, absent or hung
    katcp_why: str = ""

    def full_name(self):
        return f"{self.name} on {self.host}"

    def take(self, status, now):
        """Stores a new answer of the status page."""
        self.quiet = quiet_inputs(self.status, status) if self.status and self.program == "fgpu" else set()
        self.fengs = {f["antenna"]: f for f in status.get("fengs", [])} if self.program == "xbgpu" else {}
        self.status, self.why, self.answered = status, "", now


def per_s(counter):
    """Returns the rate of a counter of /status.json; 0 if the rate is not known."""
    return (counter or {}).get("per_s") or 0.0


def total(counter):
    return (counter or {}).get("total") or 0


def sum_of(counters, read):
    """Returns read(counter) of one counter, or the sum of read(counter) over {reason: counter}."""
    if not counters:
        return 0
    return read(counters) if "total" in counters else sum(read(c) for c in counters.values())


def names_of(names, most=3):
    """Returns names as text, such as "m000, m001, m002 and 5 more"."""
    names = list(names)
    if len(names) <= most + 1:
        return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else ""
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def percent(fraction):
    return f"{100 * fraction:.2g} %" if fraction < 0.995 else "100 %"


def quiet_inputs(before, status):
    """Returns {(antenna, pol)} of an F-engine's inputs that received no heap between two answers."""
    if before["start_time"] != status["start_time"]:
        return set()
    totals = {(i.get("antenna"), i.get("pol")): total(i.get("heaps")) for i in before.get("inputs", [])}
    return {
        (i["antenna"], i["pol"])
        for i in status.get("inputs", [])
        if (i.get("heaps") or {}).get("per_s") == 0 and totals.get((i["antenna"], i["pol"])) == total(i["heaps"])
    }


def worst(found):
    """Returns the worst state in [(state, why)], and all causes of this state as one text."""
    if not found:
        return "ok", ""
    state = max((s for s, _ in found), key=RANK.get)
    return state, "; ".join(dict.fromkeys(why for s, why in found if s == state))


def current(status):
    """Returns the troubles that exist now or existed in the last minute."""
    return [t for t in status.get("troubles") or [] if t["ongoing"] or t["n_minute"] > 0]


def trouble_text(trouble):
    if trouble["unit"] == "s" or trouble["ongoing"]:
        return f"{trouble['where']}: {trouble['what']}"
    return f"{trouble['where']}: {trouble['n_minute']} {trouble['what']} in the last minute"


# ---- F-engines' inputs -----------------------------------------------------------------------------------------------


def of_antenna(antenna, where):
    """Returns True if the text 'where' of a trouble names only this antenna: "m000", "m000 pol 0" or "m000 wide".
    Returns False if the text names several antennas: "m000 to m003"."""
    return where == antenna or where.startswith(f"{antenna} ") and not where.startswith(f"{antenna} to ")


def judge_feed(page, antenna):
    """Returns [(state, why)] of an antenna, as its F-engine reports."""
    if page.status is None:
        return [("absent", f"{page.full_name()} {page.why}")]
    troubles = [t for t in current(page.status) if of_antenna(antenna, t["where"])]
    inputs = [i for i in page.status.get("inputs", []) if i.get("antenna") == antenna]
    stopped = any(t["ongoing"] and t["what"] == "no packets" for t in troubles)
    silent = [
        i["pol"]
        for i in inputs
        if (antenna, i["pol"]) in page.quiet or stopped and (i.get("heaps") or {}).get("per_s") == 0
    ]
    if silent:
        pols = "both polarisations" if len(silent) == len(inputs) > 1 else f"polarisation {silent[0]}"
        return [("bad", f"no data from the digitiser on {pols}")]
    found = []
    for i in inputs:
        fraction = loss_of(i)
        if fraction:
            found.append(
                ("warn", f"loses {percent(fraction)} of the packets from the digitiser on polarisation {i['pol']}")
            )
    found += [("warn" if t["level"] == "warn" else "bad", t["what"]) for t in troubles if t["ongoing"]]
    return found


def loss_of(counters):
    """Returns the fraction of heaps that an input or an antenna's stream loses now."""
    missing, heaps = per_s(counters.get("missing_heaps")), per_s(counters.get("heaps"))
    return missing / (missing + heaps) if missing else 0.0


# ---- X-engines' antennas ---------------------------------------------------------------------------------------------


def hearing(x_pages):
    """Returns {antenna: {X-engine: (state, lost fraction)}} for the X-engines that answer.  A state is receiving,
    losing, silent, dead or late."""
    heard = {}
    for page in x_pages:
        for antenna, feng in page.fengs.items():
            state, lost = feng["state"], 0.0
            if state == "losing":
                lost = loss_of(feng)
                state = state if lost else "receiving"
            heard.setdefault(antenna, {})[page.name] = (state, lost)
    return heard


def is_deaf(page):
    """Returns True if an X-engine receives heaps from no antenna, although it has run for more than START_S."""
    started_s = page.status["time"] - page.status["start_time"]
    return started_s > START_S and bool(page.fengs) and all(f["state"] in GONE for f in page.fengs.values())


def blame(heard, deaf):
    """Attributes each loss to an antenna or to an X-engine.  Returns ({antenna: {X-engine: value}}, {X-engine:
    {antenna: value}}).  X-engines in 'deaf' receive nothing, so their reports about antennas do not count."""
    of_antennas, of_engines = {}, {}
    for antenna, engines in heard.items():
        told = {e: v for e, v in engines.items() if e not in deaf}
        lost = {e: v for e, v in told.items() if v[0] != "receiving"}
        if 2 * len(lost) > len(told):
            of_antennas[antenna] = lost
        else:
            for engine, value in lost.items():
                of_engines.setdefault(engine, {})[antenna] = value
    return of_antennas, of_engines


def heard_text(lost):
    """Returns (state, why) of an antenna from which X-engines receive nothing or lose heaps."""
    gone = [e for e, (state, _) in lost.items() if state in GONE]
    if gone:
        return "bad", f"no heaps arrive at {names_of(gone)}"
    return "warn", f"loses {percent(max(f for _, f in lost.values()))} of the heaps on the way to {names_of(lost)}"


# ---- Engines ---------------------------------------------------------------------------------------------------------


def judge_engine(page, antennas, lost, deaf, f_sends):
    """Returns [(state, why)] of an engine.  'lost' has the antennas whose heaps this X-engine misses, but most
    X-engines receive.  'f_sends' is true if an F-engine sends data."""
    if page.status is None:
        return [("absent", page.why)]
    s, found = page.status, []
    if s["state"] != "running":
        found.append(("warn", {"starting": "is starting", "draining": "is stopping"}.get(s["state"], s["state"])))
    if page.katcp != "present":
        found.append(("warn", page.katcp_why or f"its KATCP server is {page.katcp}"))
    if not s.get("healthy", True):
        losing = page.program in ("visrec", "beamrec")
        found.append(
            ("bad", "does not record all data" if losing else "its results are wrong, or its device has failed")
        )
    if s.get("device") and not s["device"]["ok"]:
        found.append(("bad", f"its device {s['device']['model']} has failed"))
    stages = OWN_STAGES.get(page.program)
    for t in current(s):
        own = stages is None or t["stage"] in stages or "contested" in t["what"]
        if own and not any(of_antenna(a, t["where"]) for a in antennas):
            found.append((t["level"], t["what"] if t["where"] == t["stage"] else trouble_text(t)))
    if page.name in deaf and f_sends:
        found.append(("bad", "receives no heaps from any antenna"))
    if lost:
        gone = [a for a, (state, _) in lost.items() if state in GONE]
        found.append(
            ("bad", f"receives no heaps of {names_of(gone)}") if gone else ("warn", f"loses heaps of {names_of(lost)}")
        )
    return found


def gbps(parts, key="bytes"):
    return round(sum(per_s(p.get(key)) for p in parts) * 8e-9, 9)


def rates(page):
    """Returns (Gb/s received, Gb/s sent) of an engine."""
    s = page.status or {}
    if page.program in ("visrec", "beamrec"):
        return gbps([s.get("other") or {}, *s.get("inputs", []), *s.get("streams", [])]), 0.0
    return gbps(s.get("inputs", [])), gbps(s.get("streams", []))


def carries(page):
    """Returns the antennas of an F-engine, the channels of an X-engine or the stream of a recorder as text."""
    place = page.place
    if page.program == "fgpu":
        names = place.get("antennas", [])
        return f"{names[0]} to {names[-1]}" if len(names) > 2 else ", ".join(names)
    if page.program == "xbgpu":
        first, n = place.get("first_channel", 0), place.get("channels", 0)
        return f"{place.get('stream', '')} channels {first} to {first + n - 1}"
    return place.get("stream", "")


def engine_row(page, found):
    state, why = worst(found)
    received, sent = rates(page)
    started = page.status["start_time"] if page.status else None
    return {
        "name": page.name,
        "program": page.program,
        "host": page.host,
        "state": state,
        "why": why,
        "url": page.url,
        "in_gbps": received,
        "out_gbps": sent,
        "carries": carries(page),
        "started": started,
    }


# ---- Antennas --------------------------------------------------------------------------------------------------------


def antenna_row(name, page, heard, found):
    inputs = {i["pol"]: i for i in (page.status or {}).get("inputs", []) if i.get("antenna") == name} if page else {}
    pol = [
        {
            "rms_dbfs": round(i["power_dbfs"], 1) if total(i.get("heaps")) and "power_dbfs" in i else None,
            "lost_per_s": per_s(i.get("missing_heaps")),
            "lost_total": total(i.get("missing_heaps")),
        }
        for i in (inputs.get("0", {}), inputs.get("1", {}))
    ]
    state, why = worst(found)
    return {
        "name": name,
        "engine": page.name if page else None,
        "state": state,
        "why": why,
        "pol": pol,
        "heard_by": sum(s not in GONE for s, _ in heard.values()),
        "of": len(heard),
    }


# ---- Losses ----------------------------------------------------------------------------------------------------------


def loss(key, stage, lost, received=()):
    """Returns a row of losses.  'lost' and 'received' are lists of counters."""
    n = sum(sum_of(c, total) for c in lost)
    rate = sum(sum_of(c, per_s) for c in lost) if n else 0.0
    whole = sum(map(per_s, received)) if rate else 0.0
    return {
        **key,
        "stage": stage,
        "per_s": round(rate, 3),
        "total": n,
        "fraction": round(min(1.0, rate / (rate + whole)), 6) if rate and whole else float(rate > 0 and bool(received)),
    }


def losses_of_antenna(name, page, x_pages):
    key, rows = {"antenna": name}, []
    if page and page.status:
        inputs = [i for i in page.status.get("inputs", []) if i.get("antenna") == name]
        streams = [t for t in page.status.get("streams", []) if t.get("antenna") == name]
        heaps = [i.get("heaps") for i in inputs]
        rows += [
            loss(key, "feed", [i.get("missing_heaps") for i in inputs], heaps),
            loss(key, "feed late", [i.get("too_old_heaps") for i in inputs], heaps),
            loss(key, "feed refused", [i.get("rejected_packets") for i in inputs], heaps),
            loss(
                key,
                "fgpu",
                [t.get(k) for t in streams for k in ("skipped_heaps", "dropped_heaps")],
                [t.get("heaps") for t in streams],
            ),
        ]
    fengs = [p.fengs[name] for p in x_pages if name in p.fengs]
    heaps = [f["heaps"] for f in fengs]
    for stage, k in (("network", "missing_heaps"), ("late", "late_heaps"), ("refused", "refused_heaps")):
        rows.append(loss(key, stage, [f[k] for f in fengs if f[k]["total"]], heaps))
    return rows


def losses_of_engine(page):
    s = page.status
    receivers, other = s.get("receivers", []), s.get("other") or {}
    drops = [{"total": int(r.get("kernel_drops") or 0), "per_s": 0} for r in receivers]
    outputs = [
        t.get(k)
        for t in s.get("streams", [])
        for k in ("dropped_accs", "wrong_accs", "dropped_heaps", "failed_packets")
    ]
    parts = [("socket", drops), ("refused", [r.get("rejected_packets") for r in receivers])]
    if page.program == "fgpu":
        outputs = [t.get("failed_packets") for t in s.get("streams", [])]
    if page.program in ("visrec", "beamrec"):
        parts += [("network", [other.get("missing_heaps")]), ("recorder", [other.get("unwritten_dumps")])]
    else:
        parts += [(page.program, [other.get("late_chunks"), *outputs])]
    return [loss({"engine": page.name}, stage, lost) for stage, lost in parts]


# ---- Streams and flow ------------------------------------------------------------------------------------------------


def stream_row(stream, pages, antennas):
    """Returns the state of a stream.  A stream of F-engines is whole if no antenna is missing.  A stream of X-engines
    is whole if all its X-engines answer."""
    name, kind = stream["name"], stream["kind"]
    sent = gbps(
        [
            t
            for p in pages
            if p.status
            for t in p.status.get("streams", [])
            if t["stream"] == name or t["stream"].startswith(f"{name}.")
        ]
    )
    if kind in ("voltages", "gnss"):
        missing, of = [a["name"] for a in antennas if a["state"] in ("bad", "absent")], len(antennas)
        why = ""
    else:
        makers = [p for p in pages if p.program == "xbgpu" and p.place.get("stream") == stream.get("source")]
        missing, of = [p.name for p in makers if p.status is None], len(makers)
        idle = [
            p.name
            for p in makers
            if p.status
            and any(o["name"] == name and o.get("sending_from", 0) is None for o in p.status.get("outputs", []))
        ]
        why = f"not sent by {names_of(idle)} (?capture-start sends it)" if idle else ""
    state = "ok" if not missing else "bad" if len(missing) == of else "warn"
    return {"name": name, "kind": kind, "state": state, "why": why, "gbps": sent, "missing": missing, "of": of}


def flow(pages, losses):
    """Returns the data rates and losses between digitisers, F-engines, the switch, X-engines and recorders."""

    def lost(*wanted):
        return round(sum(row["per_s"] for row in losses if (row["stage"], "antenna" in row) in wanted), 3)

    of = {program: [p for p in pages if p.program == program and p.status] for program in ("fgpu", "xbgpu")}
    recorders = [p for p in pages if p.program in ("visrec", "beamrec") and p.status]
    f_in, f_out = map(sum, zip(*map(rates, of["fgpu"]))) if of["fgpu"] else (0.0, 0.0)
    x_in, x_out = map(sum, zip(*map(rates, of["xbgpu"]))) if of["xbgpu"] else (0.0, 0.0)
    rows = [
        ("digitisers", "fgpu", f_in, lost(("feed", True))),
        ("fgpu", "switch", f_out, lost(("fgpu", True), ("fgpu", False))),
        ("switch", "xbgpu", x_in, lost(("network", True))),
        ("xbgpu", "recorders", x_out, lost(("xbgpu", False), ("network", False))),
    ]
    if recorders:
        rows.append(("recorders", "disk", sum(rates(p)[0] for p in recorders), lost(("recorder", False))))
    return [{"from": a, "to": b, "gbps": round(rate, 9), "lost_per_s": n} for a, b, rate, n in rows]


# ---- The whole -------------------------------------------------------------------------------------------------------


def merge(config, pages):
    """Returns the array's state: {"engines", "antennas", "streams", "flow", "losses"}.

    'config' is control.yaml as a dictionary.  'pages' are the Pages of the engines and recorders.
    """
    names = [a["name"] for a in config["antennas"]]
    owner = {a: p for p in pages if p.program == "fgpu" for a in p.place.get("antennas", [])}
    x_pages = [p for p in pages if p.program == "xbgpu" and p.status]
    deaf = {p.name for p in x_pages if is_deaf(p)}
    f_sends = any(rates(p)[1] > 0 for p in pages if p.program == "fgpu")
    heard = hearing(x_pages)
    of_antennas, of_engines = blame(heard, deaf)
    antennas, losses = [], []
    for name in names:
        page = owner.get(name)
        found = judge_feed(page, name) if page else [("absent", "no F-engine processes this antenna")]
        if name in of_antennas and not any(RANK[state] >= RANK["bad"] for state, _ in found):
            found.append(heard_text(of_antennas[name]))
        antennas.append(antenna_row(name, page, heard.get(name, {}), found))
        losses += losses_of_antenna(name, page, x_pages)
    engines = [engine_row(p, judge_engine(p, names, of_engines.get(p.name), deaf, f_sends)) for p in pages]
    losses += [row for p in pages if p.status for row in losses_of_engine(p)]
    return {
        "engines": engines,
        "antennas": antennas,
        "flow": flow(pages, losses),
        "losses": losses,
        "streams": [stream_row(s, pages, antennas) for s in config["streams"]],
    }
