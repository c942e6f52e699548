"""What the benchmark of shared work predicts, asks and judges; `test_examples.py` runs it as it is."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROWS = 100_000
FOUR = {"a": 4.0, "b": 4.0, "c": 12.0, "d": 4.0}


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


def masks(seed: int, *shares: float) -> list[Any]:
    drawn = np.random.default_rng(seed)
    return [drawn.random(ROWS) < share for share in shares]


def test_a_row_set_counts_rows_runs_and_the_rows_of_touched_pages() -> None:
    from sharing_model import PAGE_ROWS, RowSet

    mask = np.zeros(2 * PAGE_ROWS + 5, dtype=np.bool_)
    assert RowSet.of(mask) == RowSet(2 * PAGE_ROWS + 5, 0, 0, 0)
    mask[[0, 1, 7]] = True
    mask[-2:] = True
    # The first page, and the last one of five rows.
    assert RowSet.of(mask) == RowSet(2 * PAGE_ROWS + 5, selected=5, runs=3, touched=PAGE_ROWS + 5)


def test_equal_row_sets_are_decoded_once_for_all_queries() -> None:
    from sharing_model import Wanted, piece, read

    for share in (0.001, 0.2, 1.0):
        (mask,) = masks(1, share)
        costs = piece([Wanted(mask, FOUR)] * 8)
        assert costs.bound == pytest.approx(8)
        assert costs.selected == 8 * costs.union == 8 * int(mask.sum())
    assert costs.shared == read(read_set(mask), FOUR) == ROWS * 24.0


def read_set(mask: Any) -> Any:
    from sharing_model import RowSet

    return RowSet.of(mask)


def test_a_piece_that_one_query_wants_is_not_shared() -> None:
    from sharing_model import Wanted, piece

    one, none = masks(2, 0.3, 0.0)
    costs = piece([Wanted(one, FOUR), Wanted(none, {"e": 4.0})])
    assert (costs.pieces, costs.pieces_shared) == (1, 0)
    assert costs.shared == costs.private
    assert piece([Wanted(none, FOUR)] * 2).private == 0


def test_a_few_rows_of_a_piece_are_cheaper_to_read_alone_than_out_of_all_rows() -> None:
    from sharing_model import Wanted, piece

    few = np.zeros(ROWS, dtype=np.bool_)
    few[:10] = True
    (all_rows,) = masks(3, 1.0)
    # The many rows are read anyway, and the few would be searched for among them.
    assert piece([Wanted(few, {"a": 4.0}), Wanted(all_rows, FOUR)]).pieces_shared == 0
    assert piece([Wanted(all_rows, FOUR), Wanted(all_rows, {"a": 4.0})]).pieces_shared == 1


def test_prediction_never_loses_and_shares_only_what_wins() -> None:
    from sharing_model import SHARE_FACTOR, SHARE_NANOSECONDS, Wanted, piece

    shared = 0
    for seed in range(40):
        drawn = random.Random(seed)  # noqa: S311 - no secret
        wanted = [
            Wanted(mask, dict(drawn.sample(list(FOUR.items()), drawn.randint(1, 4))))
            for mask in masks(seed, *(drawn.choice((0.0, 0.0005, 0.02, 0.5, 1.0)) for _ in range(drawn.randint(1, 6))))
        ]
        costs = piece(wanted)
        assert costs.shared <= costs.private
        assert max(int(each.mask.sum()) for each in wanted) <= costs.union <= min(costs.selected, ROWS)
        if costs.pieces_shared:
            assert costs.private > SHARE_FACTOR * costs.shared + SHARE_NANOSECONDS
        shared += costs.pieces_shared
    assert 0 < shared < 40


def test_reading_some_rows_never_costs_more_than_reading_all_and_testing_them() -> None:
    from sharing_model import TEST, read

    for share in (0.0001, 0.001, 0.01, 0.1, 0.5, 0.9):
        (mask,) = masks(4, share)
        assert 0 < read(read_set(mask), FOUR) <= ROWS * (24.0 + TEST)


def test_each_level_saves_what_it_shares() -> None:
    from sharing_model import Costs, Work, predicted

    work = Work(total=1.0, scans=0.5, joins=0.25)
    eight = Work(8.0, 4.0, 2.0)
    # Eight equal queries are one.
    alone = Costs(private=100.0, shared=100.0, selected=10, union=10)
    assert predicted(eight, work, [(work, alone)]) == {"plans": 0.125, "pages": 0.125, "stars": 0.125}
    # Eight different ones: scans are half of each, and a quarter of their cost is left; so is a tenth of the joins.
    apart = Costs(private=100.0, shared=25.0, selected=100, union=10)
    found = predicted(eight, eight, [(eight, apart)])
    assert found == pytest.approx({"plans": 1.0, "pages": 1 - 0.5 * 0.75, "stars": 1 - 0.5 * 0.75 - 0.25 * 0.9})


def test_every_engine_is_asked_the_same_and_each_turn_something_else() -> None:
    from sharing_queries import WORKLOADS, statement

    for name, workload in WORKLOADS.items():
        point = workload.points[-1]
        assert statement(name, point, 3, 5) == statement(name, point, 3, 5)
    identical, dates, q3_2 = (WORKLOADS[name].points[0] for name in ("identical", "dates", "q3.2"))
    assert len({statement("identical", identical, client, client).sql for client in range(64)}) == 1
    assert len({statement("dates", dates, client, 0).sql for client in range(61)}) == 61
    assert len({statement("q3.2", q3_2, 0, turn).sql for turn in range(64)}) > 60
    templates = [statement("mix", WORKLOADS["mix"].points[0], 0, turn).template for turn in range(6)]
    assert templates == ["Q1.1", "Q2.1", "Q3.2"] * 2
    few = WORKLOADS["plans"].points[-1]
    assert len({statement("plans", few, client, 0).sql for client in range(256)}) == 16


def test_conditions_of_a_statement_are_the_rows_that_its_joins_leave(tmp_path: Path) -> None:
    import ssb
    from sharing_queries import WORKLOADS, statement

    ssb.generate(tmp_path / "ssb", 0.02)
    connection = duckdb.connect()
    for table in ssb.TABLES:
        files = f"{tmp_path}/ssb/{table}/*.parquet"
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{files}')")
    seen = set()
    for name in ("mix", "wide"):
        for turn in range(9):
            asked = statement(name, WORKLOADS[name].points[-1], 0, turn)
            where = asked.sql.partition(" FROM ")[2].partition(" GROUP BY ")[0]
            joined = f"SELECT count(*), sum({' + '.join(asked.columns)}) FROM {where}"
            direct = f"SELECT count(*), sum({' + '.join(asked.columns)}) FROM lineorder WHERE "
            found = connection.execute(joined).fetchone()
            assert connection.execute(direct + " AND ".join(asked.conditions)).fetchone() == found
            seen.add((asked.template, found is not None and found[0] > 0))
    assert {template for template, is_some in seen if is_some} >= {"Q1.1", "Q2.1", "Q3.2"}


def test_clients_ask_at_the_same_time_and_each_as_often_as_it_should() -> None:
    from closed_loop import ask_at_once

    together = threading.Barrier(5)

    def ask(text: str) -> str:
        # Raises unless all of them are here.
        together.wait(timeout=300)
        return text.upper()

    asked = ask_at_once([ask] * 5, lambda client, turn: f"q{client}.{turn}", turns=3)
    expected = [(f"q{client}.{turn}", f"Q{client}.{turn}") for client in range(5) for turn in range(3)]
    assert sorted(asked.answers) == expected
    summary = asked.summary()
    assert summary["queries"] == len(asked.latencies) == 15
    assert summary["latency_ms"] <= summary["latency_ms_p95"]


def test_a_client_that_fails_ends_the_others_and_is_heard() -> None:
    from closed_loop import ask_at_once

    failed = threading.Event()

    def fails(text: str) -> None:
        failed.set()
        raise ValueError(text)

    def waits(_text: str) -> None:
        assert failed.wait(timeout=300)

    # The hour would be long.
    with pytest.raises(ValueError, match="q0"):
        ask_at_once([fails, waits], lambda client, _turn: f"q{client}", turns=1, seconds=3600)


def point(workload: str, clients: int, label: str = "", **ways: dict[str, float]) -> dict[str, Any]:
    return {"workload": workload, "clients": clients, "label": label, "ways": ways}


def test_goals_are_judged_by_what_was_measured_and_only_by_that() -> None:
    from sharing_goals import GOALS, judged, shown

    assert all(goal["met"] is None for goal in judged([]))
    assert {shown(goal)[3] for goal in judged([])} == {"not measured"}
    cpu = "cpu_seconds_per_query"
    over = "longer_than_here_ms"
    found = judged(
        [
            point("identical", 1, plans={"wall_seconds": 1.0}),
            point("identical", 8, plans={"wall_seconds": 1.25, cpu: 0.1}, duckdb={cpu: 0.2}),
            point("mix", 32, engine={cpu: 1.0}, duckdb={cpu: 0.25}, flight={cpu: 0.125, "queries_per_second": 50.0}),
            point("mix", 256, flight={"queries_per_second": 40.0}),
            point("alone", 1, "Q1", flight={over: 3.0}, **{"flight alone": {over: 1.0}}),
            point("alone", 1, "Q2", flight={over: 2.0}, **{"flight alone": {over: 1.5}}),
            point("cold", 1, pages={"disk_bytes": 10.0, "read_bytes": 10.0}),
            point("cold", 8, pages={"disk_bytes": 10.0, "read_bytes": 40.0}),
        ]
    )
    assert len(found) == len(GOALS)
    measured = {goal["what"]: (goal["measured"], goal["met"]) for goal in found if goal["met"] is not None}
    assert measured == {
        "8 identical Q1, times as long as one": (1.25, True),
        "8 identical Q1, share of DuckDB's CPU": (0.5, False),
        "32 clients, mix by flight: times less CPU than engine": (8.0, True),
        "32 clients, mix by flight: times less CPU than duckdb": (2.0, False),
        "mix by flight: least throughput beyond 32 clients": (0.8, False),
        "alone: ms longer by Flight at worst": (1.5, True),
        "alone: ms longer by Flight at worst, by a cursor each": (3.0, False),
        "8 cold scans, pages: times the bytes of one": (1.0, True),
        "8 cold scans, pages: times the bytes of one, also from memory": (4.0, False),
    }


def test_a_lone_query_is_longer_only_beyond_a_millisecond_and_what_is_noise_says_nothing() -> None:
    from sharing_goals import Measured, noisy, worst_alone

    def lone(plans: tuple[float, float], again: tuple[float, float]) -> list[dict[str, Any]]:
        of = [{"ratio": ratio, "longer_ms": longer} for ratio, longer in (plans, again)]
        return [point("alone", 1, "Q1", plans=of[0], **{"off again": of[1]})]

    for plans, again, worst, is_noisy in (
        ((1.2, 4.0), (1.0, 0.0), 1.2, False),
        ((1.2, 0.5), (1.0, 0.0), 1.0, False),
        ((1.2, 4.0), (1.1, 2.0), None, True),
        ((1.2, 4.0), (0.9, -2.0), None, True),
        ((1.2, 0.5), (1.1, 0.3), 1.0, False),
    ):
        found = lone(plans, again)
        assert worst_alone(Measured(found)) == worst, plans
        assert noisy(found) == (["alone Q1"] if is_noisy else []), again
    assert worst_alone(Measured([])) is None


def test_mixes_are_judged_where_unshared_ones_beside_themselves_are_alike() -> None:
    from sharing_goals import Measured, noisy, worst_of_mixes

    def mix(clients: int, pages: float, again: float) -> dict[str, Any]:
        of = [{"cpu_ratio": ratio, "seconds_ratio": ratio} for ratio in (pages, again)]
        return point("random", clients, pages=of[0], **{"off again": of[1]})

    found = [mix(2, 1.3, 0.9), mix(8, 0.8, 1.01), mix(32, 0.9, 1.0)]
    for field in ("cpu_ratio", "seconds_ratio"):
        assert worst_of_mixes(field)(Measured(found)) == 0.9
        assert worst_of_mixes(field)(Measured(found[:1])) is None
    assert noisy(found) == ["random 2"]


def test_a_way_that_would_take_too_long_is_left_out() -> None:
    from sharing import too_long

    assert too_long({"engine": 0.5, "plans": 0.01}, 256, 30.0) == {"engine": 128.0}
    assert too_long({}, 256, 30.0) == {}


def test_a_goal_is_drawn_by_how_much_of_it_is_reached() -> None:
    from sharing_plots import nearness

    assert nearness({"goal": ">= 6.00", "measured": 3.0}) == 0.5
    assert nearness({"goal": "<= 2.00", "measured": 4.0}) == 0.5
    assert nearness({"goal": "<= 2.00", "measured": 0.0}) == float("inf")


def test_answers_are_those_of_duckdb_as_far_as_it_is_asked_and_else_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sharing_ways

    monkeypatch.setattr(sharing_ways, "MOST_JUDGED", 1)
    judge = sharing_ways.Judge({})
    judge.check("one", [("SELECT 1 AS n", [[1.0]]), ("SELECT 2 AS n", [[7.0]])])
    assert (judge.judged, judge.known) == (1, 2)
    judge.check("other", [("SELECT 2 AS n", [[7.0]])])
    for text in ("SELECT 1 AS n", "SELECT 2 AS n"):
        with pytest.raises(AssertionError, match="other answers"):
            judge.check("other", [(text, [[3.0]])])
    judge.begin()
    with pytest.raises(AssertionError, match="one answers"):
        judge.check("one", [("SELECT 3 AS n", [[4.0]])])


def test_first_rows_are_judged_by_the_statement_that_is_worst() -> None:
    from serve_calls import BY_CALLS, BY_CURSOR, HERE, Step, goals_of

    def of(here: float, calls: float, cursor: float) -> dict[str, Step]:
        return {HERE: Step([here]), BY_CALLS: Step([calls]), BY_CURSOR: Step([cursor])}

    two, three = goals_of({"SELECT 1": of(0.001, 0.002, 0.002), "Q1.1": of(0.010, 0.0115, 0.014)})
    assert (two["measured"], two["met"]) == (pytest.approx(1.5), True)
    assert (three["measured"], three["met"]) == (pytest.approx(4.0), False)
    assert "Q1.1" in three["what"]


def test_commands_of_flight_sql_are_messages_of_protobuf() -> None:
    from serve_calls import command, fields_of, message

    # As the specification of protobuf has them: the key, the length in parts of seven bits, the bytes.
    assert message((1, b"ab"), (2, b"")) == b"\x0a\x02ab\x12\x00"
    assert message((1, b"x" * 300))[:3] == b"\x0a\xac\x02"
    for fields in ({1: b"x" * 300, 2: b""}, {15: b"y" * 127, 16: b"z" * 128}, {}):
        assert fields_of(message(*fields.items())) == fields
    packed = fields_of(command("CommandStatementQuery", (1, b"SELECT 1")))
    assert packed[1] == b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    assert fields_of(packed[2]) == {1: b"SELECT 1"}
    with pytest.raises(ValueError, match="without a length"):
        fields_of(b"\x08\x01")
