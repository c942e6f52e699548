//! Joins of few rows with a table that has an index on the key: [`IndexJoinExec`] stands over a hash join of the engine.
//!
//! ```text
//! RecursiveQueryExec                               RecursiveQueryExec
//!   …                                                …
//!   HashJoinExec: on=[(node, s)]           ─▶        IndexJoinExec: table=right, keys=[s]
//!     WorkTableExec                                    HashJoinExec: on=[(node, s)]
//!     LakemarkScanExec: s, o                             WorkTableExec
//!                                                        LakemarkScanExec: s, o
//! ```
//!
//! The operator takes the rows of the input that may have few. If they are few, it searches the index for their keys, all keys at once. Then
//! it runs the join over these rows and the rows of the table that have one of the keys. The index gives rows whose columns it includes, and
//! says of all others where they are. If there are many rows, or if reading the table is cheaper, it runs the join as it was planned: over
//! the rows that it holds, those that come after them, and the whole table.
//!
//! A join makes nothing of a row of the table without a match where the operator stands. So whatever the join compares (several keys, more
//! conditions, NULLs), it compares the rows that matter. An index that knows nothing of some rows leaves them to be read.
//!
//! A recursive query resets its recursive term in each round: the join has no filter for the scan then, and the scan reads the table. The
//! operator begins anew, and its metrics go on. Leaves of the index and rows that were found stay in the caches of the process.

mod collected;
mod exec;

pub(crate) use collected::MOST_ROWS;
pub(crate) use exec::{IndexJoinExec, IndexJoinRequest, TableKey, TableSide};
