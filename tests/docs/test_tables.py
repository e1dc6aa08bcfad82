"""No row of numbers stands in two files by hand: copies are those of their source."""

import re
from collections import defaultdict

from tests.docs.pages import MARKDOWN
from tests.docs.tables import COPY, README, TABLES, accuracy_summary, with_copies

CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def test_copies_are_those_of_their_source():
    text = README.read_text("utf-8")
    assert len(COPY.findall(text)) >= 2
    assert with_copies(text) == text
    assert (TABLES / "accuracy_summary.md").read_text("utf-8") == accuracy_summary()


def test_rows_of_numbers_stand_once():
    places = defaultdict(set)
    for path in MARKDOWN:
        text = CODE.sub("", COPY.sub("", path.read_text("utf-8")))
        for row in re.findall(r"^\|.*\|$(?!\n\|-)", text, re.MULTILINE):  # no headings
            if len(re.findall(r"\d[\d.]*", row)) >= 3:
                places[re.sub(r"\s", "", row)].add(path)
    assert len(places) > 300
    assert not {row: files for row, files in places.items() if len(files) > 1}


def test_worst_of_a_summary_is_the_worst_distribution():
    full = (TABLES / "accuracy.md").read_text("utf-8")
    row = next(line for line in accuracy_summary().splitlines() if line.startswith("| 31 and 120"))
    found = [float(cell) for cell in row.split("|")[2:4]]
    distributions = [line.split("|")[3:5] for line in full.splitlines()
            if re.match(r"\| draws_(31|120) ", line)]  # fmt: skip
    assert found == [max(float(distribution[k]) for distribution in distributions) for k in (0, 1)]
