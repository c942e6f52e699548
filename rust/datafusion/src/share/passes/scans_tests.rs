//! Scans over units that are numbers, with rows that are numbers, on several threads.

use std::collections::BTreeMap;
use std::future::poll_fn;

use arrow::array::{ArrayRef, AsArray, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, UInt32Type};
use datafusion::common::exec_datafusion_err;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use lakemark_table::ColumnReadCost;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::*;
use crate::share::piece_rows::PlannedRows;
use crate::share::prediction::ColumnCosts;
use crate::share::stars::group::StarGroup;
use crate::share::stars::keys::{JoinKeys, StarKeys};

const ROWS: u32 = 200;

/// Rows by unit.
type Rows = BTreeMap<u32, Vec<u32>>;

struct World {
    scans: Arc<SharedScans<u32>>,
    memory: Arc<dyn MemoryPool>,
    passes: Arc<AtomicUsize>,
    fails: bool,
}

fn columns(places: &[usize]) -> ColumnCosts {
    places.iter().map(|place| (*place, ColumnReadCost { count: 1.0, decode: 4_000.0 })).collect()
}

/// Rows of a unit: column `n` has the row's number, and `n` in its thousands.
fn batch(unit: u32, rows: &[u32], columns: &ColumnCosts) -> RecordBatch {
    let fields = columns.keys().map(|place| Field::new(format!("{unit} {place}"), DataType::UInt32, false));
    let values = columns.keys().map(|place| {
        let values = rows.iter().map(|row| row + 1_000 * *place as u32);
        Arc::new(UInt32Array::from_iter_values(values)) as ArrayRef
    });
    RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), values.collect()).unwrap()
}

impl World {
    fn new(limits: PassLimits, fails: bool) -> Self {
        let memory: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
        Self { scans: SharedScans::new(limits), memory, passes: Arc::default(), fails }
    }

    /// Decodes seven rows at a time, and pauses in between. Each third pass fails, if passes are to fail.
    fn decoder(&self) -> MakesDecoder<u32> {
        let (passes, fails) = (Arc::clone(&self.passes), self.fails);
        Arc::new(move |unit: &u32, group: &PieceGroup| -> OpensDecoder {
            let number = passes.fetch_add(1, Ordering::SeqCst);
            let (unit, columns) = (*unit, group.columns.clone());
            let rows: Vec<u32> = group.rows.iter().collect();
            let schema = batch(unit, &[], &columns).schema();
            let failure = (fails && number.is_multiple_of(3)).then(|| Err(exec_datafusion_err!("failed")));
            let decoded: Vec<Result<RecordBatch>> =
                rows.chunks(7).map(|rows| Ok(batch(unit, rows, &columns))).collect();
            let taken = if failure.is_some() { decoded.len() / 2 } else { decoded.len() };
            let batches = futures::stream::iter(decoded.into_iter().take(taken).chain(failure));
            let paused = batches.then(|batch| async move {
                tokio::task::yield_now().await;
                batch
            });
            let stream: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(schema, paused));
            Box::new(move || Ok(stream))
        })
    }

    fn scan(&self, wanted: &BTreeMap<u32, RowSet>, read: &ColumnCosts) -> Arc<SharedScan<u32>> {
        self.star_scan(wanted, read, None)
    }

    fn star_scan(
        &self,
        wanted: &BTreeMap<u32, RowSet>,
        read: &ColumnCosts,
        star: Option<Arc<StarQuery>>,
    ) -> Arc<SharedScan<u32>> {
        let pieces = wanted.iter().map(|(unit, rows)| (*unit, Piece::new(rows.clone(), read.clone())));
        self.scan_of(pieces.collect(), star)
    }

    fn scan_of(&self, pieces: Vec<(u32, Piece)>, star: Option<Arc<StarQuery>>) -> Arc<SharedScan<u32>> {
        self.scans.scan(pieces, ScanRequest { star, ..self.request() })
    }

    fn request(&self) -> ScanRequest<'_, u32> {
        let metrics = PassMetrics::new(&ExecutionPlanMetricsSet::new());
        let (decoder, memory) = (self.decoder(), &self.memory);
        ScanRequest { partitions: 1, decoder, memory, metrics, star: None, place: None, arrival: None }
    }
}

