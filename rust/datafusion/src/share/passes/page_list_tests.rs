//! The pages of a pass beside a plain model of them.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const ROWS: u32 = 200;
const WINDOW: usize = 30;

/// A list with a decoder, whose batches are the numbers of their rows. A row is a byte.
struct Decoded {
    list: PassPages<Vec<u32>>,
    to_come: VecDeque<u32>,
}

impl Decoded {
    fn new(rows: &RowSet) -> Self {
        Self { list: PassPages::new(rows.clone(), WINDOW), to_come: rows.iter().collect() }
    }

    /// The next page, or the end.
    fn decode(&mut self, rows: usize) {
        let batch: Vec<u32> = self.to_come.drain(..rows.min(self.to_come.len())).collect();
        if batch.is_empty() {
            self.list.finish();
        } else {
            self.list.push(batch.clone(), batch.len(), batch.len() as u32);
        }
    }
}

fn given(item: &[u32], rows: TakenRows) -> Vec<u32> {
    match rows {
        TakenRows::All => item.to_vec(),
        TakenRows::Some(ranks) => ranks.iter().map(|rank| item[rank as usize]).collect(),
    }
}

/// The rows of the next page.
fn page(list: &mut PassPages<Vec<u32>>, id: ConsumerId) -> Vec<u32> {
    match list.take(id) {
        Taken::Page { item, rows, .. } => given(&item, rows),
        other => panic!("{other:?}"),
    }
}

fn part(range: Range<u32>) -> RowSet {
    RowSet::from_range(range, ROWS)
}

#[test]
fn consumers_take_their_rows_of_each_page() {
    let mut decoded = Decoded::new(&part(0..100));
    let all = decoded.list.begin(&part(0..100));
    let few = decoded.list.begin(&RowSet::from_rows(vec![3, 9, 55], ROWS));
    (0..3).for_each(|_| decoded.decode(20));
    let list = &mut decoded.list;
    assert_eq!(page(list, few), [3, 9]);
    assert_eq!(page(list, few), [55]);
    assert_eq!(list.take(few), Taken::Done);
    assert_eq!(page(list, all), (0..20).collect::<Vec<_>>());
    assert_eq!(page(list, all).len() + page(list, all).len(), 40);
    assert_eq!((list.take(all), list.needs_more()), (Taken::Lacks, true));
}

#[test]
fn a_page_is_dropped_when_all_who_have_rows_in_it_took_it() {
    let mut decoded = Decoded::new(&part(0..100));
    let first = decoded.list.begin(&part(0..100));
    let second = decoded.list.begin(&part(40..60));
    (0..5).for_each(|_| decoded.decode(20));
    let list = &mut decoded.list;
    (0..3).for_each(|_| drop(page(list, first)));
    assert_eq!(list.kept_bytes, 60);
    assert!(matches!(list.take(second), Taken::Page { is_shared: true, rows: TakenRows::All, .. }));
    assert_eq!(list.kept_bytes, 40);
    assert!(matches!(list.take(first), Taken::Page { is_shared: false, .. }));
}

#[test]
fn a_late_consumer_enters_at_the_first_page_that_is_kept() {
    let mut decoded = Decoded::new(&part(0..100));
    let host = decoded.list.begin(&part(0..100));
    (0..3).for_each(|_| decoded.decode(20));
    page(&mut decoded.list, host);
    let wanted = part(10..150);
    let (late, left) = decoded.list.enter(&wanted, |entry| entry.rest == part(20..100)).unwrap();
    assert_eq!(left, part(10..20).or(&part(100..150)));
    assert_eq!(page(&mut decoded.list, late), (20..40).collect::<Vec<_>>());
    assert_eq!(decoded.list.enter(&part(0..20), |_| true), None);
    assert_eq!(decoded.list.enter(&wanted, |_| false), None);
}

