//! Who reads which piece next.

use lakemark_table::ColumnReadCost;

use super::*;
use crate::share::piece_rows::PlannedRows;

const ROWS: u32 = 20_000;

type Wanted = WantedPieces<u32, &'static str>;

fn columns(places: std::ops::Range<usize>) -> ColumnCosts {
    places.map(|place| (place, ColumnReadCost { count: 1.0, decode: 4.0 })).collect()
}

fn all() -> Piece {
    Piece::new(RowSet::full(ROWS), columns(0..4))
}

fn half() -> Piece {
    Piece::new(RowSet::from_range(0..ROWS / 2, ROWS), columns(0..4))
}

/// Columns of which 6,250 rows and more are passes of one.
fn slow_columns() -> ColumnCosts {
    (0..4).map(|place| (place, ColumnReadCost { count: 1.0, decode: 40.0 })).collect()
}

fn slow() -> Piece {
    Piece::new(RowSet::full(ROWS), slow_columns())
}

fn scan_of(wanted: &mut Wanted, units: impl IntoIterator<Item = u32>) -> ScanId {
    let scan = wanted.add_scan(1);
    units.into_iter().for_each(|unit| wanted.want(scan, unit, all(), None));
    scan
}

/// What a scan reads next, in words.
fn next(wanted: &mut Wanted, scan: ScanId) -> String {
    let begun = |plan: PassPlan<'_, u32>| {
        assert!(plan.group.prediction.wins(Terms::WherePays) || plan.pieces.len() == 1);
        BegunPass { pass: "pass", consumers: (0..plan.pieces.len() as u64).collect() }
    };
    match wanted.next(scan, begun) {
        Next::Joined(Ticket { unit, consumer, pass, .. }) => format!("joined {unit} as {consumer} in {}", pass.id),
        Next::Enter { unit, pass, .. } => format!("enter {unit} in {}", pass.id),
        Next::Lone(Ticket { unit, piece, pass, .. }) => format!("lone {unit}:{} in {}", piece.rows().len(), pass.id),
        Next::Look(pieces) => {
            let rows: Vec<u32> = pieces.iter().map(|piece| piece.rows().len()).collect();
            format!("look at {rows:?}")
        }
        Next::Alone(pieces) => pieces.iter().fold("alone".to_owned(), |text, (unit, piece)| match piece.rows().len() {
            ROWS => format!("{text} {unit}"),
            rows => format!("{text} {unit}:{rows}"),
        }),
        Next::Nothing => "nothing".to_owned(),
    }
}

#[test]
fn a_scan_alone_reads_its_pieces_in_order() {
    let mut wanted = Wanted::new(1, Terms::WherePays);
    let scan = scan_of(&mut wanted, [4, 2, 7]);
    let read: Vec<String> = (0..4).map(|_| next(&mut wanted, scan)).collect();
    assert_eq!(read, ["alone 4", "alone 2", "alone 7", "nothing"]);
    assert!(wanted.is_empty());
}

#[test]
fn a_pass_begins_for_all_who_want_a_piece() {
    let mut wanted = Wanted::new(1, Terms::WherePays);
    let [one, other] = [[1, 2], [2, 3]].map(|units| scan_of(&mut wanted, units));
    assert_eq!(next(&mut wanted, one), "joined 2 as 0 in 0");
    assert_eq!(next(&mut wanted, other), "joined 2 as 1 in 0");
    assert_eq!(next(&mut wanted, other), "alone 3");
    assert_eq!(next(&mut wanted, one), "alone 1");
    assert!(!wanted.is_empty());
    wanted.end_pass(0);
    assert!(wanted.is_empty());
}

