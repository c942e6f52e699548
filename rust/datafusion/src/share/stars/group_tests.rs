//! Queries of a group over pages whose columns count up.

use arrow::array::{Int32Array, Int64Array};
use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};

use super::*;
use crate::share::stars::keys::JoinKeys;

const ROWS: u32 = 100;

fn unlimited() -> Arc<dyn MemoryPool> {
    Arc::new(UnboundedMemoryPool::default())
}

fn group(memory: &Arc<dyn MemoryPool>) -> Arc<StarGroup> {
    Arc::new(StarGroup::new(Arc::new(()), memory))
}

fn keys(column: usize, keys: std::ops::Range<i64>) -> StarKeys {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
    StarKeys { column, keys: JoinKeys::of(&keys, &unlimited()).unwrap() }
}

/// A query of some keys in a column.
fn query(group: &Arc<StarGroup>, column: usize, range: std::ops::Range<i64>) -> Arc<StarQuery> {
    group.query(vec![keys(column, range)], 1_000, Terms::Always).unwrap()
}

fn all(query: &Arc<StarQuery>) -> StarWanted {
    StarWanted { taker: 1_000 + query.id, query: Arc::clone(query), rows: None }
}

/// What a chain leaves of a page to each query. Column 0 has the number of each row, column 1 that of the row from behind.
fn left(wanted: &[StarWanted]) -> Vec<Option<Vec<u32>>> {
    let routed = routed_page(wanted);
    wanted.iter().map(|own| Some(routed.of(own.taker)?.values().to_vec())).collect()
}

fn routed_page(wanted: &[StarWanted]) -> RoutedRows {
    let column = |place: usize| -> Option<ArrayRef> {
        let count = 0..ROWS as i32;
        match place {
            0 => Some(Arc::new(Int32Array::from_iter_values(count))),
            1 => Some(Arc::new(Int32Array::from_iter_values(count.rev()))),
            _ => None,
        }
    };
    routed(&StarPage { rows: ROWS, column: &column }, wanted, Terms::Always)
}

fn rows(range: std::ops::Range<u32>) -> Option<Vec<u32>> {
    Some(range.collect())
}

#[test]
fn law_a_lone_query_fills_no_table() {
    let group = group(&unlimited());
    let one = query(&group, 0, 10..20);
    assert_eq!(left(&[all(&one)]), [None]);
    assert!(group.read().dimensions.is_empty() && one.is_waiting());
}

#[test]
fn queries_of_one_page_get_their_rows_whatever_columns_they_have_keys_in() {
    let group = group(&unlimited());
    let (one, other, third) = (query(&group, 0, 10..20), query(&group, 1, 0..30), query(&group, 0, 200..300));
    let some = StarWanted { rows: Some(RowSet::from_range(0..75, ROWS)), ..all(&other) };
    assert_eq!(left(&[all(&one), some, all(&third)]), [rows(10..20), rows(70..75), rows(0..0)]);
    assert_eq!((one.share_left(), third.share_left()), (0.1, 0.0));
}

#[test]
fn a_column_that_a_page_lacks_leaves_out_nothing() {
    let group = group(&unlimited());
    let (one, other) = (query(&group, 7, 10..20), query(&group, 0, 3..4));
    assert_eq!(left(&[all(&one), all(&other)]), [rows(0..ROWS), rows(3..4)]);
}

#[test]
fn queries_of_another_group_are_left_as_they_are() {
    let memory = unlimited();
    let (group, another) = (group(&memory), group(&memory));
    let (one, other) = (query(&group, 0, 1..2), query(&another, 0, 2..3));
    assert_eq!(left(&[all(&one), all(&other)]), [None, None]);
}

#[test]
fn a_query_that_takes_a_page_twice_takes_it_as_it_is() {
    let group = group(&unlimited());
    let (one, other, third) = (query(&group, 0, 10..20), query(&group, 0, 3..4), query(&group, 0, 50..52));
    let twice = StarWanted { taker: 7, ..all(&one) };
    assert_eq!(left(&[all(&one), all(&other), twice, all(&third)]), [None, rows(3..4), None, rows(50..52)]);
}