#[test]
fn who_is_behind_misses_pages_and_goes_on() {
    let mut decoded = Decoded::new(&part(0..100));
    let [host, slow, elsewhere] = [(); 3].map(|()| decoded.list.begin(&part(0..100)));
    decoded.decode(20);
    page(&mut decoded.list, host);
    page(&mut decoded.list, slow);
    (0..2).for_each(|_| decoded.decode(20));
    let list = &mut decoded.list;
    assert_eq!(list.behind_bytes(), 40);
    assert_eq!(list.shed(|_| true), [elsewhere]);
    assert_eq!(list.shed(|bytes| bytes == 0), [host, slow, elsewhere]);
    assert_eq!(list.take(slow), Taken::Missed(part(20..40)));
    assert_eq!(list.take(elsewhere), Taken::Missed(part(0..40)));
    for own in [slow, elsewhere] {
        assert_eq!(page(list, own), (40..60).collect::<Vec<_>>());
        assert_eq!(list.take(own), Taken::Lacks);
    }
}

#[test]
fn who_has_begun_and_missed_many_pages_leaves_with_the_rest() {
    let mut decoded = Decoded::new(&part(0..ROWS));
    let [slow, elsewhere] = [(); 2].map(|()| decoded.list.begin(&part(0..ROWS)));
    decoded.decode(5);
    page(&mut decoded.list, slow);
    // Of these pages the last one is the newest, which nobody misses.
    for _ in 0..=MOST_MISSED {
        decoded.decode(5);
        decoded.list.shed(|_| false);
    }
    decoded.decode(5);
    let list = &mut decoded.list;
    assert_eq!(list.shed(|_| false), [slow, elsewhere]);
    let end = 5 + 5 * MOST_MISSED;
    assert_eq!(list.take(slow), Taken::Missed(part(5..end)));
    assert_eq!(list.take(slow), Taken::Left { rows: part(end..ROWS), is_detached: true });
    assert_eq!(list.take(slow), Taken::Done);
    assert_eq!(list.take(elsewhere), Taken::Missed(part(0..end + 5)));
    assert_eq!(page(list, elsewhere), (end + 5..end + 10).collect::<Vec<_>>());
}

#[test]
fn the_newest_page_is_kept_whatever_fits() {
    let mut decoded = Decoded::new(&part(0..100));
    let host = decoded.list.begin(&part(0..100));
    decoded.decode(100);
    assert_eq!(decoded.list.shed(|_| false), [] as [ConsumerId; 0]);
    assert_eq!(page(&mut decoded.list, host).len(), 100);
}

#[test]
fn a_page_of_one_consumer_is_weighed_when_another_one_enters() {
    let mut list = PassPages::new(part(0..100), WINDOW);
    let one = list.begin(&part(0..100));
    assert!(list.is_lone());
    list.push((0..20).collect::<Vec<u32>>(), 0, 20);
    let (late, left) = list.enter(&part(0..100), |_| true).unwrap();
    list.weigh(Vec::len);
    assert_eq!((list.is_lone(), list.kept_bytes, left.len()), (false, 20, 0));
    assert_eq!((page(&mut list, one).len(), list.kept_bytes), (20, 20));
    assert_eq!((page(&mut list, late).len(), list.kept_bytes), (20, 0));
}

#[test]
fn after_a_failure_pages_are_taken_and_the_rest_is_left() {
    let mut decoded = Decoded::new(&part(0..100));
    let one = decoded.list.begin(&part(0..100));
    let other = decoded.list.begin(&part(0..10));
    decoded.decode(20);
    decoded.list.fail();
    let list = &mut decoded.list;
    assert_eq!(list.enter(&part(0..100), |_| true), None);
    assert_eq!((page(list, one).len(), page(list, other).len()), (20, 10));
    let left = Taken::Left { rows: part(20..100), is_detached: false };
    assert_eq!((list.take(one), list.take(other)), (left, Taken::Done));
}