fn values(batch: &RecordBatch, column: usize) -> Vec<u32> {
    batch.column(column).as_primitive::<UInt32Type>().values().to_vec()
}

/// The next rows of a partition with their units.
async fn next(partition: &mut ScanPartition<u32>, read: &ColumnCosts) -> Option<Vec<(u32, Vec<u32>)>> {
    match poll_fn(|cx| partition.poll_next(cx)).await?.unwrap() {
        Given::Alone(pieces) => {
            Some(pieces.iter().map(|(unit, piece)| (*unit, piece.rows().iter().collect())).collect())
        }
        Given::Rows { unit: of, batch } => {
            let schema = batch.schema();
            let name = schema.field(0).name();
            let unit: u32 = name.split(' ').next().unwrap().parse().unwrap();
            assert_eq!(unit, of);
            assert_eq!(batch.num_columns(), read.len());
            let rows: Vec<u32> = values(&batch, 0).iter().map(|value| value % 1_000).collect();
            for (column, place) in read.keys().enumerate() {
                let own: Vec<u32> = rows.iter().map(|row| row + 1_000 * *place as u32).collect();
                assert_eq!(values(&batch, column), own);
            }
            Some(vec![(unit, rows)])
        }
    }
}

fn add(has: &mut Rows, given: Vec<(u32, Vec<u32>)>) {
    for (unit, rows) in given {
        has.entry(unit).or_default().extend(rows);
    }
}

/// All that the partitions of a scan get.
async fn read_all(scan: Arc<SharedScan<u32>>, partitions: usize, read: ColumnCosts) -> Rows {
    let running: Vec<_> = (0..partitions)
        .map(|_| {
            let (mut partition, read) = (scan.partition(), read.clone());
            tokio::spawn(async move {
                let mut has = Rows::new();
                while let Some(given) = next(&mut partition, &read).await {
                    add(&mut has, given);
                    tokio::task::yield_now().await;
                }
                has
            })
        })
        .collect();
    let mut has = Rows::new();
    for partition in running {
        for (unit, rows) in partition.await.unwrap() {
            has.entry(unit).or_default().extend(rows);
        }
    }
    has.values_mut().for_each(|rows| rows.sort_unstable());
    has
}

fn all_units() -> BTreeMap<u32, RowSet> {
    (0..4).map(|unit| (unit, RowSet::full(ROWS))).collect()
}

#[tokio::test]
async fn equal_scans_decode_each_unit_once() {
    let world = World::new(PassLimits::default(), false);
    let read = columns(&[0, 1]);
    let scans = [(); 3].map(|()| world.scan(&all_units(), &read));
    let running = scans.map(|scan| tokio::spawn(read_all(scan, 1, read.clone())));
    for scan in running {
        let has = scan.await.unwrap();
        assert!(has.len() == 4 && has.values().all(|rows| *rows == (0..ROWS).collect::<Vec<_>>()));
    }
    assert_eq!(world.passes.load(Ordering::SeqCst), 4);
    assert!(world.scans.is_empty() && world.scans.pages_shared() > 0);
}

/// Of each unit one row in a hundred, another one for each scan.
fn scattered(scan: u32) -> Vec<(u32, Piece)> {
    let rows = RowSet::from_rows((0..ROWS).filter(|row| row % 100 == scan).collect(), ROWS);
    (0..4).map(|unit| (unit, Piece::new(rows.clone(), columns(&[0])))).collect()
}

