"""What came out."""

from __future__ import annotations

import html
import json
import os
import tempfile
from typing import Any

from . import _nearfar
from ._nearfar import Table


class Results:
    """Records of what came out, by their kinds, and what they were made from.

    Each kind is a table in Arrow's layout: `polars.DataFrame(results.rows)`, `pandas.DataFrame.from_arrow(results.rows)` and
    `pyarrow.table(results.rows)` take it without a copy; `results.rows["median_ns"]` is a column as a list. A table has as
    many rows as there are records of its kind, and a column for each of their keys; docs/outputs.md describes them.
    """

    def __init__(self, records: _nearfar.Records, provenance: str) -> None:
        self._records = records
        self._provenance = provenance

    @property
    def provenance(self) -> dict[str, Any]:
        """Version, call, seed, changes, and the files that went in with their SHA-256."""
        return json.loads(self._provenance)

    @property
    def kinds(self) -> list[str]:
        """The kinds of records that there are."""
        return self._records.kinds()

    def table(self, *kinds: str) -> Table:
        """The records of these kinds; all if none is given."""
        return self._records.table(list(kinds) or None, {"provenance": self._provenance})

    @property
    def rows(self) -> Table:
        """Runs of pcie-bench: `median_ns`, `p95_ns` and others (nanoseconds), or `goodput_gbit_per_s`; `half_width_pct` is
        the half-width of the 95 % confidence interval."""
        return self.table("row")

    @property
    def readings(self) -> Table:
        """What programs measured: `host`, `run`, `quantity`, `value` in its `unit`; `took_ns` of simulated time."""
        return self.table("reading")

    @property
    def failures(self) -> Table:
        """Programs that gave up: `error` says why."""
        return self.table("failure")

    @property
    def counters(self) -> Table:
        """What was counted: `counter` (`place/what/cause`), `value` in its `unit`, `per_s`."""
        return self.table("counter")

    @property
    def resources(self) -> Table:
        """How full resources were: `place`, `resource`, `share_pct`."""
        return self.table("resource")

    @property
    def binds(self) -> Table:
        """Which resource binds, if one does: `place`, `resource`, `share_pct`, and a `sentence`."""
        return self.table("binds")

    @property
    def accounts(self) -> Table:
        """Where the cores' time went, where that was asked for: `account`, `part`, `time_ns`, `share_pct` of one core."""
        return self.table("account")

    @property
    def figures(self) -> Table:
        """The figures in use: `file`, `path`, `stated`, `source_kind`, `source`, and `deviation`, by which it varies in runs with
        drawn figures (nothing if it is exact)."""
        return self.table("figure")

    @property
    def intervals(self) -> Table:
        """Results with drawn figures, where that was asked for: `quantity`, `unit`, `value` with the files' own figures, `median`,
        `p05`, `p95`, the number of `runs`, and what it `hangs_on`."""
        return self.table("interval")

    @property
    def influences(self) -> Table:
        """The figures that such a result hangs on, by `rank`: `file`, `path`, `share_pct` of its variance, and whether it `rises`
        or `falls` with the figure (`direction`)."""
        return self.table("influence")

    @property
    def links(self) -> Table:
        """What links agreed on: `generation`, `lanes`, `mps_bytes`, `mrrs_bytes`."""
        return self.table("link")

    def to_dicts(self) -> list[dict[str, Any]]:
        """The records as dicts."""
        return json.loads(self._records.json())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the records as `--json` of the program does, whole or not at all; `nearfar diff` reads them."""
        records = self.to_dicts()
        if records:
            records[0]["provenance"] = self.provenance
        path = os.path.abspath(path)
        with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path), delete=False) as beside:
            try:
                json.dump(records, beside, indent=2)
                beside.close()
                os.replace(beside.name, path)
            except BaseException:
                os.unlink(beside.name)
                raise

    def __len__(self) -> int:
        return len(self._records)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Results) and self._records.json() == other._records.json()

    __hash__ = None

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(self.table(kind))} {kind}" for kind in self.kinds)
        return f"<nearfar.Results: {counts or 'none'}>"

    def _repr_html_(self) -> str:
        return "".join(f"<p>{html.escape(kind)}</p>{table_html(self.table(kind))}" for kind in self.kinds[:2])


def table_html(table: Table, most: int = 10) -> str:
    """The first rows of a table, for notebooks."""
    names = table.column_names
    columns = [table[name][:most] for name in names]
    cell = lambda value: "" if value is None else html.escape(f"{value:.6g}" if isinstance(value, float) else str(value))
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{cell(value)}</td>" for value in row) + "</tr>" for row in zip(*columns))
    more = f"<p>{len(table)} rows</p>" if len(table) > most else ""
    return f"<table><tr>{head}</tr>{body}</table>{more}"
