//! Scans that come, read, stall, fail and go in any order, with all parts of a pass but its lock.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use lakemark_table::{ColumnReadCost, RowSet};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::budget::{BudgetShare, PageBudget};
use super::page_list::{PassPages, Taken};
use super::ranks::TakenRows;
use super::unit_pieces::{PassId, ScanId};
use super::wanted::{BegunPass, Next, PassPlan, RunningPass, Ticket, WantedPieces};
use crate::share::pages::ConsumerId;
use crate::share::prediction::{ColumnCosts, Piece, Terms, of_entry};

const ROWS: u32 = 150;
const WINDOW: usize = 40;
const BUDGET: usize = 70;

/// A pass whose batches are the numbers of their rows. A row is a byte.
#[derive(Debug)]
struct Decoding {
    unit: u32,
    list: PassPages<Vec<u32>>,
    to_come: VecDeque<u32>,
    budget: BudgetShare,
    scans: BTreeMap<ConsumerId, ScanId>,
}

type Pass = Rc<RefCell<Decoding>>;
type Wanted = WantedPieces<u32, Pass>;

/// A scan, the rows that it wants of each unit, and those that it has.
struct Scan {
    id: ScanId,
    wants: BTreeMap<u32, Vec<u32>>,
    has: BTreeMap<u32, Vec<u32>>,
    partitions: Vec<Partition>,
}

enum Partition {
    Idle,
    Taking(Ticket<u32, Pass>),
    Ended,
}

struct World {
    rng: StdRng,
    wanted: Wanted,
    budget: std::sync::Arc<PageBudget>,
    shared_rows: usize,
}

