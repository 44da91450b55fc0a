"""Raw SPEAD packets taken apart, altered and put together again, whether or not the result makes sense.

Written from the protocol's description, not from the daemons.  So tests may ask it for the meaning of a packet.
"""
import struct
from dataclasses import dataclass, replace

MAGIC, VERSION, ID_BYTES, ADDRESS_BYTES = 0x53, 4, 2, 6
HEAP_CNT, HEAP_LENGTH, PAYLOAD_OFFSET, PAYLOAD_LENGTH, DESCRIPTOR, STREAM_CTRL = range(1, 7)
STANDARD = (HEAP_CNT, HEAP_LENGTH, PAYLOAD_OFFSET, PAYLOAD_LENGTH)
NULL = 0
VALUE = (1 << 48) - 1


@dataclass(frozen=True)
class Packet:
    """items: ((id, immediate, value), ...) in order."""
    items: tuple
    payload: bytes
    first: tuple = (MAGIC, VERSION, ID_BYTES, ADDRESS_BYTES)

    def get(self, item):
        """The value of an item; of several items, the last one's value.  None if there is none, or if it is not an
        immediate."""
        found = [value if immediate else None for number, immediate, value in self.items if number == item]
        return found[-1] if found else None

    def put(self, item, value, immediate=True):
        """With another value of an item that it has."""
        assert any(number == item for number, _, _ in self.items)
        return replace(self, items=tuple((n, immediate, value) if n == item else (n, i, v) for n, i, v in self.items))

    def without(self, *numbers):
        return replace(self, items=tuple(item for item in self.items if item[0] not in numbers))

    def part(self, offset, n_bytes):
        """A packet of the same heap with other bytes of the payload, counted from the start of this one's."""
        cut = self.put(PAYLOAD_OFFSET, self.get(PAYLOAD_OFFSET) + offset).put(PAYLOAD_LENGTH, n_bytes)
        return replace(cut, payload=(self.payload * 2)[offset:offset + n_bytes])

    def inverted(self):
        """With every bit of the payload inverted, so that taking it for the original would show."""
        return replace(self, payload=bytes(b ^ 0xFF for b in self.payload))

    def bytes(self):
        words = [number << 48 | value & VALUE | immediate << 63 for number, immediate, value in self.items]
        return struct.pack(f">4BHH{len(words)}Q", *self.first, 0, len(words), *words) + self.payload


def parse(raw):
    """The packet in 'raw', or the name of its fault, as in /metrics."""
    if len(raw) < 8:
        return "truncated"
    first, n_items = tuple(raw[:4]), struct.unpack(">H", raw[6:8])[0]
    if first[:2] != (MAGIC, VERSION):
        return "bad_magic"
    if first[2:] != (ID_BYTES, ADDRESS_BYTES):
        return "bad_flavour"
    header_bytes = 8 + 8 * n_items
    if header_bytes > len(raw):
        return "truncated"
    if header_bytes > 1024:  # what the receiver is ready to look at
        return "header_too_long"
    words = struct.unpack(f">{n_items}Q", raw[8:header_bytes])
    packet = Packet(tuple((w >> 48 & 0x7FFF, bool(w >> 63), w & VALUE) for w in words), raw[header_bytes:])
    if any(n in STANDARD and not i for n, i, _ in packet.items) or None in map(packet.get, STANDARD):
        return "no_standard"
    length, offset, size = (packet.get(item) for item in (HEAP_LENGTH, PAYLOAD_OFFSET, PAYLOAD_LENGTH))
    if length == 0:
        return "no_standard"
    if size > len(packet.payload):
        return "truncated"
    if size < len(packet.payload) or offset + size > length:
        return "bad_length"
    return packet
