"""The banner of the array page.  It describes the worst state, and names the antenna, the engine and the host."""

from control_merge import RANK, names_of

N_TOLD = 3  # number of causes that the banner describes; further causes are only counted
HEADLINES = {"absent": "Engines missing", "bad": "No data", "warn": "Losing data", "ok": "All is well"}


def hosts_down(engines):
    """Returns {host: its engines} for each host that has several engines and whose engines are all absent."""
    of = {}
    for e in engines:
        of.setdefault(e["host"], []).append(e)
    return {host: rows for host, rows in of.items() if len(rows) > 1 and all(e["state"] == "absent" for e in rows)}


def antennas_of(engine_names, antennas):
    """Returns ": m002 and m003 are missing" for the antennas of these F-engines; "" for other engines."""
    names = [a["name"] for a in antennas if a["engine"] in engine_names]
    return f": {names_of(names)} {'are' if len(names) > 1 else 'is'} missing" if names else ""


def causes(engines, antennas):
    """Returns [(state, headline, text)], the worst state first.  If an antenna's F-engine is absent, the text about the
    F-engine names the antenna."""
    found, down = [], hosts_down(engines)
    by_name = {e["name"]: e for e in engines}
    for host, rows in down.items():
        names = [e["name"] for e in rows]
        found.append(
            ("absent", "Host missing", f"{host} does not answer ({names_of(names)}){antennas_of(names, antennas)}")
        )
    groups = {}
    for e in engines:
        if e["state"] != "ok" and e["host"] not in down:
            groups.setdefault((e["state"], e["why"]), []).append(e)
    for (state, why), rows in groups.items():
        text = names_of([f"{e['name']} on {e['host']}" for e in rows])
        if state == "absent":
            answer = why if len(rows) == 1 else why.replace("does not", "do not")
            text += f" {answer}{antennas_of([e['name'] for e in rows], antennas)}"
        else:
            text += f": {why}"
        found.append((state, {"absent": HEADLINES["absent"], "bad": "Engine failed"}.get(state, "Degraded"), text))
    groups = {}
    for a in antennas:
        engine = by_name.get(a["engine"])
        if a["state"] != "ok" and not (engine and engine["state"] == "absent"):
            groups.setdefault((a["state"], a["why"], a["engine"]), []).append(a["name"])
    for (state, why, engine), names in groups.items():
        at = f" ({engine} on {by_name[engine]['host']})" if engine in by_name else ""
        headline = HEADLINES["bad"] if state in ("bad", "absent") else HEADLINES["warn"] if "los" in why else "Degraded"
        found.append((state, headline, f"{names_of(names)}: {why}{at}"))
    return sorted(found, key=lambda cause: -RANK[cause[0]])


def make(engines, antennas, lately=()):
    """Returns {"state", "level", "headline", "banner"} of the array.

    'state' is ok, degraded or fail.  'level' is the colour: ok, warn or bad.  'lately' has texts about losses of the
    last minute.  The banner shows these texts only if nothing is wrong now.
    """
    found = causes(engines, antennas)
    n = len(antennas)
    if not found and lately:
        return {"state": "degraded", "level": "warn", "headline": "Lost data", "banner": "; ".join(lately[:N_TOLD])}
    if not found:
        return {
            "state": "ok",
            "level": "ok",
            "headline": HEADLINES["ok"],
            "banner": f"all {n} antennas are received, nothing is lost",
        }
    worst, headline, _ = found[0]
    told = [text for _, _, text in found[:N_TOLD]]
    more = f"; and {len(found) - N_TOLD} more below" if len(found) > N_TOLD else ""
    dead = n and all(RANK[a["state"]] >= RANK["bad"] for a in antennas)
    x_engines = [e for e in engines if e["program"] == "xbgpu"]
    dead = dead or x_engines and all(RANK[e["state"]] >= RANK["bad"] for e in x_engines)
    return {
        "state": "fail" if dead else "degraded",
        "level": "warn" if worst == "warn" else "bad",
        "headline": headline,
        "banner": "; ".join(told) + more,
    }