#[test]
fn rows_of_a_wrong_number_are_an_error_for_those_who_took_some() {
    for too_many in [false, true] {
        let mut list = PassPages::new(part(0..100), WINDOW);
        let [one, other] = [(); 2].map(|()| list.begin(&part(0..100)));
        list.push((0..20).collect::<Vec<u32>>(), 20, 20);
        page(&mut list, one);
        if too_many {
            list.push(Vec::new(), 0, 81);
        } else {
            list.finish();
        }
        let left = Taken::Left { rows: part(0..100), is_detached: false };
        assert_eq!((list.take(one), list.take(other)), (Taken::Miscounted, left));
        assert_eq!(list.kept_bytes, 0);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Enter(RowSet),
    Leave(usize),
    Decode(usize),
    Take(usize),
    Shed(usize),
    Fail,
}

fn rows() -> impl Strategy<Value = RowSet> {
    prop_oneof![
        1 => Just(RowSet::full(ROWS)),
        2 => (0..ROWS, 0..ROWS).prop_map(|(from, to)| part(from.min(to)..from.max(to))),
        2 => proptest::collection::vec(0..ROWS, 0..120).prop_map(|rows| RowSet::from_rows(rows, ROWS)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => rows().prop_map(Step::Enter),
        10 => (0..6_usize).prop_map(Step::Leave),
        60 => (1..25_usize).prop_map(Step::Decode),
        90 => (0..6_usize).prop_map(Step::Take),
        30 => (0..40_usize).prop_map(Step::Shed),
        1 => Just(Step::Fail),
    ]
}

/// A consumer, the rows that it is to have, and those that it had in one way or another.
#[derive(Debug)]
struct Watched {
    id: ConsumerId,
    rows: BTreeSet<u32>,
    had: Vec<u32>,
    ended: bool,
}

impl Watched {
    fn new(id: ConsumerId, rows: &RowSet) -> Self {
        Self { id, rows: rows.iter().collect(), had: Vec::new(), ended: false }
    }

    /// Takes once; whether that gave something.
    fn take(&mut self, list: &mut PassPages<Vec<u32>>) -> bool {
        let taken = list.take(self.id);
        self.ended |= matches!(taken, Taken::Left { .. } | Taken::Done);
        match taken {
            Taken::Page { item, rows, .. } => {
                let given = given(&item, rows);
                assert!(!given.is_empty(), "a page without a row of the consumer");
                self.had.extend(given);
            }
            Taken::Missed(rows) | Taken::Left { rows, .. } => self.had.extend(rows.iter()),
            Taken::Lacks => return false,
            Taken::Done => {}
            Taken::Miscounted => panic!("the decoder gives what was selected"),
        }
        true
    }

    fn check(mut self) {
        self.had.sort_unstable();
        assert_eq!(self.had, self.rows.into_iter().collect::<Vec<_>>(), "each row once");
    }
}

fn check_kept(list: &PassPages<Vec<u32>>) {
    assert!(list.pages.front().is_none_or(|page| page.waiting > 0));
    assert_eq!(list.kept_bytes, list.pages.iter().map(|page| page.bytes).sum::<usize>());
    for page in &list.pages {
        assert_eq!(page.waiting, list.consumers.values().filter(|own| own.waits_for(&page.stretch)).count());
        assert!(page.takers >= page.waiting);
    }
}

proptest! {
    /// Whatever comes, goes, stalls or fails: pages taken, rows missed and rows left are together the consumer's rows, each row once.
    #[test]
    fn every_consumer_gets_each_of_its_rows_once(
        first in proptest::collection::vec(rows(), 1..4),
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        let union = first.iter().fold(RowSet::empty(ROWS), |union, rows| union.or(rows));
        let mut decoded = Decoded::new(&union);
        let mut consumers: Vec<Watched> = Vec::new();
        for rows in &first {
            consumers.push(Watched::new(decoded.list.begin(rows), rows));
        }
        for step in steps {
            match step {
                Step::Enter(rows) => {
                    let entered = decoded.list.enter(&rows, |entry| {
                        assert_eq!(entry.taken.or(&entry.left), rows);
                        true
                    });
                    if let Some((id, left)) = entered {
                        consumers.push(Watched::new(id, &rows.minus(&left)));
                    }
                }
                Step::Leave(place) if place < consumers.len() => decoded.list.leave(consumers.remove(place).id),
                Step::Decode(rows) => decoded.decode(rows),
                Step::Take(place) if place < consumers.len() => {
                    consumers[place].take(&mut decoded.list);
                }
                Step::Shed(most) => {
                    decoded.list.shed(|bytes| bytes <= most);
                    prop_assert!(decoded.list.behind_bytes() <= most.min(WINDOW));
                }
                Step::Fail => decoded.list.fail(),
                Step::Leave(_) | Step::Take(_) => {}
            }
            check_kept(&decoded.list);
        }
        for mut own in consumers {
            while !own.ended {
                if !own.take(&mut decoded.list) {
                    prop_assert!(decoded.list.needs_more());
                    decoded.decode(7);
                }
            }
            own.check();
        }
        prop_assert!(!decoded.list.needs_more() && decoded.list.kept_bytes == 0);
    }
}
