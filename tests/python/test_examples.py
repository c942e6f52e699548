"""The programs under examples/ and benchmarks/ run as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lakemark

ROOT = Path(__file__).parents[2]


def run(command: list[str | Path], **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def run_notebook(name: str, cell_count: int) -> dict[str, Any]:
    notebook = json.loads((ROOT / "examples" / name).read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) == cell_count
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        exec(compile(cell, f"{name}, code cell {number}", "exec"), names)  # noqa: S102 - our own notebook
    return names


def test_quickstart_notebook_runs_from_top_to_bottom() -> None:
    names = run_notebook("quickstart.ipynb", 11)
    ids = range(200_000)
    zurich = [n for n in ids if n * 31 % 5 == 3 and n * 7919 % 9973 != 42]
    assert names["count"] == len(zurich)
    assert names["report"].rows_exact + names["report"].rows_rechecked > 0
    assert names["found"].num_rows == sum(1 for n in ids if n * 7919 % 9973 == 42 and n * 37 % 100_003 / 4 > 100)
    assert sorted(names["by_key"].to_arrow()["id"].to_pylist()) == [17, 199_999]
    assert (names["searched"].index_reads, names["searched"].index_bytes_read) == (1, 4096)
    assert names["before"] == 40_000 + 20


def test_lookup_notebook_shows_the_reads_of_one_flight_and_one_customer() -> None:
    names = run_notebook("lookup.ipynb", 8)
    kinds = {index.column: index.kind for index in names["table"].indexes}
    assert kinds == {"flight": "bloom_tree", "customer": "key", "token": "summary"}
    customers = names["bookings_of"].to_arrow()["customer"].to_pylist()
    assert customers == [4711] * names["one_customer"].rows_exact
    assert names["one_token"].files_pruned + 1 >= names["FILES"]


def test_updates_notebook_changes_a_delta_table_while_it_is_asked() -> None:
    names = run_notebook("updates.ipynb", 6)
    assert names["report"].delta_version == 1
    assert len(names["rows"]) == names["ACCOUNTS"] - 2
    assert len(names["totals"]) == 1


def test_terms_notebook_walks_the_gene_ontology_by_calls_and_by_sql() -> None:
    names = run_notebook("terms.ipynb", 9)
    assert (len(names["depths"]), len(names["steps"])) == (17, 5)
    assert set(names["shared"]) == {"GO:0009987", "GO:0008150"}
    assert names["by_function"].to_arrow().num_rows == 17
    # Cell death and what it is, but no cellular process.
    assert set(names["depths"]) - names["without"] == {"GO:0006915", "GO:0008219", "GO:0012501"}


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples").glob("*.ipynb")))
def test_notebooks_are_committed_without_outputs(name: str) -> None:
    notebook = json.loads((ROOT / "examples" / name).read_text("utf-8"))
    assert notebook["nbformat"] == 4
    assert [cell for cell in notebook["cells"] if cell.get("outputs")] == []


def test_demo_asks_all_engines_and_changes_a_table_while_another_process_counts_it(tmp_path: Path) -> None:
    folder, page = tmp_path / "flights", tmp_path / "demo.html"
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT / "examples")])
    done = run(
        [
            *[sys.executable, ROOT / "examples" / "demo", "--small", "--no-spark", "--rounds", "1", "--changes", "3"],
            *["--folder", folder, "--page", page],
        ],
        LAKEMARK_CACHE=str(tmp_path / "cache"),
        PYTHONPATH=path,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for engine in ("Lakemark", "Lakemark, index off", "DataFusion", "DuckDB"):
        assert sum(line.startswith(f"  {engine}  ") for line in lines) == 5, done.stdout
    # Counts of exact rows need no page at all.
    (ours, *_) = [line for line in lines if line.startswith("  Lakemark  ")]
    assert ours.endswith("  0 of 339")
    assert "DuckDB counts 707 rows" in done.stdout
    assert "and 1,007 after" in done.stdout
    table = lakemark.Table(folder)
    assert table.count() == 336_776 + 300
    assert table.count("dest = 'HNL'") == 707 + 300
    drawn = page.read_text("utf-8")
    assert drawn.count("<h3>") == drawn.count('class="pages"') == 5
    again = run([sys.executable, ROOT / "examples" / "demo", "--small", "--folder", folder], PYTHONPATH=path)
    assert (again.returncode, "is not empty" in again.stderr) == (1, True)


def test_set_query_benchmark_answers_equal_those_of_the_peers(tmp_path: Path) -> None:
    done = run(
        [sys.executable, ROOT / "benchmarks" / "sqb.py", "--rows", "20000", "--results", tmp_path],
        LAKEMARK_BENCH_DATA=str(tmp_path / "data"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "sqb-20000.json").read_text("utf-8"))
    assert len(result["answers"]) == 75
    assert len(result["indexes"]) == 13
    engines = {
        "lakemark",
        "lakemark, cache off",
        "lakemark, indexes off",
        "lakemark, count()",
        "lakemark, count(), cache off",
        "datafusion",
        "duckdb",
        "duckdb native",
        "polars",
    }
    assert set(result["medians"]["all"]) - {"lance"} == engines
    assert (tmp_path / "sqb-20000.png").stat().st_size > 10_000


def test_conditions_on_elements_of_lists_are_the_same_with_every_peer(tmp_path: Path) -> None:
    done = run(
        [
            *[sys.executable, ROOT / "benchmarks" / "lists.py", "--rows", "20000", "--probes", "10"],
            *["--results", tmp_path],
        ],
        LAKEMARK_BENCH_DATA=str(tmp_path / "data"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "lists-20000.json").read_text("utf-8"))
    shapes = ("one tag", "any of three", "both of two")
    assert set(result["asked"]) == {f"{what}, {shape}" for what in ("count", "sum") for shape in shapes}
    for costs in result["asked"].values():
        assert set(costs) - {"lance LABEL_LIST"} == {"lakemark", "datafusion", "duckdb parquet", "duckdb native"}
    # Four on average, from none to eight.
    assert 3.9 < result["elements"] / 20_000 < 4.1
    assert (tmp_path / "lists-20000.png").stat().st_size > 10_000


def test_lookups_of_keys_are_the_same_with_every_kind_and_peer(tmp_path: Path) -> None:
    done = run(
        [
            *[sys.executable, ROOT / "benchmarks" / "keys.py", "--rows", "20000", "--row-groups", "32"],
            *["--probes", "10", "--results", tmp_path],
        ],
        LAKEMARK_BENCH_DATA=str(tmp_path / "data"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "keys-20000.json").read_text("utf-8"))
    both = "twelve and permuted"
    assert {"permuted, summary", "ordered, bloom_tree", "permuted", "ordered", both} < set(result["indexes"])
    for sort in ("hit", "miss"):
        assert {"lakemark lookup", "lakemark lookup, summary", "lakemark SQL", "datafusion"} < set(result[sort])
        engines = {"lakemark lookup", "lakemark lookup, bloom_tree", "datafusion"}
        assert set(result["ordered"][sort]) == engines
        assert set(result["pairs"][sort]) == {"lakemark lookup", "datafusion"}
    covering = result["covering"]
    ways = {
        "lakemark lookup, included",
        "lakemark SQL, included",
        "lakemark lookup",
        "datafusion",
        "duckdb native, index",
    }
    assert set(covering["asked"]) - {"lance BTREE"} == ways
    # Leaves that were read for another key are remembered.
    assert covering["read"]["requests"] <= 1
    assert covering["read"]["bytes"] <= 4096
    # Key, place and three numbers of 40 bits.
    assert 15 < covering["bytes_per_row"]["lakemark lookup, included"] < 40
    per_lookup = result["index_per_lookup"]
    # A key that is there leaves its row group of 625 rows, and hardly ever another one.
    assert 625 <= per_lookup["summary on permuted"]["hit"]["rows_left"] < 2 * 625
    assert per_lookup["key on permuted"]["hit"]["rows_left"] == 1
    assert per_lookup["summary on permuted"]["miss"]["rows_left"] < 625
    assert per_lookup[f"key on {both}"]["hit"]["rows_left"] == 1
    assert per_lookup[f"key on {both}"]["miss"]["rows_left"] == 0


def test_walks_over_links_are_the_same_with_every_way_and_peer(tmp_path: Path) -> None:
    done = run(
        [
            *[sys.executable, ROOT / "benchmarks" / "links.py", "--rows", "16000", "--rounds", "2", "--probes", "3"],
            *["--seconds", "0.1", "--most-seconds", "0.1", "--results", tmp_path],
        ],
        LAKEMARK_BENCH_DATA=str(tmp_path / "data"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "links-16000.json").read_text("utf-8"))
    ours = {"lakemark call", "lakemark functions", "lakemark SQL, links", "lakemark SQL, keys"}
    graphs = {"oxigraph", "oxigraph, in memory", "ladybug"}
    assert sorted({name[0] for name in result["asked"]}) == list("123456")
    for costs in result["asked"].values():
        assert set(costs) - graphs == ours | {"datafusion", "duckdb parquet", "duckdb native"}
        assert all(len(cost["each_ms"]) >= 2 for cost in costs.values())
    for costs in result["updated"].values():
        assert set(costs) == {f"{way}{end}" for way in ours - {"lakemark functions"} for end in ("", ", updated")}
    sized = result["bytes_per_triple"]
    assert 0 < sized["links, without rows"] < sized["links, with rows"]
    assert set(result["clients"]) == {"1", "2", "4", "8", "16", "32"}
    assert all(walk["nodes"] >= walk["depth"] > 1 and walk["pages_of_leaves"] == 1 for walk in result["cold"].values())
    assert len(result["left_alone"]) == 4
    assert {goal["what"] for goal in result["goals"] if goal["measured"] is None} <= {
        "paths of 32 to 192 tasks: least share of the disk's reads a second",
        *(f"{name}: rounds of reads beyond the depth" for name in result["cold"]),
        *(f"{name}: call / {graph}" for name in result["asked"] for graph in graphs),
    }
    text = (tmp_path / "links-16000.md").read_text("utf-8")
    assert [goal["what"] for goal in result["goals"] if f"| {goal['what']} |" not in text] == []
    assert (tmp_path / "links-16000.png").stat().st_size > 10_000
    # What was kept in case that it is stopped is gone.
    assert not list(tmp_path.glob("*.partial"))


def test_updates_cost_what_the_benchmark_says_and_the_peers_agree(tmp_path: Path) -> None:
    done = run(
        [
            *[sys.executable, ROOT / "benchmarks" / "updates.py", "--rows", "20000", "--rounds", "1"],
            *["--seconds", "0.2", "--results", tmp_path],
        ],
        LAKEMARK_BENCH_DATA=str(tmp_path / "data"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "updates-20000.json").read_text("utf-8"))
    assert set(result["overhead"]["1.0"]) == {"without", "1%", "5%", "10%"}
    assert 1 <= result["writes"]["writes_per_update"] <= result["writes"]["bound"]
    assert result["writes"]["runs"] <= result["writes"]["runs_limit"]
    assert result["migration"]["changed_rows"] == 1000
    assert (tmp_path / "updates-20000.png").stat().st_size > 10_000


def test_the_figures_of_masm_are_drawn_and_answers_stay_while_it_migrates(tmp_path: Path) -> None:
    done = run(
        [
            *[sys.executable, ROOT / "benchmarks" / "updates_figures.py", "--rows", "50000", "--rounds", "1"],
            *["--seconds", "0.2", "--results", tmp_path],
        ],
        LAKEMARK_BENCH_DATA=str(tmp_path / "data"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "updates-figures-50000.json").read_text("utf-8"))
    assert set(result["schemes"]["scans"]["cold"]["all"]) == {"without", "in place", "coarse", "fine"}
    assert set(result["fill"]["scans"]["memory"]["1 MB"]) == {"without", "25%", "50%", "75%", "99%"}
    changed = list(result["fill"]["changed"].values())
    assert changed == sorted(changed)
    assert changed[0] < changed[-1]
    assert set(result["speed"]["scans"]["memory"]["4 KB"]) == {"without", "2,000", "4,000", "6,000", "8,000", "10,000"}
    assert result["migration"]["scans_meanwhile"] >= 1
    assert set(result["sustained"]) == {"256 KB", "512 KB", "1 MB", "in place (delta-rs)"}
    assert min(result["sustained"].values()) > 0
    assert (tmp_path / "updates-figures-50000.png").stat().st_size > 10_000


def test_tpch_with_buffered_orders_and_lines_has_the_answers_of_duckdb(tmp_path: Path) -> None:
    done = run(
        [
            *[sys.executable, ROOT / "benchmarks" / "updates_tpch.py", "--scale", "0.01", "--rounds", "1"],
            *["--results", tmp_path],
        ],
        LAKEMARK_BENCH_DATA=str(tmp_path / "data"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "updates-tpch-0.01.json").read_text("utf-8"))
    assert len(result["queries"]) == 22
    assert all(set(query) == {"without", "pending", "in place", "arriving"} for query in result["queries"])
    # A hundredth of 15,000 orders, and four lines each on average.
    assert 100 < result["pending_rows"]["orders"] < 200
    assert 3 < result["pending_rows"]["lineitem"] / result["pending_rows"]["orders"] < 5


def test_zones_leave_no_key_out_and_fewer_in_vain_the_larger_they_are(tmp_path: Path) -> None:
    done = run(
        [
            *[sys.executable, ROOT / "benchmarks" / "zones.py", "--rows", "20000"],
            *["--probes", "4", "--ranges", "1", "--results", tmp_path],
        ],
        LAKEMARK_BENCH_DATA=str(tmp_path / "data"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "zones-20000.json").read_text("utf-8"))
    assert set(result["sweeps"]) == {"pk", "att1", "shuffled"}
    assert set(result["hit_rates"]) == {"16", "20000"}
    trees = result["sweeps"]["shuffled"]["16"]
    assert list(trees) == ["0.2", "0.1", "0.019", "0.0018", "0.000172", "1.5e-07", "1e-15", "key"]
    false = [tree["searches_hit"].get("false_zones") for tree in trees.values()]
    # The fences of a block of 4,096 rows leave nearly 256 zones, of which one in five is taken for the key's.
    assert 30 < false[0] < 70
    assert false[:4] == sorted(false[:4], reverse=True)
    assert false[6:] == [0, None]
    sizes = [tree["bytes"] for tree in trees.values()]
    assert sizes[:7] == sorted(sizes[:7])
    # In order, fences alone find the zone of a key that is there.
    assert [tree["searches_hit"].get("false_zones", 0) for tree in result["sweeps"]["pk"]["16"].values()] == [0] * 8
    assert result["sweeps"]["pk"]["16"]["key"]["range_rows_read"]["0.1"] == 1
    assert (tmp_path / "zones-20000.png").stat().st_size > 10_000


def test_summaries_grow_without_rewriting_beside_the_model_of_the_paper(tmp_path: Path) -> None:
    done = run(
        [
            *[sys.executable, ROOT / "benchmarks" / "pbfilter.py", "--rows", "20000", "--steps", "2"],
            *["--probes", "10", "--results", tmp_path],
        ],
        LAKEMARK_BENCH_DATA=str(tmp_path / "data"),
    )
    assert done.returncode == 0, done.stderr
    points = json.loads((tmp_path / "pbfilter-20000.json").read_text("utf-8"))["points"]
    assert [point["rows"] for point in points] == [10_000, 20_000]
    for step, point in enumerate(points, 1):
        appended = point["summaries"]["as in the paper, appended"]
        compacted = point["summaries"]["as in the paper, compacted"]
        assert (appended["segments"], compacted["segments"]) == (step, 1)
        assert appended["read_again_in_all"] == 0
        assert appended["stale_segment_bytes"] == 0
        assert 1 <= appended["hit"]["zones_read"] < 1.5
        assert appended["hit"]["reads"] >= compacted["hit"]["reads"]
    assert compacted["stale_segment_bytes"] > 0


def test_many_queries_at_once_have_the_answers_of_duckdb_and_refused_levels_say_why(tmp_path: Path) -> None:
    ways = ["engine", "duckdb", "off", "plans", "pages", "stars"]
    done = run(
        [
            *[sys.executable, ROOT / "benchmarks" / "sharing.py", "--scale", "0.01", "--rounds", "1"],
            *["--seconds", "0.1", "--longest", "1e9", "--most-clients", "8"],
            *["--workloads", "identical,dates,mix,cold"],
            *["--ways", ",".join(ways), "--results", tmp_path],
        ],
        LAKEMARK_BENCH_DATA=str(tmp_path / "data"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "sharing-0.01.json").read_text("utf-8"))
    assert sorted([*result["ways"], *result["skipped"]]) == sorted(ways)
    assert all("lakemark.share" in reason for reason in result["skipped"].values())
    assert {"engine", "duckdb", "off"} <= set(result["ways"])
    points = {(point["workload"], point["clients"]): point for point in result["points"]}
    assert set(points) == {(name, count) for name in ("identical", "dates", "mix", "cold") for count in (1, 8)}
    for point in result["points"]:
        assert set(point["ways"]) == set(result["ways"])
        assert not point["left_out"]
        assert all(cost["queries"] >= point["clients"] for cost in point["ways"].values())
    # Q1, eight of its dates, and whatever else was asked.
    assert result["judged"] > 9
    # The work of a query is measured, and eight times it is a sum that may be rounded.
    assert points["identical", 8]["headroom"]["cpu"]["plans"] == pytest.approx(0.125)
    dates = points["dates", 8]["headroom"]
    assert (dates["distinct"], dates["known_to_indexes"], dates["pieces"], dates["rows"]) == (8, 8, 1, 60_175)
    assert 1 < dates["bound"] < 8
    assert dates["cpu"]["stars"] <= dates["cpu"]["pages"] < dates["cpu"]["plans"] == 1
    assert (tmp_path / "sharing-0.01.png").stat().st_size > 10_000


def test_each_call_of_a_server_is_measured_beside_the_statement_in_process(tmp_path: Path) -> None:
    done = run(
        [
            *[sys.executable, ROOT / "benchmarks" / "serve_calls.py", "--scale", "0.01", "--runs", "2"],
            *["--results", tmp_path],
        ],
        LAKEMARK_BENCH_DATA=str(tmp_path / "data"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "serve-calls-0.01.json").read_text("utf-8"))
    assert len(result["goals"]) == 2
    assert (tmp_path / "serve-calls-0.01.png").stat().st_size > 10_000
    measured = result["statements"]
    assert list(measured) == ["SELECT 1", "Q1.1", "Q2.1", "Q3.2"]
    calls = {"nothing", "Prepare", "GetFlightInfo", "DoGet, first rows", "DoGet, the rest", "Close", "in process"}
    calls |= {"first rows in process", "first rows by two calls", "first rows by a cursor"}
    for steps in measured.values():
        assert calls < set(steps)
        assert all(step["ms"] > 0 and step["cpu_ms"] >= 0 for step in steps.values())


def test_model_of_pbfilter_is_the_one_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import pbfilter_model

    model = pbfilter_model.pbfilter(1_000_000)
    # "The cost model gives R=10 for this setting"; 7 buffers of 2 KB; filters are about a tenth of the keys.
    assert (model.read_lookup, model.memory_kb) == (10, 14)
    assert (model.live, model.live_filters, model.stale) == (7813 + 1024, 1024, 40_576)
    assert model.written == model.live + model.stale
    # Twice the keys: twice the filters, and more than twice the reorganizations.
    assert pbfilter_model.pbfilter(2_000_000).live_filters == 2048
    assert pbfilter_model.false_positive(16, 7) == pytest.approx(0.0007, abs=1e-5)


def test_formulas_of_the_thesis_give_its_own_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import zones_model

    # 2^22 keys of 8 bytes with pointers of 8 fill 16,384 pages of 4,096 bytes, and one inner page for each 256.
    assert zones_model.bplus_bytes(2**22, 1) == (16_384 + 64) * 4096
    # Table 5.2 has 406 and 8,565 pages, for a relation that is not quite of this size.
    assert zones_model.bloom_bytes(2**22, 1, 0.2) / 4096 == pytest.approx(406, rel=0.07)
    assert zones_model.bloom_bytes(2**22, 1, 1e-15) / 4096 == pytest.approx(8565, rel=0.09)
    assert (zones_model.bplus_height(2**22, 1), zones_model.bloom_height(2**22, 1, 0.2)) == (3, 3)
