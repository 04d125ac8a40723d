"""Ten editing tasks: a module of about 200 lines, a function in it to be renamed, the whole module to be answered.

The modules are made of the pieces below, always the same ones for a number: no file of anybody's, no randomness.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

NUM_CASES = 10
_NUM_LINES = 200

_NAMES = [
    ("load_rows", "read_records"),
    ("parse_item", "decode_entry"),
    ("clean", "normalize_value"),
    ("compute_total", "sum_amounts"),
    ("to_key", "make_index_key"),
    ("check", "validate_entry"),
    ("get_config_value", "lookup_setting"),
    ("fmt", "format_line"),
    ("find_user", "resolve_account"),
    ("convert_units", "to_metric"),
]
_NOUNS = ["order", "user", "ticket", "sensor", "invoice", "track", "parcel", "recipe", "booking", "student"]
_FIELDS = ["price", "weight", "score", "length", "rating", "age", "volume", "amount", "speed", "level"]

_HEAD = '''"""Helpers for {noun} files."""

import csv
import json
from collections import defaultdict
from pathlib import Path

DEFAULT_{FIELD} = {number}
{NOUN}_FIELDS = ["name", "{field}", "created_at"]


def {old}(value, default=None):
    """Return the value as this module uses it, or the default."""
    if value is None:
        return default
    if isinstance(value, str):
        return value.strip().lower()
    return value

'''

_PIECES = [
    '''
def read_{noun}s(path):
    """Read all {noun}s from a CSV file."""
    {noun}s = []
    with Path(path).open(newline="") as lines:
        for row in csv.DictReader(lines):
            row["name"] = {old}(row["name"])
            {noun}s.append(row)
    return {noun}s

''',
    '''
def write_{noun}s(path, {noun}s):
    """Write {noun}s to a CSV file, one a line."""
    with Path(path).open("w", newline="") as lines:
        writer = csv.DictWriter(lines, fieldnames={NOUN}_FIELDS)
        writer.writeheader()
        for {noun} in {noun}s:
            writer.writerow({noun})

''',
    '''
def total_{field}({noun}s):
    """Add up the {field} of all {noun}s."""
    total = 0
    for {noun} in {noun}s:
        total += float({noun}.get("{field}") or DEFAULT_{FIELD})
    return total

''',
    '''
def average_{field}({noun}s):
    """Return the mean {field}, or zero if there are no {noun}s."""
    if not {noun}s:
        return 0.0
    return total_{field}({noun}s) / len({noun}s)

''',
    '''
def group_{noun}s({noun}s, key):
    """Group {noun}s by the value of a key."""
    groups = defaultdict(list)
    for {noun} in {noun}s:
        groups[{old}({noun}.get(key), "unknown")].append({noun})
    return dict(groups)

''',
    '''
def filter_{noun}s({noun}s, minimum):
    """Keep the {noun}s whose {field} is at least the minimum."""
    kept = []
    for {noun} in {noun}s:
        if float({noun}["{field}"]) >= minimum:
            kept.append({noun})
    return kept

''',
    '''
def find_{noun}({noun}s, name):
    """Return the first {noun} with this name, or None."""
    wanted = {old}(name)
    for {noun} in {noun}s:
        if {old}({noun}["name"]) == wanted:
            return {noun}
    return None

''',
    '''
def sort_{noun}s({noun}s, descending=False):
    """Return the {noun}s sorted by {field}, then by name."""
    return sorted(
        {noun}s,
        key=lambda {noun}: (float({noun}["{field}"]), {noun}["name"]),
        reverse=descending,
    )

''',
    '''
def save_{noun}s_as_json(path, {noun}s):
    """Write the {noun}s as one JSON document."""
    document = {{"count": len({noun}s), "{noun}s": {noun}s}}
    text = json.dumps(document, indent=2, sort_keys=True)
    Path(path).write_text(text + "\\n")

''',
    '''
def load_{noun}s_from_json(path):
    """Read what save_{noun}s_as_json wrote."""
    document = json.loads(Path(path).read_text())
    if document["count"] != len(document["{noun}s"]):
        raise ValueError("the file is damaged: " + str(path))
    return document["{noun}s"]

''',
    '''
class {Noun}Index:
    """Finds {noun}s by name without looking at all of them."""

    def __init__(self, {noun}s):
        self._by_name = {{}}
        for {noun} in {noun}s:
            self.add({noun})

    def add(self, {noun}):
        """Add one {noun}; a later one replaces an earlier one."""
        self._by_name[{old}({noun}["name"])] = {noun}

    def get(self, name, default=None):
        """Return the {noun} with this name."""
        return self._by_name.get({old}(name), default)

    def __len__(self):
        return len(self._by_name)

''',
    '''
def merge_{noun}s(first, second):
    """Merge two lists of {noun}s; of the same name the second wins."""
    merged = {{}}
    for {noun} in list(first) + list(second):
        merged[{old}({noun}["name"])] = {noun}
    return list(merged.values())

''',
    '''
def rename_{noun}({noun}, name):
    """Return a copy of the {noun} with another name."""
    if not name:
        raise ValueError("a {noun} needs a name")
    copy = dict({noun})
    copy["name"] = name
    return copy

''',
    '''
def describe_{noun}({noun}):
    """Return one line about the {noun} for people."""
    name = {old}({noun}.get("name"), "nobody")
    {field} = float({noun}.get("{field}") or 0)
    return f"{{name}}: {{{field}:.2f}} ({{{noun}['created_at']}})"

''',
    '''
def count_by_{field}({noun}s, step=10):
    """Count {noun}s in ranges of {field}."""
    counts = defaultdict(int)
    for {noun} in {noun}s:
        start = int(float({noun}["{field}"]) // step) * step
        counts[start] += 1
    return dict(sorted(counts.items()))

''',
    '''
def split_{noun}s({noun}s, size):
    """Split the {noun}s into pages of a size."""
    if size < 1:
        raise ValueError("a page holds at least one {noun}")
    return [{noun}s[start : start + size] for start in range(0, len({noun}s), size)]

''',
    '''
def best_{noun}s({noun}s, count=3):
    """Return the {noun}s with the highest {field}."""
    best = sort_{noun}s({noun}s, descending=True)[:count]
    for rank, {noun} in enumerate(best, start=1):
        {noun}["rank"] = rank
        {noun}["label"] = {old}({noun}["name"])
    return best

''',
    '''
def missing_fields({noun}):
    """Return the names of the fields that a {noun} lacks."""
    missing = []
    for field in {NOUN}_FIELDS:
        if {old}({noun}.get(field)) in (None, ""):
            missing.append(field)
    return missing

''',
    '''
def update_{field}({noun}s, name, {field}):
    """Set the {field} of the {noun} with this name; say whether there was one."""
    {noun} = find_{noun}({noun}s, name)
    if {noun} is None:
        return False
    {noun}["{field}"] = {field}
    return True

''',
    '''
def remove_duplicates({noun}s):
    """Keep the first {noun} of every name."""
    seen = set()
    unique = []
    for {noun} in {noun}s:
        name = {old}({noun}["name"])
        if name not in seen:
            seen.add(name)
            unique.append({noun})
    return unique

''',
]

_END = '''
def main(path):
    """Print a report about the {noun}s in a file."""
    {noun}s = read_{noun}s(path)
    print({old}("REPORT"), len({noun}s))
    for {noun} in {noun}s:
        print({noun}["name"], {noun}["{field}"])
'''


@dataclass(frozen=True, slots=True)
class EditCase:
    """One task.

    Attributes:
        source: The module as it is: what a caller would give as the prediction.
    """

    id: str
    prompt: str
    source: str


def edit_cases() -> list[EditCase]:
    """Return all of them."""
    return [_case(number) for number in range(NUM_CASES)]


def _case(number: int) -> EditCase:
    old, new = _NAMES[number]
    source = _module(number, old)
    prompt = (
        f"Rename the function `{old}` to `{new}` in this file, wherever it is defined or used. Change nothing else. "
        f"Answer with the whole file and nothing else.\n\n```python\n{source}```"
    )
    return EditCase(f"edit-{number}", prompt, source)


def _module(number: int, old: str) -> str:
    noun, field = _NOUNS[number], _FIELDS[number]
    words = {"noun": noun, "Noun": noun.title(), "NOUN": noun.upper(), "field": field, "FIELD": field.upper()}
    pieces = random.Random(number).sample(_PIECES, len(_PIECES))
    text = _HEAD.format(old=old, number=number + 1, **words)
    end = _END.format(old=old, **words)
    for piece in pieces:
        added = piece.format(old=old, **words)
        if (text + added + end).count("\n") > _NUM_LINES:
            break
        text += added
    return text + end
