//! The list of pages beside a plain model of it.

use proptest::prelude::*;

use super::*;

const LIMITS: PageLimits = PageLimits { keep: 10, window: 20 };

fn taken(list: &mut PageList<u32>, id: ConsumerId) -> Vec<u32> {
    std::iter::from_fn(|| list.take(id)).map(|page| page.item).collect()
}

#[test]
fn whoever_comes_while_the_output_is_small_takes_all_of_it() {
    let mut list = PageList::new(LIMITS);
    let first = list.attach().unwrap();
    (0..5).for_each(|page| list.push(page, 2));
    assert_eq!(taken(&mut list, first), [0, 1, 2, 3, 4]);
    let late = list.attach().unwrap();
    assert_eq!(taken(&mut list, late), [0, 1, 2, 3, 4]);
}

#[test]
fn the_window_closes_with_the_first_page_that_is_dropped() {
    let mut list = PageList::new(LIMITS);
    let (fast, slow) = (list.attach().unwrap(), list.attach().unwrap());
    (0..6).for_each(|page| list.push(page, 2));
    assert_eq!(taken(&mut list, fast), [0, 1, 2, 3, 4, 5]);
    assert!(list.is_large() && list.is_open());
    assert_eq!(list.take(slow).map(|page| page.item), Some(0));
    assert!(!list.is_open());
    assert_eq!((list.attach(), list.kept_bytes), (None, 10));
}

#[test]
fn consumers_far_behind_are_found() {
    let mut list = PageList::new(LIMITS);
    let (fast, slow) = (list.attach().unwrap(), list.attach().unwrap());
    for page in 0..11 {
        list.push(page, 2);
        list.take(fast);
    }
    assert_eq!(list.laggards(), [] as [ConsumerId; 0]);
    list.push(11, 2);
    assert_eq!(list.laggards(), [slow]);
    list.detach(slow);
    assert_eq!((list.laggards(), list.kept_bytes), (vec![], 2));
    assert_eq!(taken(&mut list, fast), [11]);
    assert_eq!(list.kept_bytes, 0);
}

#[test]
fn a_page_is_shared_if_it_is_meant_for_two() {
    let mut list = PageList::new(LIMITS);
    let first = list.attach().unwrap();
    list.push(0, 1);
    assert!(!list.take(first).unwrap().is_shared);
    let second = list.attach().unwrap();
    assert!(list.take(second).unwrap().is_shared);
    list.detach(first);
    list.push(1, 1);
    assert!(!list.take(second).unwrap().is_shared);
}

#[derive(Clone, Debug)]
enum Step {
    Attach,
    Detach(usize),
    Push(usize),
    Take(usize),
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Attach),
        2 => (0..6_usize).prop_map(Step::Detach),
        6 => (0..6_usize).prop_map(Step::Push),
        9 => (0..6_usize).prop_map(Step::Take),
        1 => Just(Step::Close),
    ]
}

proptest! {
    /// A consumer takes the pages in order from the very first, without a gap; whoever cannot is not let in. Bytes are those of the pages
    /// that somebody waits for, and of all pages while the window is open.
    #[test]
    fn every_consumer_takes_every_page_in_order(steps in proptest::collection::vec(step(), 0..120)) {
        let mut list = PageList::new(LIMITS);
        let mut pushed: Vec<usize> = Vec::new();
        let mut consumers: Vec<(ConsumerId, usize)> = Vec::new();
        for step in steps {
            match step {
                Step::Attach => consumers.extend(list.attach().map(|id| (id, 0))),
                Step::Detach(place) if place < consumers.len() => list.detach(consumers.remove(place).0),
                Step::Push(bytes) => {
                    list.push(pushed.len() as u32, bytes);
                    pushed.push(bytes);
                }
                Step::Take(place) if place < consumers.len() => {
                    let (id, next) = &mut consumers[place];
                    let page = list.take(*id);
                    prop_assert_eq!(page.map(|page| page.item as usize), (*next < pushed.len()).then_some(*next));
                    *next = (*next + 1).min(pushed.len());
                }
                Step::Close => list.close(),
                Step::Detach(_) | Step::Take(_) => {}
            }
            let first = consumers.iter().map(|(_, next)| *next).min().unwrap_or(pushed.len());
            let kept = if list.is_open() { 0 } else { first };
            prop_assert_eq!(list.kept_bytes, pushed[kept..].iter().sum::<usize>());
            prop_assert_eq!(list.consumers().count(), consumers.len());
            if list.is_open() && pushed.iter().sum::<usize>() > LIMITS.keep {
                prop_assert!(first == 0 && !consumers.is_empty() || pushed.is_empty());
            }
        }
    }
}
