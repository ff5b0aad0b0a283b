"""The generated pages are true and complete: every scheme, figure and result is there, with the numbers of the library."""

import doctest
import importlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unstraggle import codes
from unstraggle.app import citations
from unstraggle.papers import FIGURES
from unstraggle.quantizers import QSGD
from unstraggle.scheme.noise import NoiseGain

from ..folding import folded

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from generate import benchmarks, catalogue, numbers, references, reproductions, results, sections, text  # noqa: E402
from generate.schemes import ENTRIES, N, P  # noqa: E402

ENTRY = {entry.name: entry for entry in ENTRIES}
SCHEMES = list(codes.SCHEMES)
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
LINK = re.compile(r"\]\((?!https?://|#)([^)\s]+)\)")
CONF = """
extensions = ["myst_parser"]
myst_enable_extensions = ["attrs_inline"]
exclude_patterns = ["generated/*.md"]
"""
MODULES = ("text", "references", "reproductions", "sections")


@pytest.fixture
def quick(monkeypatch):
    """Fewer rounds, and baselines that know of it."""
    monkeypatch.setattr(numbers, "ROUNDS", 400)
    numbers.waiting.cache_clear()
    numbers.repetition.cache_clear()
    yield
    numbers.waiting.cache_clear()
    numbers.repetition.cache_clear()


def section_of(page, anchor):
    return page.split(f"({anchor})=")[1].split("\n(")[0]


# the catalogue


def test_every_public_scheme_has_an_entry():
    assert sorted(ENTRY) == sorted(SCHEMES)
    assert len(ENTRIES) == len(ENTRY)
    assert {entry.name for entry in ENTRIES if not entry.exact} == set(codes.APPROXIMATE)


def test_entries_show_their_schemes():
    with folded() as case:
        for name in SCHEMES:
            with case(name):
                check_entry(name, ENTRY[name], getattr(codes, name))
            with case(f"signature of {name}"):
                check_signature(getattr(codes, name))
            with case(f"papers of {name}"):
                check_papers(name, references.papers(name))


def check_entry(name, entry, function):
    assert entry.example.startswith(f"{name}(") and entry.code().n == N
    assert entry.sent and entry.decoded
    lines = [*sections.formula(entry).splitlines(), *sections.signature(function).splitlines()]
    assert max(map(len, lines)) <= sections.WIDTH, "the page would need a scroll bar"
    assert sections.idea(function).endswith(".")


def check_signature(function):
    """It is Python, as it stands in the source."""
    shown = re.sub(r"\s+", "", sections.signature(function).replace(",\n)", ")"))
    source = Path(sys.modules[function.__module__].__file__).read_text()
    assert shown in re.sub(r",\)->", ")->", re.sub(r"\s+", "", source.replace('"', "'"))).replace("10**6", "1000000")


def check_papers(name, shown):
    """They are those that are cited."""
    assert len(shown) == len(citations.papers_of(name))
    for line, key in zip(shown, citations.papers_of(name), strict=True):
        assert not re.search(r"[{}\\]", line)
        year, known = (re.search(rf"{field} *= *{{(.*)}}", citations.entries()[key]) for field in ("year", "eprint"))
        assert f"({year[1]})" in line and (known is None or f"https://arxiv.org/abs/{known[1]}" in line)


def test_sections_hold_the_numbers_of_the_library(quick):
    facts = numbers.facts(ENTRY["cyclic_repetition"])
    shown = sections.section(facts)
    code = codes.cyclic_repetition(N, s=2)
    gain = code.noise_gain()
    assert f"| noise gain | {text.number(gain.median, 2)}, worst {text.number(gain.worst, 2)} |" in shown
    assert f"| always enough | {code.threshold} of 12 messages |" in shown
    mean = numbers.simulate(code, numbers.LATENCY, rounds=400, rng=0).time.mean
    assert f"| time of a round | {mean:.3f} ± " in shown
    assert f"| over waiting for all | {mean / numbers.waiting().time.mean:.2f} |" in shown


def test_a_change_of_the_library_changes_the_page(quick, monkeypatch):
    before = numbers.facts(ENTRY["fractional_repetition"])
    monkeypatch.setattr("unstraggle.scheme.noise.noise_gain", lambda code, rng: NoiseGain(12.0, 34.0))
    after = catalogue.page([numbers.facts(ENTRY["fractional_repetition"])])
    assert "12, worst 34" not in catalogue.page([before])
    assert after.count("12, worst 34") == 2  # in the overview and in the section


