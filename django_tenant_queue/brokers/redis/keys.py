"""The names of the schedule's keys, and how lane keys and queue names are written into them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote


def encode(name: str) -> str:
    """Any text as ASCII letters, digits, `_.-~` and `%`: different texts stay different, and no key or pattern character is left."""
    return quote(name, safe="", errors="surrogatepass")


def decode(encoded: str | bytes) -> str:
    """What `encode` was given."""
    return unquote(encoded.decode("ascii", "replace") if isinstance(encoded, bytes) else encoded, errors="surrogatepass")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one shard: all begin with one hash tag. What lies below the epoch is named in lua/lib/context.lua and queue.lua:

    `{dtq:<namespace>:<shard>}:meta`         epoch, state ("open", "rebuilding"), snapshot
    `{...}:wake:<name>`                      channel of a sleeper
    `{...}:<epoch>:queues`                   names of the queues that were ever published to
    `{...}:<epoch>:clock:<q>`                round, arrivals, waiting, running
    `{...}:<epoch>:ring:<q>`, `place:<q>`    lanes by the round of their next visit; lane -> its member of the ring
    `{...}:<epoch>:credit:<q>`               lane -> deficit, last round credited
    `{...}:<epoch>:parked:<q>`, `idle:<q>`   lane -> why; lane -> round after which its credit is worth nothing
    `{...}:<epoch>:line:<q>:<lane>`          waiting jobs; `leases:<q>:<lane>` tokens of running ones; `estimate:<q>:<lane>`
    `{...}:<epoch>:jobs`, `lease`, `expiry`  job id -> "w" or token; token -> the lease; token -> when it expires
    `{...}:<epoch>:limits`, `wakeups`        lane -> limits; lane -> when its pause ends
    `{...}:<epoch>:sleepers:<q>`, `request:<id>`, `counters`
    """

    namespace: str
    shard: int = 0

    @property
    def prefix(self) -> str:
        return f"{{dtq:{encode(self.namespace)}:{self.shard}}}:"

    @property
    def meta(self) -> str:
        """KEYS[1] of every script."""
        return self.prefix + "meta"

    def wake_channel(self, name: str) -> str:
        return f"{self.prefix}wake:{name}"