#[test]
fn all_who_want_a_unit_know_it_by_one_key() {
    let mut wanted: WantedPieces<Arc<u32>, &'static str> = WantedPieces::new(1, Terms::WherePays);
    let keys = [Arc::new(7), Arc::new(7)];
    let scans = [0, 1].map(|place: usize| {
        let scan = wanted.add_scan(1);
        wanted.want(scan, Arc::clone(&keys[place]), all(), None);
        scan
    });
    let begin = |plan: PassPlan<'_, Arc<u32>>| {
        assert_eq!(plan.scans, [scans[1], scans[0]]);
        BegunPass { pass: "pass", consumers: vec![0, 1] }
    };
    match wanted.next(scans[1], begin) {
        Next::Joined(Ticket { unit, .. }) => assert!(Arc::ptr_eq(&unit, &keys[0])),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_late_scan_enters_what_runs_and_comes_round() {
    let mut wanted = Wanted::new(1, Terms::WherePays);
    let [one, other] = [(); 2].map(|()| scan_of(&mut wanted, 1..=4));
    assert_eq!(next(&mut wanted, one), "joined 1 as 0 in 0");
    wanted.end_pass(0);
    assert_eq!(next(&mut wanted, other), "joined 1 as 1 in 0");
    assert_eq!(next(&mut wanted, one), "joined 2 as 0 in 1");
    let late = scan_of(&mut wanted, 1..=4);
    assert_eq!(next(&mut wanted, late), "enter 2 in 1");
    // Rows that went by are wanted again, and not of the same pass.
    wanted.want(late, 2, half(), Some(1));
    assert_eq!(next(&mut wanted, late), "joined 3 as 0 in 2");
    assert_eq!(next(&mut wanted, one), "joined 3 as 1 in 2");
    assert_eq!(next(&mut wanted, one), "joined 4 as 0 in 3");
    (1..=3).for_each(|pass| wanted.end_pass(pass));
    assert_eq!(next(&mut wanted, late), "joined 4 as 2 in 3");
    assert_eq!(next(&mut wanted, late), "alone 2:10000");
    assert_eq!(next(&mut wanted, late), "alone 1");
    assert_eq!(next(&mut wanted, late), "nothing");
}

#[test]
fn what_cannot_be_entered_is_read_alone_in_the_end() {
    let mut wanted = Wanted::new(1, Terms::WherePays);
    let [one, _other] = [(); 2].map(|()| scan_of(&mut wanted, [1]));
    let wide = wanted.add_scan(1);
    assert_eq!(next(&mut wanted, one), "joined 1 as 0 in 0");
    wanted.want(wide, 1, Piece::new(RowSet::full(ROWS), columns(3..5)), None);
    wanted.want(wide, 2, all(), None);
    assert_eq!(next(&mut wanted, wide), "alone 2");
    assert_eq!(next(&mut wanted, wide), "alone 1");
}

#[test]
fn no_pass_begins_for_a_scan_that_is_away() {
    let mut wanted = Wanted::new(1, Terms::WherePays);
    let [one, away] = [(); 2].map(|()| scan_of(&mut wanted, [1, 2]));
    wanted.set_away(away);
    assert_eq!(next(&mut wanted, one), "alone 1");
    assert_eq!(next(&mut wanted, away), "joined 2 as 0 in 0");
    assert_eq!(next(&mut wanted, away), "alone 1");
}

#[test]
fn a_scan_that_is_away_does_not_part_what_another_one_reads_alone() {
    let mut wanted = Wanted::new(ROWS, Terms::WherePays);
    let [one, away] = [(); 2].map(|()| scan_of(&mut wanted, 0..8));
    wanted.set_away(away);
    assert_eq!(next(&mut wanted, one), "alone 0 1 2 3");
    assert_eq!(next(&mut wanted, away), "joined 4 as 0 in 0");
}

#[test]
fn passes_begin_for_a_scan_as_long_as_it_comes_to_them() {
    let mut wanted = Wanted::new(1, Terms::WherePays);
    let [one, late] = [(); 2].map(|()| scan_of(&mut wanted, 0..8));
    let read: Vec<String> = (0..4).map(|_| next(&mut wanted, one)).collect();
    assert_eq!(read, ["joined 0 as 0 in 0", "joined 1 as 0 in 1", "joined 2 as 0 in 2", "alone 3 4"]);
    assert_eq!(next(&mut wanted, late), "joined 0 as 1 in 0");
    assert_eq!(next(&mut wanted, one), "joined 5 as 0 in 3");
    assert_eq!(next(&mut wanted, one), "alone 6");
}

#[test]
fn pieces_that_are_not_worth_a_pass_are_read_together() {
    let mut wanted = Wanted::new(ROWS, Terms::WherePays);
    let [one, other] = [0..4, 4..8].map(|places| {
        let (scan, columns) = (wanted.add_scan(1), columns(places));
        (0..4).for_each(|unit| wanted.want(scan, unit, Piece::new(RowSet::full(ROWS), columns.clone()), None));
        scan
    });
    assert_eq!(next(&mut wanted, one), "alone 0 1");
    assert_eq!(next(&mut wanted, other), "alone 2 3");
}

#[test]
fn a_scan_that_goes_takes_its_pieces_and_leaves_its_passes() {
    let mut wanted = Wanted::new(1, Terms::WherePays);
    let [one, gone] = [(); 2].map(|()| scan_of(&mut wanted, [1, 2]));
    assert_eq!(next(&mut wanted, one), "joined 1 as 0 in 0");
    let left = wanted.remove_scan(gone);
    assert_eq!(left.iter().map(|ticket| (ticket.unit, ticket.consumer)).collect::<Vec<_>>(), [(1, 1)]);
    assert_eq!(next(&mut wanted, gone), "nothing");
    assert_eq!(next(&mut wanted, one), "alone 2");
    wanted.end_pass(0);
    assert!(wanted.is_empty());
}

#[test]
fn pieces_that_nobody_else_wants_are_read_together_and_fewer_towards_the_end() {
    let mut wanted = Wanted::new(ROWS, Terms::WherePays);
    let scan = wanted.add_scan(2);
    (0..20).for_each(|unit| wanted.want(scan, unit, all(), None));
    let read: Vec<String> = (0..5).map(|_| next(&mut wanted, scan)).collect();
    assert_eq!(read, ["alone 0 1 2 3 4", "alone 5 6 7", "alone 8 9 10", "alone 11 12", "alone 13"]);
    let other = scan_of(&mut wanted, [15]);
    assert_eq!(next(&mut wanted, scan), "joined 15 as 0 in 0");
    wanted.remove_scan(other).iter().for_each(|ticket| wanted.end_pass(ticket.pass.id));
    assert_eq!(next(&mut wanted, scan), "alone 16");
}

#[test]
fn a_large_piece_is_cut_for_several_partitions() {
    let mut wanted = Wanted::new(2_000, Terms::WherePays);
    let scan = wanted.add_scan(2);
    wanted.want(scan, 1, all().divisible(true), None);
    let read: Vec<String> = (0..3).map(|_| next(&mut wanted, scan)).collect();
    assert_eq!(read, ["alone 1:10000", "alone 1:10000", "nothing"]);
    assert!(wanted.is_empty());
}

#[test]
fn row_groups_stay_whole_as_long_as_each_partition_gets_one() {
    let mut wanted = Wanted::new(2_000, Terms::WherePays);
    let scan = wanted.add_scan(3);
    (1..=4).for_each(|unit| wanted.want(scan, unit, all().divisible(true), None));
    let read: Vec<String> = (0..8).map(|_| next(&mut wanted, scan)).collect();
    // Two are left for three partitions: a third of both is a share.
    let shares = ["alone 3:13334", "alone 4:13334", "alone 3:6666", "alone 4:6666", "nothing", "nothing"];
    assert_eq!(
        (&read[..2], &read[2..]),
        (&["alone 1", "alone 2"].map(str::to_owned)[..], &shares.map(str::to_owned)[..])
    );
}

#[test]
fn rows_are_looked_at_before_a_piece_is_cut() {
    let mut wanted = Wanted::new(2_000, Terms::WherePays);
    let scan = wanted.add_scan(4);
    let planned = || Piece::planned(PlannedRows::new(ROWS, || RowSet::full(ROWS)), columns(0..4));
    wanted.want(scan, 1, planned().divisible(true), None);
    wanted.want(scan, 2, planned(), None);
    let read: Vec<String> = (0..3).map(|_| next(&mut wanted, scan)).collect();
    assert_eq!(read, ["look at [20000]", "alone 1:10000", "alone 2"]);
}

#[test]
fn a_scan_that_nobody_asks_for_rows_leaves_its_passes_and_keeps_its_pieces() {
    let mut wanted = Wanted::new(1, Terms::WherePays);
    let [one, idle] = [(); 2].map(|()| scan_of(&mut wanted, [1, 2]));
    assert_eq!(next(&mut wanted, one), "joined 1 as 0 in 0");
    let left: Vec<_> = wanted.suspend(idle).iter().map(|ticket| (ticket.unit, ticket.consumer)).collect();
    assert_eq!(left, [(1, 1)]);
    assert_eq!(next(&mut wanted, one), "alone 2");
    wanted.end_pass(0);
    assert_eq!((next(&mut wanted, idle), next(&mut wanted, idle)), ("alone 2".to_owned(), "alone 1".to_owned()));
}

#[test]
fn who_finds_nobody_reads_much_as_a_pass_that_others_enter() {
    let mut wanted = Wanted::new(1, Terms::WherePays).with_least_lone(ROWS);
    let one = wanted.add_scan(1);
    (1..=2).for_each(|unit| wanted.want(one, unit, slow(), None));
    assert_eq!(next(&mut wanted, one), "lone 1:20000 in 0");
    let late = wanted.add_scan(1);
    (1..=2).for_each(|unit| wanted.want(late, unit, slow(), None));
    assert_eq!(next(&mut wanted, late), "enter 1 in 0");
    // Rows that went by are wanted again, and not of the same pass.
    wanted.want(late, 1, slow().with_rows(RowSet::from_range(0..ROWS / 2, ROWS)), Some(0));
    assert_eq!(next(&mut wanted, late), "joined 2 as 0 in 1");
    assert_eq!(next(&mut wanted, one), "joined 2 as 1 in 1");
    assert_eq!(next(&mut wanted, late), "alone 1:10000");
    assert_eq!((next(&mut wanted, late), next(&mut wanted, one)), ("nothing".to_owned(), "nothing".to_owned()));
    (0..2).for_each(|pass| wanted.end_pass(pass));
    assert!(wanted.is_empty());
}

#[test]
fn little_is_no_pass_of_one_nor_is_what_a_reader_may_leave_out() {
    let mut wanted = Wanted::new(1, Terms::WherePays).with_least_lone(ROWS);
    let scan = wanted.add_scan(4);
    wanted.want(scan, 1, all(), None);
    wanted.want(scan, 2, slow().with_rows(RowSet::from_range(1..ROWS, ROWS)), None);
    wanted.want(scan, 3, slow().open(false), None);
    wanted.want(scan, 4, slow(), None);
    let read: Vec<String> = (0..4).map(|_| next(&mut wanted, scan)).collect();
    assert_eq!(read, ["alone 1", "alone 2:19999", "alone 3", "lone 4:20000 in 0"]);
}

#[test]
fn partitions_cut_a_large_piece_into_passes_of_one() {
    let mut wanted = Wanted::new(2_000, Terms::WherePays).with_least_lone(2_000);
    let scan = wanted.add_scan(4);
    wanted.want(scan, 1, slow().divisible(true), None);
    let read: Vec<String> = (0..2).map(|_| next(&mut wanted, scan)).collect();
    assert_eq!(read, ["lone 1:5000 in 0", "lone 1:5000 in 1"]);
    let late = wanted.add_scan(2);
    wanted.want(late, 1, slow(), None);
    assert_eq!(next(&mut wanted, late), "enter 1 in 0");
    wanted.want(late, 1, slow().with_rows(RowSet::from_range(4_000..ROWS, ROWS)), Some(0));
    assert_eq!(next(&mut wanted, late), "enter 1 in 1");
    wanted.want(late, 1, slow().with_rows(RowSet::from_range(6_000..ROWS, ROWS)), Some(1));
    // What both still want is decoded once.
    assert_eq!(next(&mut wanted, late), "joined 1 as 0 in 2");
    assert_eq!(
        (next(&mut wanted, scan), next(&mut wanted, scan)),
        ("joined 1 as 1 in 2".to_owned(), "nothing".to_owned())
    );
    (0..3).for_each(|pass| wanted.end_pass(pass));
    assert!(wanted.is_empty());
}

#[test]
fn a_pass_of_other_columns_begins_beside_one_that_runs() {
    let mut wanted = Wanted::new(1, Terms::WherePays).with_least_lone(1);
    let reads = |wanted: &mut Wanted, places: std::ops::Range<usize>| {
        let columns: ColumnCosts = places.map(|place| (place, ColumnReadCost { count: 1.0, decode: 80.0 })).collect();
        let scan = wanted.add_scan(1);
        wanted.want(scan, 1, Piece::new(RowSet::full(ROWS), columns), None);
        next(wanted, scan)
    };
    assert_eq!(reads(&mut wanted, 0..4), "lone 1:20000 in 0");
    assert_eq!(reads(&mut wanted, 3..6), "lone 1:20000 in 1");
    assert_eq!(
        (reads(&mut wanted, 4..6), reads(&mut wanted, 1..3)),
        ("enter 1 in 1".to_owned(), "enter 1 in 0".to_owned())
    );
    wanted.end_pass(1);
    assert_eq!(
        (reads(&mut wanted, 2..4), reads(&mut wanted, 4..6)),
        ("enter 1 in 0".to_owned(), "lone 1:20000 in 2".to_owned())
    );
}

#[test]
fn rows_are_looked_at_before_passes_of_one_begin_and_what_is_ruled_out_takes_no_turns() {
    let mut wanted = Wanted::new(ROWS, Terms::WherePays).with_least_lone(ROWS);
    let scan = wanted.add_scan(1);
    let (full, none) = (RowSet::full(ROWS), RowSet::empty(ROWS));
    for (unit, rows) in (0..).zip([&full, &none, &none, &none, &full]) {
        let rows = rows.clone();
        wanted.want(scan, unit, Piece::planned(PlannedRows::new(ROWS, move || rows.clone()), slow_columns()), None);
    }
    let read: Vec<String> = (0..6).map(|_| next(&mut wanted, scan)).collect();
    let turns = ["lone 0:20000 in 0", "alone 1:0 2:0", "alone 3:0", "lone 4:20000 in 1", "nothing"];
    assert_eq!((read[0].as_str(), &read[1..]), ("look at [20000, 0, 0, 0, 20000]", &turns.map(str::to_owned)[..]));
}