#[tokio::test]
async fn scans_of_scattered_rows_wait_for_those_that_are_on_the_way() {
    let world = World::new(PassLimits { least_alone: 1, ..PassLimits::default() }, false);
    let place = || Place::of_number(1);
    let [one, other] = [0, 1].map(|query| world.scans.arrivals().set_out(place(), query));
    let scan = |rows, arrival| {
        let request = ScanRequest { place: Some(place()), arrival: Some(arrival), ..world.request() };
        world.scans.scan(scattered(rows), request)
    };
    let first = scan(0, one);
    let mut partition = first.partition();
    let early = poll_fn(|cx| Poll::Ready(partition.poll_next(cx).is_pending())).await;
    assert!(early && world.passes.load(Ordering::SeqCst) == 0);
    let second = scan(1, other);
    let mut running = Vec::new();
    for scan in [Arc::clone(&first), second] {
        running.push(tokio::spawn(read_all(scan, 1, columns(&[0]))));
    }
    drop((partition, first));
    for (scan, rows) in running.into_iter().zip([[0, 100], [1, 101]]) {
        let has = scan.await.unwrap();
        assert!(has.len() == 4 && has.values().all(|has| *has == rows), "{has:?}");
    }
    assert_eq!(world.passes.load(Ordering::SeqCst), 4);
    assert!(world.scans.is_empty());
}

#[tokio::test]
async fn rows_are_shared_while_another_scan_takes_the_page() {
    let world = World::new(PassLimits::default(), false);
    let read = columns(&[0]);
    let [one, other] = [(); 2].map(|()| world.scan(&all_units(), &read));
    let (mut partition, waiting) = (one.partition(), other.partition());
    next(&mut partition, &read).await.unwrap();
    assert_eq!(world.scans.pages_shared(), 1);
    drop((waiting, other));
    // The page that is decoded next is for one scan alone.
    next(&mut partition, &read).await.unwrap();
    assert_eq!(world.scans.pages_shared(), 1);
}

/// Of a scan that finds nobody others may enter all that it reads.
fn lone() -> PassLimits {
    PassLimits { least_alone: 1, least_lone: 1, ..PassLimits::default() }
}

fn sorted(mut has: Rows) -> Rows {
    has.values_mut().for_each(|rows| rows.sort_unstable());
    has
}

fn all_rows() -> Rows {
    (0..4).map(|unit| (unit, (0..ROWS).collect())).collect()
}

/// Each comes when another one has begun.
#[tokio::test]
async fn scans_that_come_one_after_the_other_enter_where_the_first_one_reads() {
    let (world, read) = (World::new(lone(), false), columns(&[0, 1]));
    let mut running = Vec::new();
    for number in 0..8 {
        let scan = world.scan(&all_units(), &read);
        let (mut partition, mut has) = (scan.partition(), Rows::new());
        add(&mut has, next(&mut partition, &read).await.unwrap());
        assert_eq!((world.passes.load(Ordering::SeqCst), world.scans.pages_shared()), (1, number));
        running.push((partition, has));
    }
    for (mut partition, mut has) in running {
        while let Some(given) = next(&mut partition, &read).await {
            add(&mut has, given);
        }
        assert_eq!(sorted(has), all_rows());
    }
    // One for each unit. The few rows before its entry point each reads alone, as nobody waits for those that are far behind.
    assert_eq!(world.passes.load(Ordering::SeqCst), 4);
    assert!(world.scans.is_empty() && world.scans.budget.used() == 0);
}

#[tokio::test]
async fn a_scan_that_finds_nobody_keeps_no_page_until_another_one_enters() {
    let (world, read) = (World::new(lone(), false), columns(&[0, 1]));
    let one = world.scan(&all_units(), &read);
    let mut partition = one.partition();
    let kept = || (world.memory.reserved(), world.scans.budget.used());
    for _ in 0..5 {
        next(&mut partition, &read).await.unwrap();
        assert_eq!((kept(), world.scans.pages_shared()), ((0, 0), 0));
    }
    let other = world.scan(&all_units(), &read);
    let mut entered = other.partition();
    next(&mut entered, &read).await.unwrap();
    for _ in 0..4 {
        next(&mut partition, &read).await.unwrap();
    }
    assert!(kept().0 > 0 && kept().1 > 0);
    drop((entered, other));
    assert_eq!(kept(), (0, 0));
}