#[test]
fn law_a_query_that_goes_leaves_no_bit_behind() {
    let group = group(&unlimited());
    let (one, other) = (query(&group, 0, 10..20), query(&group, 0, 15..25));
    assert_eq!(left(&[all(&one), all(&other)]), [rows(10..20), rows(15..25)]);
    one.leave();
    let next = query(&group, 1, 0..5);
    assert_eq!(left(&[all(&one), all(&other), all(&next)]), [None, rows(15..25), rows(95..100)]);
    assert_eq!(group.read().queries.get(&next.id).map(|bit| bit.place()), Some(0));
    drop((other, next));
    let state = group.read();
    assert!(state.queries.is_empty() && state.dimensions.is_empty());
    assert_eq!(state.memory.size(), 0);
}

#[test]
fn law_sixty_four_queries_have_bits_and_the_next_one_gets_the_first_that_is_free() {
    let group = group(&unlimited());
    let queries: Vec<Arc<StarQuery>> = (0..65).map(|first| query(&group, 0, first..first + 2)).collect();
    let wanted: Vec<StarWanted> = queries.iter().map(all).collect();
    let found = left(&wanted);
    assert!((0..64).all(|place| found[place as usize] == rows(place..place + 2)));
    assert_eq!(found[64], None);
    queries[30].leave();
    let found = left(&wanted);
    assert_eq!((&found[30], &found[64]), (&None, &rows(64..66)));
}

#[test]
fn law_a_query_without_memory_for_its_keys_takes_plain_pages() {
    let memory: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1_000 * size_of::<u64>()));
    let group = group(&memory);
    let (one, other, large) = (query(&group, 0, 10..20), query(&group, 0, 15..25), query(&group, 0, 0..1_001));
    let wanted = [all(&one), all(&large), all(&other)];
    assert_eq!(left(&wanted), [rows(10..20), None, rows(15..25)]);
    assert!(!large.is_waiting());
    assert_eq!(memory.reserved(), 15 * size_of::<u64>());
    assert!(group.query(Vec::new(), 1_000, Terms::Always).is_none());
}

#[test]
fn law_a_page_without_memory_for_its_chain_is_taken_as_it_is() {
    let tables = 20 * size_of::<u64>();
    let memory: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(tables + LiveRows::bytes_of(ROWS) - 1));
    let scarce = group(&memory);
    let (one, other) = (query(&scarce, 0, 10..20), query(&scarce, 0, 20..30));
    assert_eq!(left(&[all(&one), all(&other)]), [None, None]);
    assert_eq!((memory.reserved(), one.share_left()), (tables, 0.0));
    assert_eq!(one.wanted.load(Ordering::Relaxed), 0);
}

#[test]
fn rows_that_are_left_count_to_the_memory_as_long_as_their_page_is_kept() {
    let memory = unlimited();
    let group = group(&memory);
    let (one, other) = (query(&group, 0, 0..64), query(&group, 0, 64..100));
    let tables = 100 * size_of::<u64>();
    let (first, second) = (routed_page(&[all(&one), all(&other)]), routed_page(&[all(&one), all(&other)]));
    assert!(memory.reserved() >= tables + 2 * ROWS as usize * size_of::<u32>());
    assert!(memory.reserved() < tables + LiveRows::bytes_of(ROWS), "what computing them took is given back");
    drop((first, second));
    assert_eq!(memory.reserved(), tables);
}

#[test]
fn keys_that_are_many_beside_the_rows_stay_with_their_query() {
    let group = group(&unlimited());
    let made = |count: i64| group.query(vec![keys(0, 0..count)], 1_000, Terms::WherePays).is_some();
    assert_eq!([0, 250, 251].map(made), [false, true, false]);
}

/// Chains, comers and goers on several threads: what a chain gives is right for whoever it is for.
#[test]
fn law_chains_are_right_whoever_comes_and_goes() {
    let group = group(&unlimited());
    let stays = query(&group, 0, 40..60);
    std::thread::scope(|scope| {
        for thread in 0..4_i64 {
            let (group, stays) = (&group, &stays);
            scope.spawn(move || {
                for round in 0..200 {
                    let first = (thread * 13 + round * 7) % 90;
                    let own = query(group, usize::from(round % 2 == 0), first..first + 5);
                    let expected = match round % 2 {
                        0 => rows(95 - first as u32..100 - first as u32),
                        _ => rows(first as u32..first as u32 + 5),
                    };
                    let found = left(&[all(&own), all(stays)]);
                    assert_eq!(found, [expected, rows(40..60)]);
                    if round % 3 == 0 {
                        own.leave();
                    }
                }
            });
        }
    });
    assert_eq!(group.read().queries.len(), 1);
}
