"""The result of a window of chunks for the remaining packets: heaps received, missing, incomplete and refused, and chunks
that come too late for the other chunks.  Written from the rules (docs/loss.md, common/recv/assemble.h,
common/recv/matcher.h).
"""
import math
from collections import Counter


class Member:
    """The outcome of one window of a replay for packets [(source, time, place in the recording)], 'n_parts' to a heap.

    The window is 'window' chunks of 'chunk' heaps.  A packet further ahead than the window's length is a claim, and is
    held.  When a source has claimed 'jump_heaps' heaps, the window continues at the first held packet, and has all held
    packets.
    """

    def __init__(self, packets, n_sources, n_parts, chunk, window, jump_heaps=8):
        self.chunk, self.window = chunk, window
        self.parts = Counter()
        self.n_refused = 0
        self.left = {}  # {chunk: the packet that made it leave}
        self.oldest, self.still_open = None, set()
        held = {}  # {source: the times of the packets of its claim}
        for source, time, place in packets:
            at = time // chunk
            self.oldest = at if self.oldest is None else self.oldest
            if at - self.oldest < 2 * window:
                # (That others go on where they were, which would speak against a claim, is another test's business.)
                assert not held
                self.place(source, time, place)
                continue
            claim = held.setdefault(source, [])
            if claim and abs(time - claim[-1]) > window * chunk:
                self.n_refused += len(claim)
                claim.clear()
            claim.append(time)
            if len(set(claim)) < jump_heaps:
                continue
            agreeing = sorted((t, s) for s, times in held.items() for t in times
                              if abs(times[-1] - time) <= window * chunk)
            self.n_refused += sum(map(len, held.values())) - len(agreeing)
            self.oldest, held = agreeing[0][0] // chunk, {}
            for t, s in agreeing:
                self.place(s, t, place)
        self.n_refused += sum(map(len, held.values()))
        parts, still_open = self.parts, self.still_open
        self.left |= {c: math.inf for c in still_open}
        self.complete = {heap for heap, n in parts.items() if n == n_parts}
        self.n_incomplete = len(parts) - len(self.complete)
        # Heaps are expected of every source, from the first of any to the last of any.
        times = [time for _, time in parts]
        self.first, self.end = (min(times), max(times) + 1) if times else (0, 0)
        self.n_missing = (self.end - self.first) * n_sources - len(self.complete)
        # Nobody is told of a chunk without a heap.
        self.left = {c: place for c, place in self.left.items() if any(t // chunk == c for _, t in self.complete)}
        self.late = set()

    def place(self, source, time, place):
        """A packet goes to its chunk, and the window with it."""
        at = time // self.chunk
        self.oldest = max(self.oldest, at - self.window + 1)
        self.left |= {c: place for c in self.still_open if c < self.oldest}
        self.still_open = {c for c in self.still_open if c >= self.oldest} | {at}
        self.parts[source, time] += 1

    @property
    def used(self):
        return {(source, time) for source, time in self.complete if time // self.chunk not in self.late}

    def ends(self):
        """The end of the stream in each of the used chunks."""
        return {c: min((c + 1) * self.chunk, self.end) for c in self.left if c not in self.late}

    def line(self):
        return (f"{len(self.complete)} heaps received, {self.n_missing} missing ({self.n_incomplete} of them "
                f"incomplete), {self.n_refused} packets refused")


def match(members, wait):
    """Finds the late chunks.  If a member is silent while another continues for 'wait' chunks, at least a window, no chunk
    waits for the silent member.

    Chunks are joined by time, once every member has brought its own chunk or a later one, or is given up.  Some chunks
    must wait: a chunk further than two windows behind the earlier ones, or a window more than 'wait' ahead.  It waits
    until others agree, or no member contradicts it for a window.
    """
    window = members[0].window
    far = 2 * window
    events = sorted((place, c if place == math.inf else 0, m, c) for m, member in enumerate(members)
                    for c, place in member.left.items())
    held = [[] for _ in members]
    said = [(None, -1)] * len(members)  # the chunk that a member brought last, and when
    n_claims = [0] * len(members)
    last, horizon = None, math.inf
    for now, (_, _, m, c) in enumerate(events):
        before, since = said[m]
        said[m] = c, now
        near = last is None or last - far <= c <= horizon
        if near or before is None or abs(c - before) > far:
            n_claims[m] = 0
        if not near:
            agree = sum(s is not None and abs(s - c) <= far for s, _ in said)
            against = sum(s is not None and abs(s - c) > far and at > since and last - far <= s <= horizon
                          for s, at in said)
            n_claims[m] = n_claims[m] + 1 if agree > against else 0
            if n_claims[m] and (agree >= min(2, len(members)) or n_claims[m] >= window):
                horizon = c
        if last is not None and c <= last:
            members[m].late.add(c)
            continue
        if len(held[m]) > wait:
            members[m].late.add(held[m].pop(0))
        held[m].append(c)
        while any(h and h[0] <= horizon for h in held):
            oldest = min(h[0] for h in held if h)
            if not all(held) and max(c for h in held for c in h if c <= horizon) < oldest + wait:
                break
            last, horizon = oldest, max(oldest + wait + window, -math.inf if last is None else horizon)
            held = [h[1:] if h[:1] == [oldest] else h for h in held]
