"""What happens in a run, and when. Both runs follow the same script; the times are fixed, whatever the workers do (an open loop)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

ROWS_PER_BAD_ROW = 25_000  # few enough that 200,000 rows are 20,000 jobs of ten
NAMES = (
    "Acme Garden Tools", "Aster Books", "Birch Bikes", "Cobalt Kitchens", "Dune Surf", "Elm Records", "Fjord Knitwear", "Glow Candles",
    "Harbour Fish", "Iris Optics", "Juniper Gin", "Kite Toys", "Lumen Lamps", "Maple Syrups", "Noor Ceramics", "Oak Floors", "Pica Prints",
    "Quill Pens", "Rye Bakery", "Sable Shoes", "Tern Travel", "Umbra Shades", "Vale Wines", "Willow Baskets", "Yarrow Herbs",
)  # fmt: skip


class Kind(StrEnum):
    """What a workspace asks for. The last two are poison: they fail whenever they run."""

    RESET = "password reset"
    REPORT = "report"
    WEBHOOK = "webhook"
    BROKEN_LOGO = "broken logo"
    CRASHING_LOGO = "crashing logo"


POISON = (Kind.BROKEN_LOGO, Kind.CRASHING_LOGO)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a quiet workspace, `at_seconds` after the uploaded file has become jobs. `workspace` and `number` count from 0."""

    at_seconds: float
    workspace: int
    kind: Kind
    number: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """`seconds`: over how long the requests are spread. Each quiet workspace asks for the same."""

    rows: int = 200_000
    quiet_workspaces: int = 24
    resets_each: int = 42
    reports_each: int = 3
    webhooks_each: int = 1
    broken_logos: int = 3
    crashing_logos: int = 1
    seconds: float = 28.0

    @property
    def poisons(self) -> int:
        return self.broken_logos + self.crashing_logos

    def asks(self) -> list[Ask]:
        """The script, in order of time."""
        quiet = self.quiet_workspaces
        script = self._spread(Kind.RESET, quiet * self.resets_each)
        script += self._spread(Kind.REPORT, quiet * self.reports_each)
        script += self._spread(Kind.WEBHOOK, quiet * self.webhooks_each)
        script += self._spread(Kind.BROKEN_LOGO, self.broken_logos, first=0.1, last=0.5)
        script += self._spread(Kind.CRASHING_LOGO, self.crashing_logos, first=0.7, last=0.9)
        return sorted(script, key=lambda ask: ask.at_seconds)

    def _spread(self, kind: Kind, number: int, *, first: float = 0.0, last: float = 1.0) -> list[Ask]:
        step = (last - first) * self.seconds / max(1, number)
        begin, quiet = first * self.seconds, self.quiet_workspaces
        return [Ask(begin + (i + 0.5) * step, i % quiet, kind, i // quiet) for i in range(number)]
