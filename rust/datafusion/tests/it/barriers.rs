//! What is known of the input of outer joins and grouping sets, which make rows of which it does not hold.

use crate::engine::{Statement, datafusion_alone_is_wrong, ours_are_right};

const TABLES: [&str; 3] = [
    "CREATE TABLE u AS SELECT value AS id FROM generate_series(0, 9)",
    "CREATE TABLE v AS SELECT value AS id, value % 3 AS c2 FROM generate_series(5, 14)",
    "CREATE TABLE w AS SELECT value AS id, value % 3 AS g, 7 AS h FROM generate_series(0, 299)",
];

/// Statements over them with their rows, and whether DataFusion alone gives others with one partition.
const STATEMENTS: [Statement; 15] = [
    Statement::wrong(
        "SELECT a.id, c.id, c.c2 FROM u AS a FULL JOIN (SELECT * FROM v WHERE c2 = 1) AS c ON a.id = c.id \
         ORDER BY c.c2 DESC NULLS FIRST, a.id NULLS FIRST, c.id LIMIT 3",
        &["0|NULL|NULL", "1|NULL|NULL", "2|NULL|NULL"],
    ),
    Statement::wrong(
        "SELECT a.id, c.id FROM u AS a LEFT JOIN (SELECT * FROM v WHERE c2 = 1) AS c ON a.id = c.id ORDER BY c.c2, a.id LIMIT 2",
        &["7|7", "0|NULL"],
    ),
    Statement::wrong(
        "SELECT a.id, c.id FROM (SELECT * FROM v WHERE c2 = 1) AS c RIGHT JOIN u AS a ON a.id = c.id ORDER BY c.c2, a.id LIMIT 2",
        &["7|7", "0|NULL"],
    ),
    // Columns that are equal are so where both are NULL, and a constant beside them is not.
    Statement::wrong(
        "SELECT a.id, c.d FROM u AS a LEFT JOIN (SELECT id, c2 AS d FROM v WHERE c2 = id - 6 AND c2 = 1) AS c ON a.id = c.id \
         ORDER BY c.d, a.id LIMIT 2",
        &["7|1", "0|NULL"],
    ),
    Statement::right(
        "SELECT a.id, c.one FROM u AS a LEFT JOIN (SELECT id, 1 AS one FROM v) AS c ON a.id = c.id ORDER BY c.one DESC, a.id LIMIT 1",
        &["0|NULL"],
    ),
    Statement::wrong(
        "SELECT a.id, c.id FROM u AS a LEFT JOIN (SELECT * FROM v WHERE c2 = 1) AS c ON a.id > c.id ORDER BY c.c2, a.id, c.id LIMIT 3",
        &["8|7", "9|7", "0|NULL"],
    ),
    // The side that gets no new rows keeps what is known of it.
    Statement::right(
        "SELECT a.id, c.id FROM (SELECT * FROM v WHERE c2 = 1) AS a LEFT JOIN u AS c ON a.id = c.id ORDER BY a.c2, a.id",
        &["7|7", "10|NULL", "13|NULL"],
    ),
    Statement::right(
        "SELECT b.g, count(*) FROM w AS a JOIN w AS b ON a.id = b.id WHERE b.g IN (2) GROUP BY CUBE (b.g) ORDER BY 1",
        &["2|100", "NULL|100"],
    ),
    Statement::wrong(
        "SELECT g, count(*) FROM (SELECT id / 60 AS g FROM w ORDER BY g LIMIT 200) GROUP BY GROUPING SETS ((g), ()) ORDER BY 1",
        &["0|60", "1|60", "2|60", "3|20", "NULL|200"],
    ),
    Statement::right(
        "SELECT h, g, count(*) FROM w WHERE h = g + 5 GROUP BY ROLLUP (h, g) ORDER BY 1, 2",
        &["7|2|100", "7|NULL|100", "NULL|NULL|100"],
    ),
    Statement::wrong(
        "SELECT g, id % 50, count(*) FROM w WHERE g = 2 AND id < 9 GROUP BY ROLLUP (g, id % 50) ORDER BY 1, 2",
        &["2|2|1", "2|5|1", "2|8|1", "2|NULL|3", "NULL|NULL|3"],
    ),
    Statement::wrong(
        "SELECT id FROM (SELECT 'id' AS id UNION ALL SELECT 'id' AS id ORDER BY id) GROUP BY GROUPING SETS ((id), ()) ORDER BY 1",
        &["id", "NULL"],
    ),
    // The side that is sorted below the join has a column of one value; with several partitions DataFusion alone has no plan.
    Statement::right(
        "SELECT b.id, b.two, (SELECT max(s.id) FROM v AS s WHERE s.c2 = b.c2) FROM (SELECT *, 2 AS two FROM v) AS b \
         ORDER BY b.id DESC, b.two, b.c2 LIMIT 2",
        &["14|2|14", "13|2|13"],
    ),
    Statement::right(
        "SELECT b.id, b.c2, (SELECT max(s.id) FROM v AS s WHERE s.c2 = b.c2) FROM v AS b WHERE b.c2 = 1 ORDER BY b.id DESC, b.c2",
        &["13|1|13", "10|1|13", "7|1|13"],
    ),
    Statement::right(
        "SELECT b.id, row_number() OVER (PARTITION BY b.id ORDER BY b.two, b.c2), (SELECT max(s.id) FROM v AS s WHERE s.c2 = b.c2) \
         FROM (SELECT *, 2 AS two FROM v) AS b ORDER BY b.id LIMIT 1",
        &["5|1|14"],
    ),
];

#[tokio::test]
async fn nothing_is_known_of_rows_that_an_operator_adds() {
    ours_are_right(&TABLES, &STATEMENTS).await;
}

/// While this holds DataFusion needs our rule, and `docs/limits.md` has it.
#[tokio::test]
async fn datafusion_alone_still_takes_what_is_known_of_the_input_for_known_of_all_rows() {
    datafusion_alone_is_wrong(&TABLES, &STATEMENTS, 1).await;
}
