//! What the statement parser takes, what it leaves to DataFusion, and what it refuses.

use super::*;

fn one(text: &str) -> Statement {
    parse_one(text, &ConfigOptions::default()).unwrap()
}

fn error(text: &str) -> String {
    parse_one(text, &ConfigOptions::default()).unwrap_err().to_string()
}

#[test]
fn create_index_with_everything() {
    let Statement::CreateIndex(create) =
        one("CREATE INDEX IF NOT EXISTS By_Price ON Cat.Sch.Trips USING Bitmap (Price, \"Day of week\") \
         WITH (Encoding = equality, memory = '64MiB', threads = 2, build = FALSE);")
    else {
        panic!("not taken as CREATE INDEX");
    };
    assert_eq!(create.name.as_deref(), Some("by_price"));
    assert_eq!(create.table, TableReference::full("cat", "sch", "trips"));
    assert_eq!(create.columns, ["price", "Day of week"]);
    assert_eq!(create.kind, "bitmap");
    assert!(create.if_not_exists);
    let options: Vec<(&str, &str)> = create.options.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(options, [("build", "FALSE"), ("encoding", "equality"), ("memory", "64MiB"), ("threads", "2")]);
}

#[test]
fn create_index_with_the_least() {
    let Statement::CreateIndex(create) = one("create index on \"T\" (a)") else {
        panic!("not taken as CREATE INDEX");
    };
    assert_eq!(create.name, None);
    assert_eq!(create.table, TableReference::bare("T"));
    assert_eq!(create.kind, "auto");
    assert!(create.options.is_empty());
    assert!(!create.if_not_exists);
}

#[test]
fn columns_that_ride_along_are_an_option() {
    let include = |text: &str| {
        let Statement::CreateIndex(create) = one(text) else { panic!("not taken as CREATE INDEX") };
        assert_eq!(create.columns, ["id"]);
        create.options.get("include").cloned()
    };
    assert_eq!(include("CREATE INDEX ON t USING key (id) INCLUDE (City, \"a,b\")").as_deref(), Some("city,\"a,b\""));
    let with = "create index on t (id) include (city) with (files_per_segment = 4)";
    assert_eq!(include(with).as_deref(), Some("city"));
    assert_eq!(include("CREATE INDEX ON t (id)"), None);
    assert!(error("CREATE INDEX ON t (id) INCLUDE (a) WITH (include = 'b')").contains("given twice"));
    assert!(error("CREATE INDEX ON t (id) INCLUDE a").contains("list of columns"));
    assert!(error("CREATE INDEX ON t (id) INCLUDE ()").contains("identifier"));
}

#[test]
fn drop_and_show() {
    assert_eq!(
        one("DROP INDEX IF EXISTS i ON t"),
        Statement::DropIndex { name: "i".into(), table: TableReference::bare("t"), if_exists: true }
    );
    assert_eq!(
        one("drop index \"I\" on s.t;"),
        Statement::DropIndex { name: "I".into(), table: TableReference::partial("s", "t"), if_exists: false }
    );
    assert_eq!(one("SHOW INDEXES FROM t"), Statement::ShowIndexes { table: TableReference::bare("t") });
}

#[test]
fn several_statements_keep_their_order() {
    let statements =
        parse("SELECT 1;; CREATE INDEX i ON t (a); SELECT 'CREATE INDEX';", &ConfigOptions::default()).unwrap();
    assert_eq!(statements.len(), 3);
    assert!(matches!(statements[0], Statement::Engine(_)));
    assert!(matches!(statements[1], Statement::CreateIndex(_)));
    assert!(matches!(statements[2], Statement::Engine(_)));
    assert!(parse("  ; -- nothing\n", &ConfigOptions::default()).unwrap().is_empty());
}

#[test]
fn other_statements_go_to_the_engine() {
    for text in [
        "SHOW TABLES",
        "DROP TABLE t",
        "CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '/x' OPTIONS ('lakemark.store' '/y')",
        "EXPLAIN ANALYZE SELECT 1",
        "SELECT * FROM \"index\"",
    ] {
        assert!(matches!(one(text), Statement::Engine(_)), "{text}");
    }
}

#[test]
fn bad_syntax_says_what_was_expected() {
    for (text, part) in [
        ("CREATE INDEX i ON t", "a list of columns in parentheses"),
        ("CREATE INDEX i ON t ()", "identifier"),
        ("CREATE INDEX i ON t (a", "',' or ')' in the list of columns"),
        ("CREATE INDEX i t (a)", "ON"),
        ("CREATE INDEX IF NOT EXISTS ON t (a)", "a name after IF NOT EXISTS"),
        ("CREATE INDEX i ON t (a) WITH", "options in parentheses"),
        ("CREATE INDEX i ON t (a) WITH (x)", "'=' after the option's name"),
        ("CREATE INDEX i ON t (a) WITH (x = )", "an option's value"),
        ("CREATE INDEX i ON t (a) WITH (x = 1, X = 2)", "given twice"),
        ("CREATE INDEX i ON t (a) nonsense", "end of statement"),
        ("CREATE UNIQUE INDEX i ON t (a)", "UNIQUE indexes are not supported"),
        ("DROP INDEX i", "DROP INDEX name ON table"),
        ("DROP INDEX t.i", "DROP INDEX name ON table"),
        ("SHOW INDEXES", "FROM and a table's name"),
        ("SHOW INDEXES FROM t WHERE 1", "end of statement"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("", "no SQL statement"),
    ] {
        let message = error(text);
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn parameters_without_numbers_get_those_of_their_places() {
    let text = "SELECT ? AS a, '?' FROM t WHERE b = ? LIMIT ?; SELECT ?";
    let parsed = parse(text, &ConfigOptions::default()).unwrap();
    let [Statement::Engine(first), Statement::Engine(second)] = parsed.as_slice() else { panic!("{parsed:?}") };
    assert_eq!(first.to_string(), "SELECT $1 AS a, '?' FROM t WHERE b = $2 LIMIT $3");
    assert_eq!(second.to_string(), "SELECT $1");
    assert!(error("SELECT ? + $1").contains("write all parameters of a statement as ?"));
}