#[tokio::test]
async fn who_began_a_pass_of_one_may_go_and_who_entered_goes_on() {
    let (world, read) = (World::new(lone(), false), columns(&[0, 1]));
    let one = world.scan(&all_units(), &read);
    let mut partition = one.partition();
    next(&mut partition, &read).await.unwrap();
    let has = tokio::spawn(read_all(world.scan(&all_units(), &read), 1, read));
    while world.scans.pages_shared() == 0 {
        tokio::task::yield_now().await;
    }
    drop((partition, one));
    assert_eq!(has.await.unwrap(), all_rows());
    assert!(world.scans.is_empty() && world.scans.budget.used() == 0);
}

#[tokio::test]
async fn a_pass_of_one_that_fails_leaves_each_scan_its_rows() {
    let (world, read) = (World::new(lone(), true), columns(&[0, 1]));
    let first = tokio::spawn(read_all(world.scan(&all_units(), &read), 1, read.clone()));
    tokio::task::yield_now().await;
    let second = tokio::spawn(read_all(world.scan(&all_units(), &read), 2, read));
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (all_rows(), all_rows()));
    assert!(world.scans.is_empty());
}

#[test]
fn few_rows_keep_no_page_in_memory() {
    let page = batch(0, &(0..1_000).collect::<Vec<_>>(), &columns(&[0]));
    let of = |rows: Range<u32>| selected(page.clone(), &TakenRows::Some(RowSet::from_range(rows, 1_000))).unwrap();
    let (few, many) = (of(3..5), of(100..900));
    assert_eq!((values(&few, 0), values(&many, 0)), (vec![3, 4], (100..900).collect()));
    let bytes = page.get_array_memory_size();
    assert!(few.get_array_memory_size() * 4 < bytes && many.get_array_memory_size() <= bytes);
}

#[tokio::test]
async fn a_scan_alone_begins_no_pass() {
    let world = World::new(PassLimits::default(), false);
    let read = columns(&[0]);
    let has = read_all(world.scan(&all_units(), &read), 2, read).await;
    assert_eq!(has.values().map(Vec::len).sum::<usize>(), 4 * ROWS as usize);
    assert_eq!(world.passes.load(Ordering::SeqCst), 0);
    assert!(world.scans.is_empty());
}

#[tokio::test]
async fn rows_are_looked_at_where_another_scan_wants_some_and_nowhere_else() {
    let world = World::new(PassLimits::default(), false);
    let (looks, read) = (Arc::new(AtomicUsize::new(0)), columns(&[0]));
    let planned = |units: Range<u32>| {
        let pieces = units.map(|unit| {
            let looks = Arc::clone(&looks);
            let rows = PlannedRows::new(ROWS, move || {
                looks.fetch_add(1, Ordering::SeqCst);
                RowSet::full(ROWS)
            });
            (unit, Piece::planned(rows, read.clone()))
        });
        world.scan_of(pieces.collect(), None)
    };
    let alone = planned(0..4);
    let mut partition = alone.partition();
    let given = poll_fn(|cx| partition.poll_next(cx)).await.unwrap().unwrap();
    assert!(matches!(&given, Given::Alone(pieces) if pieces.len() == 4), "{given:?}");
    assert_eq!(looks.load(Ordering::SeqCst), 0);
    drop((partition, alone));
    let scans = [0..4, 2..6].map(|units| (units.clone(), planned(units)));
    assert_eq!(looks.load(Ordering::SeqCst), 4);
    let running = scans.map(|(units, scan)| (units, tokio::spawn(read_all(scan, 1, read.clone()))));
    for (units, scan) in running {
        let has = scan.await.unwrap();
        assert!(has.keys().copied().eq(units) && has.values().all(|rows| *rows == (0..ROWS).collect::<Vec<_>>()));
    }
    assert!(world.scans.is_empty() && world.scans.pages_shared() > 0);
}

