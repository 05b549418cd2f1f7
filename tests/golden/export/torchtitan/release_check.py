"""Stops a job before it starts where its program is of another release than it was written for.

RELEASE_CHECK=warn continues. A release that nothing says is let through.
"""

import os
import re
import sys
from importlib import metadata, util
from pathlib import Path

WRITTEN_FOR = [
    {'name': 'torchtitan', 'tried': ['0.3.0'], 'checkout': None, 'newer': None, 'state': 'components/data/loader.py', 'options': {'--module': '0.3', '--config': '0.3'}},
]


def numbers(release):
    """The first two numbers of a release, by which releases differ in their options."""
    return tuple(int(number) for number in re.findall(r"\d+", release)[:2])


def installed(name, checkout):
    """The release that a package has, or the checkout of a program; None where neither says it."""
    if checkout:
        path = Path(checkout)
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        said = dict(re.findall(r"^(MAJOR|MINOR|PATCH) *= *(\d+)", text, re.M))
        return "{MAJOR}.{MINOR}.{PATCH}".format(**said) if len(said) == 3 else None
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def holds(name, file):
    """Whether a package has a file, by which a tried state between two releases is known."""
    package = util.find_spec(name) if file else None
    return bool(package and package.origin and (Path(package.origin).parent / file).is_file())


def check(name, tried, checkout, newer, state, options):
    """One program: its release lies among those that were tried, and has all options of this job."""
    found = installed(name, checkout)
    if found is None or holds(name, state):
        print(f"release_check: {name} {found or 'says no release'}; this job was tried with {', '.join(tried)}")
        return
    missing = [f"{option} (since {since})" for option, since in options.items() if numbers(found) < numbers(since)]
    within = numbers(min(tried, key=numbers)) <= numbers(found) <= numbers(max(tried, key=numbers))
    if within and not missing:
        return
    said = f"{name} {found} is installed, and this job was written for and tried with {', '.join(tried)}"
    said += f"; it has no {', '.join(missing)}" if missing else ""
    said += f"; since then: {newer}" if newer and numbers(found) > numbers(max(tried, key=numbers)) else ""
    if os.environ.get("RELEASE_CHECK") != "warn":
        raise SystemExit(f"release_check: {said}; nothing is started (RELEASE_CHECK=warn continues)")
    print(f"release_check: {said}", file=sys.stderr)


for program in WRITTEN_FOR:
    check(**program)