def test_stragglers_tolerated_are_tried_out():
    assert [numbers.tolerates(code) for code in (codes.uncoded(5), codes.cyclic_repetition(7, s=3))] == [0, 3]
    assert numbers.tolerates(codes.fractional_repetition(6, s=5)) == 5
    assert numbers.tolerates(ENTRY["lagrange"].code()) == 12 - 7
    whole = codes.cyclic_repetition(6, s=2)
    broken = whole.messages.coef.toarray()
    broken[0] = broken[1] * np.array([0, 1, 0, 0, 0, 0])
    again = type(whole.decoder)(broken, whole.decoder.rule)
    assert numbers.tolerates(replace(whole, decoder=again)) < 2


def test_bytes_are_those_on_the_wire():
    assert set(numbers.message_bytes(codes.uncoded(3))) == {4e6}
    assert set(numbers.message_bytes(codes.reed_solomon(6, s=2))) == {8e6}
    half = codes.blocks([1, 3], codes.uncoded(2), codes.cyclic_repetition(2, s=1))
    assert numbers.message_bytes(half).tolist() == [1e6, 1e6, 3e6, 3e6]
    sent = len(QSGD(bits=4, bucket=512).encode(np.ones(numbers.DIM, dtype=np.float32), seed=0))
    assert set(numbers.message_bytes(codes.quantize(codes.uncoded(2), bits=4, bucket=512))) == {sent}


def test_errors_are_those_of_the_closed_form():
    facts = numbers.facts(ENTRY["ignore_stragglers"])
    late = np.array(P)
    assert facts.orthogonal.relative == pytest.approx(np.mean(late / (1 - late)))
    assert facts.time_to_goal == pytest.approx(0.01 + np.log(11) / 10, rel=0.01)  # where p / (1 - p) = 0.1
    assert sections.bias(facts) == "0" and sections.bias(numbers.facts(ENTRY["erasurehead"])) != "0"


def test_time_to_goal_may_never_come():
    facts = numbers.facts(ENTRY["erasurehead"])
    assert replace(facts, errors=np.ones_like(facts.errors)).time_to_goal == np.inf
    assert sections.ratio(np.inf) == "not reached"
    assert replace(facts, errors=np.zeros_like(facts.errors)).time_to_goal == numbers.DEADLINES[0]


# the gallery


def test_every_figure_is_in_the_gallery():
    gallery = reproductions.gallery(ROOT / "papers")
    for name in FIGURES:
        shown = re.search(rf"!\[[^\]]*\]\(generated/papers/(\w+)/{name}\.png\)", gallery)
        assert (shown and (ROOT / "papers" / shown[1] / f"{name}.png").exists()) or reproductions.LEFT_OUT.get(name)
        assert f"unstraggle reproduce {name}" in gallery or name in reproductions.LEFT_OUT


def test_claims_are_those_of_the_papers_pages():
    with folded() as case:
        for folder in reproductions.folders(ROOT / "papers"):
            with case(folder.name):
                check_claims(folder)


def check_claims(folder):
    source = (folder / "README.md").read_text()
    claims = source.split("## Claim against measured\n")[1].split("\n## ")[0]
    rows = [line for line in claims.splitlines() if line.startswith("|")]
    assert len(rows) > 4 and rows[0] == "| the paper says | measured | why |"
    shown = reproductions.paper_section(folder)
    assert all(LINK.sub("", row) in LINK.sub("", shown) for row in rows)


def test_a_paper_without_claims_is_refused():
    with pytest.raises(ValueError, match="needs a section '## Claim against measured'"):
        reproductions.section("# A paper\n\n## Figure 1\n", reproductions.CLAIMS)


# the benchmarks


def leaves(value):
    """All numbers and texts of a result outside lists of numbers."""
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in leaves(each)]
    if isinstance(value, list):
        return [leaf for each in value if isinstance(each, dict) for leaf in leaves(each)]
    return [value]


def test_every_result_is_on_the_page():
    page = benchmarks.page(ROOT / "benchmarks", RESULTS)
    with folded() as case:
        for file in RESULTS:
            with case(file.name):
                check_result(file, section_of(page, f"benchmark-{file.stem}"))


def check_result(file, shown):
    result = json.loads(file.read_text())
    assert f"`{result['repeat']}`" in shown and result["hardware"] in shown and f"{file.stem}.json" in shown
    assert shown.split("\n\n")[1] == benchmarks.description(ROOT / "benchmarks" / f"{file.stem}.py") != ""
    body = {key: value for key, value in result.items() if key not in benchmarks.ABOUT}
    missing = [leaf for leaf in leaves(body) if text.number(leaf).replace("|", "\\|") not in shown]
    assert not missing


