"""Prints what an extra of a Python project asks for, a line each: requirements.py PYPROJECT EXTRA."""

import sys
import tomllib

with open(sys.argv[1], "rb") as file:
    print("\n".join(tomllib.load(file)["project"]["optional-dependencies"][sys.argv[2]]))
