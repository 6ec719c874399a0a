"""Documents that quote evidence quote it as it is."""

import json
import re
from pathlib import Path

from certhead.conformance.bench import markdown

ROOT = Path(__file__).resolve().parents[2]


def test_the_readme_quotes_the_benchmark_as_measured() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    quoted = re.search(r"<!-- bench: (\S+) -->\n(.*?)\n<!-- /bench -->", text, re.DOTALL)
    assert quoted is not None
    assert quoted[2] == markdown(json.loads((ROOT / quoted[1]).read_text("utf-8")))


def test_files_that_the_documents_link_to_exist() -> None:
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text("utf-8")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
