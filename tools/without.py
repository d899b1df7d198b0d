#!/usr/bin/env python3
"""What the `without` of each empirical figure in machines/*.toml says, beside what `nearfar compare` gives now.

Usage: tools/without.py NEARFAR DIRECTORY... [--write], with the directories of ../shared/measured/pcie-bench. `--write` writes the
new figures into the files. Exits with 1 if a figure differs.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

ERRORS = r"[\d.]+ / [\d.]+ %(?: \(median / 90th percentile of \|error\|\))?(?:, at worst [\d.]+ %,?)?"
# A family, whether its rows are those with an IOMMU, its errors at the value without effect, and those of the machine as it is.
CLAIM = re.compile(
    rf"(?P<family>(?:bw|lat)_\w+\*?)(?P<iommu> with the IOMMU)? (?P<without>{ERRORS}) instead of (?P<now>{ERRORS})"
)
NUMBER = re.compile(r"[\d.]+(?= / | %)")


def figures(table, path=()):
    """Paths and texts of all figures that have a `without`."""
    for key, value in table.items():
        if isinstance(value, dict):
            if "without" in value:
                yield ".".join((*path, key)), value["without"]
            yield from figures(value, (*path, key))


def errors(nearfar, directories, family, change):
    """Median, 90th percentile and worst error of a family over all rows of each of the directories."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "summary.json"
        command = [nearfar, "--quiet", "compare", *directories, "--files", family.rstrip("*"), *change]
        subprocess.run([*command, "--summary-json", file], check=True, stdout=subprocess.DEVNULL)
        summaries = json.loads(file.read_text())
    found = [f for one in summaries for f in one["summary"]["families"] if f["counted"] and family.startswith(f["family"].rstrip("*"))]
    return [(one["median_pct"], one["p90_pct"], one["worst_pct"]) for one in found]


def renewed(text, found):
    """A text with its figures replaced, with as many digits."""
    values = iter(found)

    def replace(old):
        digits = len(old[0].partition(".")[2])
        return f"{next(values):.{digits}f}"

    return NUMBER.sub(replace, text)


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    nearfar, *directories = arguments
    differ = False
    for file in sorted(pathlib.Path(__file__).parent.parent.glob("machines/*.toml")):
        whole = file.read_text()
        machine = tomllib.loads(whole)
        names = machine.get("measured_as", {}).get("directories", [])
        own = [d for d in directories if pathlib.Path(d).name in names]
        for path, text in figures(machine):
            neutral = re.split("[:,]", text)[0]
            for claim in CLAIM.finditer(text):
                rows = [d for d in own if ("-iommu" in d) == bool(claim["iommu"])] or own
                line = claim[0]
                for role, change in (("now", []), ("without", ["--set", f"{path}={neutral}"])):
                    # The file has the figures of one directory.
                    texts = [renewed(claim[role], found) for found in errors(nearfar, rows, claim["family"], change)]
                    if claim[role] not in texts:
                        differ = True
                        print(f"{file.name}: {path}: {claim['family']} {role}: {claim[role]}; now {texts}")
                        line = line.replace(claim[role], texts[0])
                whole = whole.replace(claim[0], line)
        if "--write" in sys.argv:
            file.write_text(whole)
    sys.exit(differ)


if __name__ == "__main__":
    main()