#[tokio::test]
async fn a_scan_that_stalls_keeps_little_and_still_gets_its_rows() {
    let world = World::new(PassLimits { window: 64, all: 128, least_alone: 1, ..PassLimits::default() }, false);
    let read = columns(&[0]);
    let (stalled, other) = (world.scan(&all_units(), &read), world.scan(&all_units(), &read));
    let mut partition = stalled.partition();
    let first = next(&mut partition, &read).await.unwrap();
    let has = read_all(other, 1, read.clone()).await;
    assert_eq!(has.values().map(Vec::len).sum::<usize>(), 4 * ROWS as usize);
    assert!(world.memory.reserved() <= 64);
    let mut has = Rows::new();
    add(&mut has, first);
    while let Some(given) = next(&mut partition, &read).await {
        add(&mut has, given);
    }
    assert!(has.into_values().all(|mut rows| {
        rows.sort_unstable();
        rows == (0..ROWS).collect::<Vec<_>>()
    }));
    drop((partition, stalled));
    assert!(world.scans.is_empty());
}

#[tokio::test]
async fn a_scan_whose_partitions_are_gone_holds_nothing_and_goes_on_with_the_next() {
    let world = World::new(PassLimits::default(), false);
    let read = columns(&[0]);
    let [one, idle] = [(); 2].map(|()| world.scan(&all_units(), &read));
    let mut partition = one.partition();
    let first = next(&mut partition, &read).await.unwrap();
    drop(idle.partition());
    let mut has = Rows::new();
    add(&mut has, first);
    while let Some(given) = next(&mut partition, &read).await {
        add(&mut has, given);
    }
    drop((partition, one));
    assert_eq!((has.values().map(Vec::len).sum::<usize>(), world.memory.reserved()), (4 * ROWS as usize, 0));
    // Its rows are still its own.
    let has = read_all(idle, 1, read).await;
    assert!(has.len() == 4 && has.values().all(|rows| *rows == (0..ROWS).collect::<Vec<_>>()));
    assert!(world.scans.is_empty());
}

#[tokio::test]
async fn pages_that_wait_for_long_make_room_for_others() {
    let world = World::new(PassLimits { window: 10_000, all: 1_600, ..PassLimits::default() }, false);
    let read = columns(&[0]);
    let [stalled, other] = [(); 2].map(|()| world.scan(&all_units(), &read));
    let (mut waiting, mut partition) = (stalled.partition(), other.partition());
    let (mut has, mut of_stalled) = (Rows::new(), Rows::new());
    add(&mut of_stalled, next(&mut waiting, &read).await.unwrap());
    while let Some(given) = next(&mut partition, &read).await {
        add(&mut has, given);
        assert!(world.scans.budget.used() <= 1_200, "{}", world.scans.budget.used());
    }
    drop((partition, other));
    while let Some(given) = next(&mut waiting, &read).await {
        add(&mut of_stalled, given);
    }
    for mut has in [has, of_stalled] {
        has.values_mut().for_each(|rows| rows.sort_unstable());
        assert!(has.len() == 4 && has.values().all(|rows| *rows == (0..ROWS).collect::<Vec<_>>()));
    }
    drop((waiting, stalled));
    assert!(world.scans.is_empty() && world.scans.budget.used() == 0);
}

