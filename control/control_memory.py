"""The last hour of the array: its states, losses and troubles.  A restart of an engine does not remove them."""

from control_merge import RANK

HOUR_S = 3600
ROW_S = 20  # length of a row of the history
LATELY_S = 60


class Losses:
    """The times at which each loss last grew.  After a restart, an engine's counters begin at 0 again."""

    def __init__(self):
        self.totals, self.last = {}, {}

    def take(self, rows, now):
        """Returns the rows of losses that grew in the last hour.  Adds "last" to each row, the UNIX time of the last
        growth."""
        kept = []
        for row in rows:
            key = (row.get("antenna") or row.get("engine"), row["stage"])
            before = self.totals.get(key)
            self.totals[key] = row["total"]
            if row["per_s"] > 0 or before is not None and row["total"] > before:
                self.last[key] = now
            last = self.last.get(key)
            if last is not None and now - last < HOUR_S:
                kept.append({**row, "last": round(last, 1)})
        return kept


class Troubles:
    """Troubles that engines reported in the last hour, and engines that did not answer.  The same trouble of several
    engines is one row."""

    def __init__(self):
        self.rows = {}  # (engine, where, stage, what): row of one engine's trouble
        self.started = {}  # engine: start time of its process
        self.before = {}  # key of a row: the row's n_hour when the engine's former process ended

    def take(self, pages, now):
        for page in pages:
            if page.status is None:
                self._absent(page, now)
            else:
                self._answer(page, now)
        self.rows = {key: row for key, row in self.rows.items() if row["ongoing"] or now - row["last"] < HOUR_S}
        return self._group()

    def _absent(self, page, now):
        key = (page.name, page.host, "control network", page.why)
        for other in [k for k in self.rows if k[0] == page.name]:
            self.rows[other]["ongoing"] = False
        row = self.rows.get(key)
        since = row["since"] if row and now - row["last"] < LATELY_S else now
        self.rows[key] = {
            "engine": page.name,
            "host": page.host,
            "where": page.name,
            "stage": "engine",
            "what": page.why,
            "level": "bad",
            "since": since,
            "last": now,
            "ongoing": True,
            "n_hour": 0,
            "advice": f"look at the host {page.host}, then at the engine there: systemctl status "
            f"'{page.program}@*'; journalctl shows why the engine ended",
        }

    def _answer(self, page, now):
        if self.started.get(page.name) not in (None, page.status["start_time"]):
            self.before.update({k: r["n_hour"] for k, r in self.rows.items() if k[0] == page.name})
        self.started[page.name] = page.status["start_time"]
        said = set()
        for t in page.status.get("troubles") or []:
            key = (page.name, t["where"], t["stage"], t["what"])
            said.add(key)
            row = self.rows.get(key)
            # if the engine's former process has already reported the trouble, the row keeps its first time
            since = min(filter(None, (t["since"], row and row["since"])), default=now)
            n_hour = (t["n_hour"] if not t["unit"] else 0) + (self.before.get(key, 0) if row else 0)
            self.rows[key] = {
                "engine": page.name,
                "host": page.host,
                "where": t["where"],
                "stage": t["stage"],
                "what": t["what"],
                "level": t["level"],
                "since": since,
                "last": t["last"] or now,
                "ongoing": t["ongoing"],
                "n_hour": n_hour,
                "advice": t["advice"],
            }
        for key, row in self.rows.items():
            if key[0] == page.name and key not in said:
                row["ongoing"] = False

    def _group(self):
        """Returns one row for each trouble, with the engines that report the trouble.  Ongoing troubles come first,
        then the worst troubles, then the latest troubles."""
        groups = {}
        for row in self.rows.values():
            key = (row["where"], row["stage"], row["what"])
            group = groups.get(key)
            if group is None:
                groups[key] = group = {**row, "engines": [], "hosts": []}
                del group["engine"], group["host"]
            group["engines"].append(row["engine"])
            if row["host"] not in group["hosts"]:
                group["hosts"].append(row["host"])
            group["ongoing"] |= row["ongoing"]
            group["since"], group["last"] = min(group["since"], row["since"]), max(group["last"], row["last"])
            group["n_hour"] = max(group["n_hour"], row["n_hour"])
        return sorted(
            groups.values(), key=lambda g: (not g["ongoing"], -RANK[g["level"]], -g["last"], g["where"], g["what"])
        )


class History:
    """A row for each 20 s of the last hour: the worst state, the largest loss and the mean data rate in these 20 s."""

    def __init__(self):
        self.rows = []
        self.n = 0  # number of samples in the newest row

    def take(self, now, level, lost_per_s, in_gbps):
        t = int(now // ROW_S) * ROW_S
        if not self.rows or self.rows[-1]["t"] != t:
            self.rows.append({"t": t, "state": level, "lost_per_s": lost_per_s, "in_gbps": in_gbps})
            self.rows = [row for row in self.rows if now - row["t"] <= HOUR_S]
            self.n = 1
            return list(self.rows)
        row = self.rows[-1]
        self.n += 1
        row["state"] = max(row["state"], level, key=RANK.get)
        row["lost_per_s"] = max(row["lost_per_s"], lost_per_s)
        row["in_gbps"] = round(row["in_gbps"] + (in_gbps - row["in_gbps"]) / self.n, 9)
        return [*self.rows[:-1], dict(row)]
