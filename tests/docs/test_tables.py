"""No row of numbers stands in two files by hand: copies are those of their source."""

import re
from collections import defaultdict

from tests.docs.pages import MARKDOWN
from tests.docs.tables import COPY, README, with_copies

CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def test_copies_are_those_of_their_source():
    text = README.read_text("utf-8")
    assert len(COPY.findall(text)) >= 2
    assert with_copies(text) == text


def test_rows_of_numbers_stand_once():
    places = defaultdict(set)
    for path in MARKDOWN:
        text = CODE.sub("", COPY.sub("", path.read_text("utf-8")))
        for row in re.findall(r"^\|.*\|$(?!\n\|-)", text, re.MULTILINE):  # no headings
            if len(re.findall(r"\d[\d.]*", row)) >= 3:
                places[re.sub(r"\s", "", row)].add(path)
    assert len(places) > 300
    assert not {row: files for row, files in places.items() if len(files) > 1}