/// Scans of different rows and columns on several threads, some of which go before their end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_scan_gets_each_of_its_rows_once() {
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let limits = PassLimits {
            window: rng.random_range(0..400),
            all: rng.random_range(0..800),
            least_alone: rng.random_range(1..500),
            least_lone: rng.random_range(1..2 * ROWS),
            terms: Terms::WherePays,
        };
        let world = World::new(limits, rng.random_bool(0.5));
        let mut running = Vec::new();
        for _ in 0..8 {
            let read = columns([&[0][..], &[0, 1], &[1, 2]][rng.random_range(0..3)]);
            let share = *[0.8, 1.0].choose(&mut rng).unwrap();
            let wanted: BTreeMap<u32, RowSet> = (0..rng.random_range(1..8))
                .map(|unit| (unit, RowSet::from_rows((0..ROWS).filter(|_| rng.random_bool(share)).collect(), ROWS)))
                .collect();
            let scan = world.scan(&wanted, &read);
            if rng.random_bool(0.2) {
                let (steps, mut partition) = (rng.random_range(0..20), scan.partition());
                tokio::spawn(async move {
                    for _ in 0..steps {
                        next(&mut partition, &read).await;
                    }
                });
                continue;
            }
            let expected: Rows = wanted.into_iter().map(|(unit, rows)| (unit, rows.iter().collect())).collect();
            running.push((expected, tokio::spawn(read_all(scan, rng.random_range(1..4), read))));
            tokio::task::yield_now().await;
        }
        for (expected, scan) in running {
            assert_eq!(scan.await.unwrap(), expected, "seed {seed}");
        }
    }
}

/// Star queries beside other scans on several threads: each gets its rows once, but for some that its keys do not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn star_queries_get_each_row_that_has_their_keys_once() {
    let mut star_pages = 0;
    for seed in 0..40 {
        let mut rng = StdRng::seed_from_u64(seed);
        let limits = PassLimits {
            window: rng.random_range(0..400),
            all: rng.random_range(0..800),
            least_alone: rng.random_range(1..500),
            least_lone: rng.random_range(1..2 * ROWS),
            terms: Terms::Always,
        };
        let world = World::new(limits, rng.random_bool(0.3));
        let unlimited: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let (group, read) = (Arc::new(StarGroup::new(Arc::new(()), &unlimited)), columns(&[0, 1]));
        let mut running = Vec::new();
        for _ in 0..8 {
            let wanted: BTreeMap<u32, RowSet> = (0..rng.random_range(1..8))
                .map(|unit| (unit, RowSet::from_rows((0..ROWS).filter(|_| rng.random_bool(0.8)).collect(), ROWS)))
                .collect();
            let matches: Vec<u32> = (0..ROWS).filter(|_| rng.random_bool(0.2)).collect();
            let keys: ArrayRef = Arc::new(UInt32Array::from_iter_values(matches.iter().map(|row| row + 1_000)));
            let keys = StarKeys { column: 1, keys: JoinKeys::of(&keys, &unlimited).unwrap() };
            let star = group.query(vec![keys], 1_000, Terms::Always).filter(|_| rng.random_bool(0.8));
            let is_star = star.is_some();
            let scan = world.star_scan(&wanted, &read, star);
            let partitions = rng.random_range(1..4);
            running.push((wanted, matches, is_star, tokio::spawn(read_all(scan, partitions, read.clone()))));
            tokio::task::yield_now().await;
        }
        for (wanted, matches, is_star, scan) in running {
            let has = scan.await.unwrap();
            for (unit, wanted) in wanted {
                let has = has.get(&unit).map_or(&[][..], Vec::as_slice);
                assert!(has.is_sorted_by(|one, next| one < next), "seed {seed}");
                assert!(has.iter().all(|row| wanted.contains(*row)), "seed {seed}");
                let is_needed = |row: &u32| !is_star || matches.contains(row);
                assert!(wanted.iter().filter(is_needed).all(|row| has.contains(&row)), "seed {seed}");
            }
        }
        assert!(world.scans.is_empty() && Arc::strong_count(&group) == 1, "seed {seed}");
        star_pages += world.scans.star_pages();
    }
    assert!(star_pages > 100, "{star_pages}");
}
