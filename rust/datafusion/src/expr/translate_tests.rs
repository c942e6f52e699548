//! Every translation, with the truth value that it gives to keys, and everything that is declined.

use arrow::datatypes::{Field, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::prelude::SessionContext;
use lakemark_index::{LiteralKey, encode_literal};

use super::*;

fn schema() -> Schema {
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    Schema::new(vec![
        Field::new("i", DataType::Int32, true),
        Field::new("u", DataType::UInt64, true),
        Field::new("f", DataType::Float64, true),
        Field::new("b", DataType::Boolean, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("v", DataType::Utf8View, true),
        Field::new("d", dictionary, true),
        Field::new("dec", DataType::Decimal128(10, 2), true),
        Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, None), true),
        Field::new("day", DataType::Date32, true),
        Field::new("bin", DataType::Binary, true),
        Field::new_list("l", Field::new("item", DataType::Int32, true), true),
        Field::new_list("lf", Field::new("item", DataType::Float64, true), true),
        Field::new_list("lv", Field::new("item", DataType::Utf8View, true), true),
        Field::new_fixed_size_list("lp", Field::new("item", DataType::Int32, true), 2, true),
        Field::new_list("ll", Field::new_list("item", Field::new("item", DataType::Int32, true), true), true),
    ])
}

/// As a scan gets it: coerced and simplified.
fn filters(sql: &str) -> Vec<Expr> {
    let context = SessionContext::new();
    let schema = DFSchema::try_from(schema()).unwrap();
    let expr = context.state().create_logical_expr(sql, &schema).unwrap();
    let scan = datafusion::logical_expr::logical_plan::table_scan(Some("t"), &self::schema(), None).unwrap();
    let plan = scan.filter(expr).unwrap().build().unwrap();
    let optimized = context.state().optimize(&plan).unwrap();
    let mut found = Vec::new();
    use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
    optimized
        .apply(|node| {
            match node {
                datafusion::logical_expr::LogicalPlan::Filter(filter) => found.push(filter.predicate.clone()),
                datafusion::logical_expr::LogicalPlan::TableScan(scan) => found.extend(scan.filters.clone()),
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })
        .unwrap();
    found
}

fn translated(sql: &str) -> Predicate {
    translate(&filters(sql), &schema())
}

/// The predicate's truth for a row whose only interesting column holds `key` (NULL if none).
fn truth(predicate: &Predicate, key: Option<&Key>) -> Truth {
    match predicate {
        Predicate::Const(truth) => *truth,
        Predicate::Leaf(Leaf { test: Test::IsNull, .. }) => {
            if key.is_none() {
                Truth::True
            } else {
                Truth::False
            }
        }
        // Of lists, the one whose only element has the key.
        Predicate::Leaf(Leaf { test: Test::Ranges(ranges) | Test::Elements(ranges), .. }) => match key {
            None => Truth::Null,
            Some(key) => {
                if ranges.contains(key) {
                    Truth::True
                } else {
                    Truth::False
                }
            }
        },
        Predicate::Not(inner) => match truth(inner, key) {
            Truth::True => Truth::False,
            Truth::False => Truth::True,
            Truth::Null => Truth::Null,
        },
        Predicate::And(parts) => fold(parts, key, Truth::False, Truth::True),
        Predicate::Or(parts) => fold(parts, key, Truth::True, Truth::False),
        Predicate::Unknown { reason, text } => panic!("declined: {text} ({reason})"),
    }
}

fn fold(parts: &[Predicate], key: Option<&Key>, decisive: Truth, neutral: Truth) -> Truth {
    let truths: Vec<Truth> = parts.iter().map(|part| truth(part, key)).collect();
    if truths.contains(&decisive) {
        decisive
    } else if truths.contains(&Truth::Null) {
        Truth::Null
    } else {
        neutral
    }
}

fn key(value: ScalarValue) -> Key {
    match encode_literal(value.to_array().unwrap().as_ref()) {
        Some(LiteralKey::Key(key)) => key,
        other => panic!("no key: {other:?}"),
    }
}

/// T, F or N for each value, then for NULL.
fn pattern(sql: &str, values: &[ScalarValue]) -> String {
    let predicate = translated(sql);
    let keys = values.iter().map(|value| Some(key(value.clone()))).chain([None]);
    keys.map(|key| match truth(&predicate, key.as_ref()) {
        Truth::True => 'T',
        Truth::False => 'F',
        Truth::Null => 'N',
    })
    .collect()
}

fn integers(sql: &str) -> String {
    pattern(sql, &[1, 5, 9].map(|value| ScalarValue::Int32(Some(value))))
}

fn texts(sql: &str) -> String {
    pattern(sql, &["", "ab", "abc", "b"].map(|value| ScalarValue::Utf8(Some(value.to_owned()))))
}

fn reason(sql: &str) -> Reason {
    match translated(sql) {
        Predicate::Unknown { reason, .. } => reason,
        other => panic!("{sql} was translated: {other:?}"),
    }
}

#[test]
fn comparisons_of_integers() {
    for (sql, expected) in [
        ("i = 5", "FTFN"),
        ("5 = i", "FTFN"),
        ("i != 5", "TFTN"),
        ("i < 5", "TFFN"),
        ("i <= 5", "TTFN"),
        ("i > 5", "FFTN"),
        ("i >= 5", "FTTN"),
        ("5 > i", "TFFN"),
        ("5 <= i", "FTTN"),
        ("i BETWEEN 2 AND 9", "FTTN"),
        ("i NOT BETWEEN 2 AND 8", "TFTN"),
        ("i BETWEEN 8 AND 2", "FFFN"),
        ("i IN (1, 9, 77, 78, 79)", "TFTN"),
        ("i NOT IN (1, 9, 77, 78, 79)", "FTFN"),
        ("i IN (1, NULL, 77, 78, 79)", "TNNN"),
        ("i NOT IN (1, NULL, 77, 78, 79)", "FNNN"),
        ("i IS NULL", "FFFT"),
        ("i IS NOT NULL", "TTTF"),
        ("i IS DISTINCT FROM 5", "TFTT"),
        ("i IS NOT DISTINCT FROM 5", "FTFF"),
        ("i IS DISTINCT FROM NULL", "TTTF"),
        ("i IS NOT DISTINCT FROM NULL", "FFFT"),
        ("(i = 5) IS TRUE", "FTFF"),
        ("(i = 5) IS NOT TRUE", "TFTT"),
        ("(i = 5) IS FALSE", "TFTF"),
        ("(i = 5) IS NOT FALSE", "FTFT"),
        ("(i = 5) IS UNKNOWN", "FFFT"),
        ("(i = 5) IS NOT UNKNOWN", "TTTF"),
        ("NOT (i = 5 OR i > 8)", "TFFN"),
        ("i > 1 AND i < 9", "FTFN"),
        ("i > 1 AND i IS NOT NULL", "FTTF"),
    ] {
        assert_eq!(integers(sql), expected, "{sql}");
    }
}

#[test]
fn a_literal_outside_the_type_is_on_one_side_of_all_values() {
    for (sql, expected) in [
        ("i = 3000000000", "FFFN"),
        ("i != 3000000000", "TTTN"),
        ("i < 3000000000", "TTTN"),
        ("i >= 3000000000", "FFFN"),
        ("i > -3000000000", "TTTN"),
        ("i <= -3000000000", "FFFN"),
        ("i IN (3000000000, 5, 4000000000, 5000000000)", "FTFN"),
    ] {
        assert_eq!(integers(sql), expected, "{sql}");
    }
    let unsigned =
        pattern("u > 9223372036854775807", &[ScalarValue::UInt64(Some(0)), ScalarValue::UInt64(Some(u64::MAX))]);
    assert_eq!(unsigned, "FTN");
}

#[test]
fn casts_are_undone_only_where_they_widen_integers() {
    assert_eq!(integers("CAST(i AS BIGINT) = 5"), "FTFN");
    assert_eq!(integers("CAST(i AS BIGINT) < 3000000000"), "TTTN");
    // The engine's own rules may undo a cast before we see it: these are translated as they are.
    let context = SessionContext::new();
    let named = DFSchema::try_from(schema()).unwrap();
    for sql in ["CAST(f AS INT) = 5", "CAST(i AS SMALLINT) = 5", "CAST(s AS INT) = 5", "CAST(i AS SMALLINT) IS NULL"] {
        let expr = context.state().create_logical_expr(sql, &named).unwrap();
        let unknowns = translate(&[expr], &schema()).unknowns().first().map(|unknown| unknown.reason);
        assert_eq!(unknowns, Some(Reason::ExpressionNotSupported), "{sql}");
    }
}

#[test]
fn texts_of_every_layout() {
    for column in ["s", "v", "d"] {
        for (condition, expected) in [
            ("= 'ab'", "FTFFN"),
            ("!= 'ab'", "TFTTN"),
            ("> 'ab'", "FFTTN"),
            ("LIKE 'ab%'", "FTTFN"),
            ("NOT LIKE 'ab%'", "TFFTN"),
            ("LIKE 'ab'", "FTFFN"),
            ("LIKE NULL", "NNNNN"),
            ("IN ('', 'b', 'x', 'y')", "TFFTN"),
        ] {
            let sql = format!("{column} {condition}");
            assert_eq!(if condition == "LIKE NULL" { nulls(&sql) } else { texts(&sql) }, expected, "{sql}");
        }
        assert_eq!(texts(&format!("starts_with({column}, 'ab')")), "FTTFN");
    }
}

/// The optimizer replaces a predicate that is NULL everywhere by a constant, so that the test calls the translator directly.
fn nulls(sql: &str) -> String {
    let context = SessionContext::new();
    let schema = DFSchema::try_from(schema()).unwrap();
    let expr = context.state().create_logical_expr(sql, &schema).unwrap();
    match expr {
        Expr::Like(Like { negated, expr, escape_char, case_insensitive, .. }) => {
            let pattern = Box::new(Expr::Literal(ScalarValue::Utf8(None), None));
            let like = Expr::Like(Like { negated, expr, pattern, escape_char, case_insensitive });
            assert_eq!(translate(&[like], &self::schema()), Predicate::Const(Truth::Null));
            "NNNNN".to_owned()
        }
        other => panic!("{other}"),
    }
}

#[test]
fn patterns_that_are_no_prefix_are_left_to_the_engine() {
    for sql in
        ["s LIKE '%b'", "s LIKE 'a_c'", "s LIKE 'a%c'", "s LIKE 'a\\%'", "s ILIKE 'ab%'", "s LIKE 'a!%' ESCAPE '!'"]
    {
        assert_eq!(reason(sql), Reason::ExpressionNotSupported, "{sql}");
    }
}

#[test]
fn booleans() {
    let pattern = |sql| pattern(sql, &[ScalarValue::Boolean(Some(false)), ScalarValue::Boolean(Some(true))]);
    for (sql, expected) in [
        ("b", "FTN"),
        ("NOT b", "TFN"),
        ("b = true", "FTN"),
        ("b = false", "TFN"),
        ("b IS TRUE", "FTF"),
        ("b IS NOT TRUE", "TFT"),
        ("b IS FALSE", "TFF"),
        ("b IS NOT FALSE", "FTT"),
        ("b IS UNKNOWN", "FFT"),
        ("b IS NOT UNKNOWN", "TTF"),
    ] {
        assert_eq!(pattern(sql), expected, "{sql}");
    }
}

#[test]
fn floats_decimals_and_times() {
    let floats = [-1.0, -0.0, 0.0, 2.5].map(|value| ScalarValue::Float64(Some(value)));
    assert_eq!(pattern("f = 0.0", &floats), "FTTFN");
    assert_eq!(pattern("f < -0.0", &floats), "TFFFN");
    assert_eq!(pattern("f >= 0", &floats), "FTTTN");
    let decimals = [100, 250].map(|value| ScalarValue::Decimal128(Some(value), 10, 2));
    assert_eq!(pattern("dec > CAST('1.5' AS DECIMAL(10, 2))", &decimals), "FTN");
    let days = [0, 19_723].map(|value| ScalarValue::Date32(Some(value)));
    assert_eq!(pattern("day >= DATE '2024-01-01'", &days), "FTN");
    let times = [0, 1_704_067_200_000_000].map(|value| ScalarValue::TimestampMicrosecond(Some(value), None));
    assert_eq!(pattern("ts = TIMESTAMP '2024-01-01 00:00:00'", &times), "FTN");
}

#[test]
fn elements_of_lists() {
    for (sql, expected) in [
        ("array_has(l, 5)", "FTFN"),
        ("array_contains(l, 5)", "FTFN"),
        ("list_has(l, arrow_cast(5, 'Int8'))", "FTFN"),
        ("array_has(l, 5000000000)", "FFFN"),
        ("5 = ANY(l)", "FTFN"),
        ("NOT array_has(l, 5)", "TFTN"),
        ("array_has(l, 5) IS TRUE", "FTFF"),
        ("array_has(l, 5) IS NOT TRUE", "TFTT"),
        ("array_has(l, 5) IS UNKNOWN", "FFFT"),
        ("array_has(arrow_cast(l, 'LargeList(Int64)'), 5)", "FTFN"),
        ("array_has(lp, 5)", "FTFN"),
        ("array_has_any(l, [1, 5])", "TTFN"),
        ("array_has_any([1, 5], l)", "TTFN"),
        ("array_has_any(l, [5, 5000000000])", "FTFN"),
        ("array_has_all(l, [5, 5])", "FTFN"),
        ("array_has_all(l, [5, 9])", "FFFN"),
        ("l @> [5]", "FTFN"),
        ("array_has(l, 5) OR array_has(l, 9)", "FTTN"),
        ("array_has(l, 5) AND array_has(l, 9)", "FFFN"),
        ("array_has(l, NULL)", "NNNN"),
        ("l IS NULL", "FFFT"),
    ] {
        assert_eq!(integers(sql), expected, "{sql}");
    }
    for sql in ["array_has(lv, 'ab')", "'ab' = ANY(lv)", "array_has_any(lv, ['ab', 'x'])", "array_has_all(lv, ['ab'])"]
    {
        assert_eq!(texts(sql), "FTFFN", "{sql}");
    }
    let floats = [-1.0, 2.5].map(|value| ScalarValue::Float64(Some(value)));
    assert_eq!(pattern("array_has(lf, 2.5)", &floats), "FTN");
    // A row may have both, so that conditions on elements are not one, but for those of which one is enough.
    let searches = |sql: &str| translated(sql).leaves().len();
    assert_eq!(searches("array_has(l, 5) AND array_has(l, 9)"), 2);
    assert_eq!(searches("array_has(l, 5) OR array_has(l, 9)"), 1);
    assert_eq!(searches("array_has_any(l, [1, 5, 9])"), 1);
    assert_eq!(searches("array_has_all(l, [5, 9, 5, 5000000000, 6000000000])"), 3);
    let all = translated("array_has_all(l, [5, 9])");
    assert_eq!(
        all.leaves().iter().map(|leaf| leaf.text.as_str()).collect::<Vec<_>>(),
        ["array_has(t.l, 5)", "array_has(t.l, 9)"]
    );
    let many = (0..100).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    assert_eq!(
        (searches(&format!("array_has_all(l, [{many}])")), searches(&format!("array_has_any(l, [{many}])"))),
        (32, 1)
    );
    let cut = translated(&format!("array_has_all(l, [{many}])"));
    let reasons: Vec<_> = cut.unknowns().iter().map(|unknown| unknown.reason).collect();
    assert_eq!(reasons, [Reason::ExpressionNotSupported]);
    for (sql, expected) in [
        ("array_has(lf, 0.0)", Reason::LiteralNotRepresentable),
        ("array_has(lf, 'NaN'::double)", Reason::LiteralNotRepresentable),
        ("array_has_any(l, [5, NULL])", Reason::LiteralNotRepresentable),
        ("array_has(ll, [5])", Reason::ExpressionNotSupported),
        ("array_has(l, i)", Reason::ExpressionNotSupported),
        ("array_has_all([1, 5], l)", Reason::ExpressionNotSupported),
        ("array_has_any(l, l)", Reason::ExpressionNotSupported),
        ("array_has(array_sort(l), 5)", Reason::ExpressionNotSupported),
        ("array_has(arrow_cast(l, 'List(Utf8)'), '5')", Reason::ExpressionNotSupported),
        ("array_position(l, 5) > 0", Reason::ExpressionNotSupported),
    ] {
        assert_eq!(reason(sql), expected, "{sql}");
    }
}

#[test]
fn what_has_no_exact_key_is_declined_with_the_reason() {
    for (sql, expected) in [
        ("f = 'NaN'", Reason::LiteralNotRepresentable),
        ("f IN (0.0, 1.0, 2.0, 3.0, 4.0)", Reason::LiteralNotRepresentable),
        ("i + 1 = 5", Reason::ExpressionNotSupported),
        ("10 / i > 1", Reason::ExpressionNotSupported),
        ("abs(i) = 5", Reason::ExpressionNotSupported),
        ("i = u", Reason::ExpressionNotSupported),
        ("s SIMILAR TO 'a.*'", Reason::ExpressionNotSupported),
        ("upper(s) = 'AB'", Reason::ExpressionNotSupported),
    ] {
        assert_eq!(reason(sql), expected, "{sql}");
    }
    let list = Expr::Column(datafusion::common::Column::new_unqualified("l"));
    let is_null = translate(&[Expr::IsNull(Box::new(list.clone()))], &schema());
    assert!(matches!(is_null, Predicate::Leaf(Leaf { test: Test::IsNull, .. })));
    let same = list.clone().eq(Expr::Literal(ScalarValue::Int32(Some(1)), None));
    assert!(matches!(translate(&[same], &schema()), Predicate::Unknown { reason: Reason::TypeNotIndexed, .. }));
}

#[test]
fn an_unknown_part_keeps_the_known_ones() {
    let predicate = translated("i = 5 AND abs(i) = 5");
    assert_eq!(predicate.leaves().len(), 1);
    let reasons: Vec<_> = predicate.unknowns().iter().map(|unknown| unknown.reason).collect();
    assert_eq!(reasons, [Reason::ExpressionNotSupported]);
    assert_eq!(translate(&[], &schema()), Predicate::Const(Truth::True));
}

#[test]
fn a_chain_of_thousands_needs_no_deep_stack() {
    let column = Expr::Column(datafusion::common::Column::new_unqualified("i"));
    let mut chain = column.clone().eq(Expr::Literal(ScalarValue::Int32(Some(0)), None));
    for value in 1..20_000 {
        let next = column.clone().eq(Expr::Literal(ScalarValue::Int32(Some(value % 50)), None));
        chain = Expr::BinaryExpr(BinaryExpr::new(Box::new(chain), Operator::Or, Box::new(next)));
    }
    let predicate = translate(std::slice::from_ref(&chain), &schema());
    assert_eq!(truth(&predicate, Some(&key(ScalarValue::Int32(Some(49))))), Truth::True);
    assert_eq!(truth(&predicate, Some(&key(ScalarValue::Int32(Some(50))))), Truth::False);
    // Dropping the chain itself recurses within DataFusion's own types.
    std::mem::forget(chain);
}