fn columns(places: std::ops::Range<usize>) -> ColumnCosts {
    places.map(|place| (place, ColumnReadCost { count: 1.0, decode: 40_000.0 })).collect()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let wanted = Wanted::new(1, Terms::WherePays).with_least_lone(rng.random_range(1..2 * ROWS));
        Self { rng, wanted, budget: PageBudget::new(BUDGET), shared_rows: 0 }
    }

    fn rows(&mut self) -> RowSet {
        let (from, to) = (self.rng.random_range(0..ROWS), self.rng.random_range(0..ROWS));
        match self.rng.random_range(0..3) {
            0 => RowSet::full(ROWS),
            1 => RowSet::from_range(from.min(to)..from.max(to), ROWS),
            _ => RowSet::from_rows((0..ROWS).filter(|_| self.rng.random_bool(0.6)).collect(), ROWS),
        }
    }

    fn scan(&mut self) -> Scan {
        let id = self.wanted.add_scan(1);
        let first = self.rng.random_range(0..2);
        let read = columns(first..first + self.rng.random_range(1..3));
        let mut wants = BTreeMap::new();
        for unit in 0..self.rng.random_range(1..6) {
            let rows = self.rows();
            wants.insert(unit, rows.iter().collect());
            let piece = Piece::new(rows, read.clone()).divisible(self.rng.random_bool(0.5));
            self.wanted.want(id, unit, piece, None);
        }
        let partitions = (0..self.rng.random_range(1..4)).map(|_| Partition::Idle).collect();
        Scan { id, wants, has: BTreeMap::new(), partitions }
    }

    /// Lets a partition of a scan do one step.
    fn step(&mut self, scan: &mut Scan, partition: usize) {
        let state = std::mem::replace(&mut scan.partitions[partition], Partition::Idle);
        scan.partitions[partition] = match state {
            Partition::Ended => Partition::Ended,
            Partition::Idle => self.begin(scan),
            Partition::Taking(ticket) => self.take(scan, ticket),
        };
    }

    fn begin(&mut self, scan: &mut Scan) -> Partition {
        let budget = &self.budget;
        let begin = |plan: PassPlan<'_, u32>| {
            assert!(plan.pieces.iter().all(|piece| piece.rows().is_subset(&plan.group.rows)));
            let mut list = PassPages::new(plan.group.rows.clone(), WINDOW);
            let consumers: Vec<ConsumerId> = plan.pieces.iter().map(|piece| list.begin(piece.rows())).collect();
            let to_come = plan.group.rows.iter().collect();
            let scans = consumers.iter().copied().zip(plan.scans.iter().copied()).collect();
            let decoding = Decoding { unit: *plan.unit, list, to_come, budget: budget.share(), scans };
            BegunPass { pass: Rc::new(RefCell::new(decoding)), consumers }
        };
        match self.wanted.next(scan.id, begin) {
            Next::Joined(ticket) | Next::Lone(ticket) => Partition::Taking(ticket),
            Next::Look(pieces) => panic!("nobody has looked at {pieces:?}"),
            Next::Alone(pieces) => {
                for (unit, piece) in pieces {
                    scan.has.entry(unit).or_default().extend(piece.rows().iter());
                }
                Partition::Idle
            }
            Next::Enter { pass, unit, piece } => self.enter(scan.id, pass, unit, &piece),
            Next::Nothing => Partition::Ended,
        }
    }

    fn enter(&mut self, scan: ScanId, pass: RunningPass<Pass>, unit: u32, piece: &Piece) -> Partition {
        let entered = pass.pass.borrow_mut().list.enter(piece.rows(), |entry| {
            of_entry(piece, &entry.rest, &entry.taken, &entry.left).wins(Terms::WherePays)
        });
        let Some((consumer, left)) = entered else {
            self.wanted.want(scan, unit, piece.clone(), Some(pass.id));
            return Partition::Idle;
        };
        pass.pass.borrow_mut().scans.insert(consumer, scan);
        self.wanted.want(scan, unit, piece.with_rows(left), Some(pass.id));
        Partition::Taking(Ticket { pass, consumer, unit, piece: piece.clone() })
    }

    fn take(&mut self, scan: &mut Scan, ticket: Ticket<u32, Pass>) -> Partition {
        let pass = Rc::clone(&ticket.pass.pass);
        assert_eq!(pass.borrow().unit, ticket.unit);
        let has = scan.has.entry(ticket.unit).or_default();
        let taken = pass.borrow_mut().list.take(ticket.consumer);
        match taken {
            Taken::Page { item, rows, is_shared, .. } => {
                let before = has.len();
                match rows {
                    TakenRows::All => has.extend(item),
                    TakenRows::Some(ranks) => has.extend(ranks.iter().map(|rank| item[rank as usize])),
                }
                self.shared_rows += if is_shared { has.len() - before } else { 0 };
            }
            Taken::Missed(rows) => {
                let piece = ticket.piece.with_rows(rows);
                self.wanted.want(scan.id, ticket.unit, piece, Some(ticket.pass.id));
            }
            Taken::Lacks => self.decode(&pass, ticket.pass.id),
            Taken::Left { rows, .. } => {
                has.extend(rows.iter());
                return self.leave(&ticket);
            }
            Taken::Done => return self.leave(&ticket),
            Taken::Miscounted => panic!("the decoder gives what was selected"),
        }
        Partition::Taking(ticket)
    }

    /// Decodes a page, or fails to.
    fn decode(&mut self, pass: &Pass, id: PassId) {
        let mut decoding = pass.borrow_mut();
        let Decoding { list, to_come, budget, scans, .. } = &mut *decoding;
        let batch: Vec<u32> = to_come.drain(..to_come.len().min(self.rng.random_range(1..30))).collect();
        let fails = self.rng.random_bool(0.01);
        if fails {
            list.fail();
        } else if batch.is_empty() {
            list.finish();
        } else {
            let rows = batch.len();
            list.push(batch, rows, rows as u32);
        }
        for away in list.shed(|bytes| budget.resize(bytes)) {
            if let Some(scan) = scans.get(&away) {
                self.wanted.set_away(*scan);
            }
        }
        assert!(list.behind_bytes() <= WINDOW);
        if !list.needs_more() {
            self.wanted.end_pass(id);
        }
    }

    /// A consumer goes, and with the last one the pass.
    fn leave(&mut self, ticket: &Ticket<u32, Pass>) -> Partition {
        let list = &mut ticket.pass.pass.borrow_mut().list;
        list.leave(ticket.consumer);
        if !list.needs_more() {
            list.fail();
            self.wanted.end_pass(ticket.pass.id);
        }
        Partition::Idle
    }

    fn remove(&mut self, scan: Scan) {
        let tickets = self.wanted.remove_scan(scan.id);
        let taking = scan.partitions.into_iter().filter_map(|partition| match partition {
            Partition::Taking(ticket) => Some(ticket),
            Partition::Idle | Partition::Ended => None,
        });
        for ticket in tickets.into_iter().chain(taking) {
            self.leave(&ticket);
        }
    }

    /// Reads what is left of a scan.
    fn finish(&mut self, mut scan: Scan, seed: u64) {
        for partition in 0..scan.partitions.len() {
            while !matches!(scan.partitions[partition], Partition::Ended) {
                self.step(&mut scan, partition);
            }
        }
        for (unit, wanted) in &scan.wants {
            let mut has = scan.has.remove(unit).unwrap_or_default();
            has.sort_unstable();
            assert_eq!(has, *wanted, "unit {unit}, seed {seed}");
        }
        assert!(scan.has.values().all(Vec::is_empty), "seed {seed}");
        self.remove(scan);
    }
}

/// Whatever the order in which scans come, read, stall and go, and whichever passes fail: each scan has each of its rows once.
#[test]
fn every_row_is_handed_out_once() {
    let mut shared_rows = 0;
    for seed in 0..500 {
        let mut world = World::new(seed);
        let mut scans: Vec<Scan> = Vec::new();
        for _ in 0..world.rng.random_range(10..400) {
            let place = world.rng.random_range(0..6);
            match world.rng.random_range(0..30) {
                0..3 => scans.push(world.scan()),
                3 if place < scans.len() => world.remove(scans.remove(place)),
                _ => {
                    if let Some(scan) = scans.get_mut(place) {
                        let partition = world.rng.random_range(0..scan.partitions.len());
                        world.step(scan, partition);
                    }
                }
            }
        }
        for scan in scans {
            world.finish(scan, seed);
        }
        assert!(world.wanted.is_empty(), "seed {seed}");
        shared_rows += world.shared_rows;
    }
    assert!(shared_rows > 10_000, "{shared_rows}");
}