def test_a_changed_number_changes_the_page(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "span.py").write_text((ROOT / "benchmarks" / "span.py").read_text())
    result = json.loads((ROOT / "benchmarks" / "results" / "span.json").read_text())
    (tmp_path / "results" / "span.json").write_text(json.dumps(result | {"arrivals": 123456}))
    benchmarks.write(tmp_path, tmp_path / "out")
    assert "- arrivals: 123,456" in (tmp_path / "out" / "benchmarks.md").read_text()
    assert json.loads((tmp_path / "out" / "benchmarks" / "span.json").read_text())["arrivals"] == 123456


def test_results_of_any_shape_become_tables():
    wide = {f"part {number}": number / 8 for number in range(7)}
    body = {
        "n": 3,
        "counts": {"0": 7, "12": 8},
        "engines": {"one": {"fast": {"s": 1.5}, "runs": [1, 2]}, "two": {"fast": {"s": 2.5}, "runs": [3]}},
        "rows": [{"bits": 2, "loss": [0.51, 0.02]}, {"bits": 4, "loss": [0.4, 0.01], "note": "short"}, {"norm": 9.0}],
        "wide": [{"length": 5, "first": wide, "second": wide}],
    }
    shown = list(results.tables(body))
    assert shown[0] == "- n: 3\n- counts: 0: 7, 12: 8"
    assert "**engines, fast**\n\n| engines | s |\n|---|---|\n| one | 1.5 |\n| two | 2.5 |" in shown[1]
    assert "| one | 1, 2 |" in shown[2] and "| two | 3 |" in shown[2]
    assert "| 2 | 0.510\xa0±\xa00.020 |" in shown[3] and shown[3].endswith("- 4: short") and "| norm |" in shown[4]
    assert [piece.splitlines()[0] for piece in shown[5:]] == ["**wide, first**", "**wide, second**"]
    assert "| length | part 0 |" in shown[5]


# all of them


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """docs/generated of two schemes, and all of the rest."""
    docs = tmp_path_factory.mktemp("docs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbers, "ROUNDS", 400)
        catalogue.write(docs / "generated", [ENTRY["hybrid"], ENTRY["erasurehead"]])
    numbers.waiting.cache_clear()
    numbers.repetition.cache_clear()
    reproductions.write(ROOT / "papers", docs / "generated")
    benchmarks.write(ROOT / "benchmarks", docs / "generated")
    return docs


def test_links_lead_somewhere(written):
    found = 0
    for page in written.rglob("*.md"):
        base = page.parent if "papers" in page.parts else written
        for target in LINK.findall(page.read_text()):
            path = base / target.split("#")[0]
            known = path.exists() or (ROOT / "docs" / path.resolve().relative_to(written.resolve())).exists()
            assert known, f"{page.name}: {target}"
            found += 1
    assert found > 50


def test_tables_have_as_many_cells_as_heads(written):
    for page in written.glob("generated/*.md"):
        for table in re.findall(r"(?:^\|.*\n?)+", page.read_text(), re.MULTILINE):
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table


def test_pictures_are_written(written):
    for name in ("hybrid", "erasurehead"):
        for kind in ("code", "time"):
            picture = (written / "generated" / "catalogue" / f"{name}-{kind}.png").read_bytes()
            assert picture.startswith(b"\x89PNG") and len(picture) > 10_000


@pytest.mark.parametrize("page", ["catalogue", "reproductions", "benchmarks"])
def test_pages_include_what_is_written(page):
    assert f"```{{include}} generated/{page}.md" in (ROOT / "docs" / f"{page}.md").read_text()


def test_pages_build_without_warnings(written):
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    pages = ("catalogue", "reproductions", "benchmarks")
    for page in pages:
        (written / f"{page}.md").write_text((ROOT / "docs" / f"{page}.md").read_text())
    for stub in ("notation", "planning", "quantizers", "two_track"):
        (written / f"{stub}.md").write_text(f"# {stub}\n")
    listed = "\n".join((*pages, "notation", "planning", "quantizers", "two_track"))
    (written / "index.md").write_text(f"# All\n\n```{{toctree}}\n{listed}\n```\n")
    (written / "conf.py").write_text(CONF)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(written), str(written / "html")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    html = (written / "html" / "catalogue.html").read_text()
    assert 'id="scheme-hybrid"' in html and 'href="#scheme-hybrid"' in html and "width: 44%" in html


def test_docstring_examples():
    with folded() as case:
        for name in MODULES:
            with case(name):
                result = doctest.testmod(importlib.import_module(f"generate.{name}"))
                assert result.attempted and not result.failed
