//! The pieces that scans have yet to read, and who reads which next.
//!
//! ```text
//! scan A   wants  1 2 3 4 5 6              pass of 4 runs: A decodes
//! scan B   wants      3 4 5 6 7            B comes, enters the pass of 4, goes on with 5, 6, 7 beside A, and comes round to 3
//! ```
//!
//! A scan takes first what is decoded anyway: passes that began for it, then passes that it may enter. Else it takes of the pieces next to
//! its last one that which most others want. If they are worth one decode, a pass begins for all of them. If not, and the piece has many
//! rows, a pass of one begins, which others may enter. Few rows the scan reads alone, with neighbours that nobody else wants.
//!
//! Invariant: of each wanted piece every row is handed out once. A scan comes to a pass once.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use lakemark_table::RowSet;

use super::ranks::behind;
use super::unit_pieces::{PassId, ScanId, UnitPieces, WantedPiece};
use crate::share::pages::ConsumerId;
use crate::share::prediction::{ColumnCosts, Piece, PieceGroup, Terms, group, of_one};

/// Pieces that are looked at for the next one.
const LOOK_AHEAD: usize = 64;
/// Scans that a pass begins for at most. Others may enter it.
const MOST_MEMBERS: usize = 64;
/// A scan that has not come to so many passes, and one for each of its partitions, gets no others: their pages would wait for it.
const MOST_AHEAD: u64 = 2;
/// Into so many turns the even share of a partition is cut that is read alone, at first.
const TURNS_OF_A_SHARE: u64 = 2;

/// What a scan reads next.
#[derive(Clone, Debug)]
pub(crate) enum Next<K, P> {
    /// A pass that began for it.
    Joined(Ticket<K, P>),
    /// A pass that it may enter. What the pass does not give it is wanted again.
    Enter { pass: RunningPass<P>, unit: K, piece: Piece },
    /// A pass that began for it alone, and that others may enter.
    Lone(Ticket<K, P>),
    /// Somebody has to look at the rows of these pieces before it asks again. It still wants them.
    Look(Vec<Piece>),
    /// Pieces that it reads alone, one after the other.
    Alone(Vec<(K, Piece)>),
    /// It has no piece left.
    Nothing,
}

/// A consumer of a pass that began for its scan.
#[derive(Clone, Debug)]
pub(crate) struct Ticket<K, P> {
    pub(crate) pass: RunningPass<P>,
    pub(crate) consumer: ConsumerId,
    pub(crate) unit: K,
    /// What the scan takes of it.
    pub(crate) piece: Piece,
}

/// A pass, and what others need to know of it.
#[derive(Clone, Debug)]
pub(crate) struct RunningPass<P> {
    pub(crate) id: PassId,
    pub(crate) pass: P,
    /// The columns that it decodes.
    pub(crate) columns: Arc<ColumnCosts>,
}

/// What a pass begins with.
#[derive(Debug)]
pub(crate) struct PassPlan<'a, K> {
    pub(crate) id: PassId,
    pub(crate) unit: &'a K,
    pub(crate) group: &'a PieceGroup,
    /// Its scans, each of which gets a consumer.
    pub(crate) scans: &'a [ScanId],
    /// Their pieces.
    pub(crate) pieces: &'a [Piece],
}

/// A pass that began, and the numbers of its consumers in the order of its scans.
pub(crate) struct BegunPass<P> {
    pub(crate) pass: P,
    pub(crate) consumers: Vec<ConsumerId>,
}

#[derive(Debug)]
struct Unit<P> {
    pieces: UnitPieces,
    /// The passes that run: several if scans come to them that cannot enter the others.
    passes: Vec<RunningPass<P>>,
}

impl<P> Default for Unit<P> {
    fn default() -> Self {
        Self { pieces: UnitPieces::default(), passes: Vec::new() }
    }
}

#[derive(Debug)]
struct Scan<K, P> {
    /// The units of its pieces, in its order.
    units: BTreeMap<u64, K>,
    next_place: u64,
    /// The place behind the piece that it took last.
    behind_last: u64,
    tickets: VecDeque<Ticket<K, P>>,
    /// Passes that give no more of what it wants: it came to them, or they were not worth it.
    tried: BTreeSet<PassId>,
    /// Whether it does not ask for rows just now.
    is_away: bool,
    partitions: u64,
    /// The rows of its pieces.
    rows: u64,
    /// Of a row group as many rows as a partition takes, once there are fewer row groups than partitions.
    share: Option<u32>,
}

impl<K, P> Scan<K, P> {
    fn new(partitions: u64) -> Self {
        let (units, tickets, tried) = (BTreeMap::new(), VecDeque::new(), BTreeSet::new());
        Self { units, next_place: 0, behind_last: 0, tickets, tried, is_away: false, partitions, rows: 0, share: None }
    }

    /// Whether passes may begin for it while it is elsewhere.
    fn may_be_joined(&self) -> bool {
        !self.is_away && (self.tickets.len() as u64) < self.partitions + MOST_AHEAD
    }

    /// At most so many rows a partition takes of a row group: all, as long as there is one for each partition. A row group that is cut has its
    /// dictionaries and the pages at the cut read twice. Then it is an even share of what is left, and stays that, so that partitions end
    /// together.
    fn most_of_piece(&mut self, least: u32) -> u32 {
        let partitions = self.partitions.max(1);
        if self.share.is_none() && self.units.len() as u64 >= partitions {
            return u32::MAX;
        }
        let even = u32::try_from(self.rows.div_ceil(partitions)).unwrap_or(u32::MAX);
        *self.share.get_or_insert(even.max(least))
    }

    /// How many rows a partition reads alone at a time: fewer towards the end, so that no partition has much to read when another one has
    /// nothing left.
    fn rows_of_turn(&self, least: u32) -> u32 {
        let even = self.rows / (self.partitions.max(1) * TURNS_OF_A_SHARE);
        u32::try_from(even).unwrap_or(u32::MAX).max(least)
    }
}

/// The pieces that scans have yet to read, by unit.
#[derive(Debug)]
pub(crate) struct WantedPieces<K, P> {
    units: HashMap<K, Unit<P>>,
    scans: BTreeMap<ScanId, Scan<K, P>>,
    /// The units of the passes that run.
    running: BTreeMap<PassId, K>,
    next_scan: ScanId,
    next_pass: PassId,
    /// A partition reads so many rows alone at a time, or more.
    least_alone: u32,
    /// Others may enter where a scan alone reads so many rows, or more.
    least_lone: u32,
    terms: Terms,
}

impl<K: Clone + Eq + Hash, P: Clone> WantedPieces<K, P> {
    pub(crate) fn new(least_alone: u32, terms: Terms) -> Self {
        let (units, scans, running) = (HashMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { units, scans, running, next_scan: 0, next_pass: 0, least_alone, least_lone: u32::MAX, terms }
    }

    /// The same, where others may enter if a scan alone reads so many rows, or more.
    pub(crate) fn with_least_lone(self, least_lone: u32) -> Self {
        Self { least_lone, ..self }
    }

    /// A scan of so many partitions, without pieces.
    pub(crate) fn add_scan(&mut self, partitions: u64) -> ScanId {
        let id = self.next_scan;
        self.next_scan += 1;
        self.scans.insert(id, Scan::new(partitions));
        id
    }

    /// A scan wants a piece, behind those that it wants already. `tried` is a pass of the unit that gives no more of it.
    pub(crate) fn want(&mut self, scan: ScanId, unit: K, piece: Piece, tried: Option<PassId>) {
        let Some(own) = self.scans.get_mut(&scan) else { return };
        own.tried.extend(tried);
        if piece.most_rows() == 0 {
            return;
        }
        let of_unit = self.units.entry(unit);
        // All who want a unit know it by one key: it is looked up for each of many pieces, and two keys are compared by all that files are
        // read by.
        let unit = of_unit.key().clone();
        let pieces = &mut of_unit.or_default().pieces;
        if let Some(known) = pieces.get_mut(scan) {
            let before = known.piece.most_rows();
            known.piece = known.piece.plus(&piece);
            own.rows = own.rows + u64::from(known.piece.most_rows()) - u64::from(before);
            return;
        }
        let place = own.next_place;
        own.next_place += 1;
        own.rows += u64::from(piece.most_rows());
        own.units.insert(place, unit);
        pieces.add(scan, WantedPiece { piece, place });
    }

    /// What a scan reads next. `begin` makes a pass.
    pub(crate) fn next(&mut self, scan: ScanId, begin: impl FnOnce(PassPlan<'_, K>) -> BegunPass<P>) -> Next<K, P> {
        let Some(own) = self.scans.get_mut(&scan) else { return Next::Nothing };
        own.is_away = false;
        if let Some(ticket) = own.tickets.pop_front() {
            return Next::Joined(ticket);
        }
        if let Some(next) = self.enterable(scan) {
            return next;
        }
        let Some(unit) = self.most_wanted(scan) else { return Next::Nothing };
        if let Some((members, found)) = self.worth_a_pass(scan, &unit) {
            let pieces = members.iter().filter_map(|member| self.take(*member, &unit)).map(|wanted| wanted.piece);
            let pieces = pieces.collect();
            return self.begin_pass(&unit, members, pieces, found, begin).map_or(Next::Nothing, Next::Joined);
        }
        if self.is_lone(scan, &unit) {
            let unseen = self.unseen(scan, &unit);
            if !unseen.is_empty() {
                return Next::Look(unseen);
            }
            return self.begin_lone(scan, &unit, begin).map_or(Next::Nothing, Next::Lone);
        }
        let most = self.most_of_piece(scan);
        if let Some(unseen) = self.unseen_to_cut(scan, &unit, most) {
            return Next::Look(vec![unseen]);
        }
        let alone = self.take_alone(scan, unit, most);
        if alone.is_empty() { Next::Nothing } else { Next::Alone(alone) }
    }

    /// Whether what a scan reads next is no pass that runs: it would begin one, or read alone.
    pub(crate) fn would_begin(&mut self, scan: ScanId) -> bool {
        let Some(own) = self.scans.get_mut(&scan) else { return false };
        own.is_away = false;
        own.tickets.is_empty() && !own.units.is_empty() && self.untried_pass(scan).is_none()
    }

    /// About how many nanoseconds it takes to read what a scan wants, or `most` if that is less.
    pub(crate) fn cost(&self, scan: ScanId, most: f64) -> f64 {
        let units = self.scans.get(&scan).into_iter().flat_map(|own| own.units.values());
        let mut costs = units.filter_map(|unit| self.piece(scan, unit)).map(Piece::rough_cost);
        let mut all = 0.0;
        while all < most
            && let Some(cost) = costs.next()
        {
            all += cost;
        }
        all.min(most)
    }

    /// A scan does not ask for rows just now. No pass begins for it until it does.
    pub(crate) fn set_away(&mut self, scan: ScanId) {
        if let Some(own) = self.scans.get_mut(&scan) {
            own.is_away = true;
        }
    }

    /// A scan that has nobody to ask for rows. Its consumers, of passes that began for it and that it did not come to, are to leave, and
    /// their rows are wanted again.
    pub(crate) fn suspend(&mut self, scan: ScanId) -> Vec<Ticket<K, P>> {
        let Some(own) = self.scans.get_mut(&scan) else { return Vec::new() };
        own.is_away = true;
        let tickets: Vec<Ticket<K, P>> = std::mem::take(&mut own.tickets).into();
        for Ticket { unit, piece, pass, .. } in &tickets {
            self.want(scan, unit.clone(), piece.clone(), Some(pass.id));
        }
        tickets
    }

    /// A pass gives no more pages.
    pub(crate) fn end_pass(&mut self, id: PassId) {
        let Some(unit) = self.running.remove(&id) else { return };
        if let Some(of_unit) = self.units.get_mut(&unit) {
            of_unit.passes.retain(|pass| pass.id != id);
        }
        self.drop_empty(&unit);
    }

    /// A scan goes. Its consumers, of passes that began for it and that it did not come to, are to leave.
    pub(crate) fn remove_scan(&mut self, scan: ScanId) -> Vec<Ticket<K, P>> {
        let Some(gone) = self.scans.remove(&scan) else { return Vec::new() };
        for unit in gone.units.into_values() {
            if let Some(of_unit) = self.units.get_mut(&unit) {
                of_unit.pieces.remove(scan);
            }
            self.drop_empty(&unit);
        }
        gone.tickets.into()
    }

    /// The pieces of those units that another scan than this one wants as well, its own among them.
    pub(crate) fn contested(&self, scan: ScanId) -> Vec<Piece> {
        let Some(own) = self.scans.get(&scan).filter(|_| self.scans.len() > 1) else { return Vec::new() };
        let of_units = own.units.values().filter_map(|unit| self.units.get(unit));
        let contested =
            of_units.filter(|of_unit| !of_unit.passes.is_empty() || self.others(scan, of_unit).next().is_some());
        contested.flat_map(|of_unit| of_unit.pieces.all()).map(|wanted| wanted.piece.clone()).collect()
    }

    /// Whether nobody wants anything and no pass runs.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// A pass that runs, of a unit that the scan wants a piece of.
    fn enterable(&mut self, scan: ScanId) -> Option<Next<K, P>> {
        let (unit, pass) = self.untried_pass(scan)?;
        let WantedPiece { piece, .. } = self.take(scan, &unit)?;
        Some(Next::Enter { pass, unit, piece })
    }

    /// The oldest pass that a scan may enter, and its unit.
    fn untried_pass(&self, scan: ScanId) -> Option<(K, RunningPass<P>)> {
        let own = self.scans.get(&scan)?;
        let may_enter = |id: PassId, unit: &K| {
            let of_unit = self.units.get(unit)?;
            let wanted = of_unit.pieces.get(scan)?;
            let pass = of_unit.passes.iter().find(|pass| pass.id == id)?;
            let has_columns = wanted.piece.columns().keys().all(|column| pass.columns.contains_key(column));
            has_columns.then(|| (unit.clone(), pass.clone()))
        };
        let mut untried = self.running.iter().filter(|(id, _)| !own.tried.contains(*id));
        untried.find_map(|(id, unit)| may_enter(*id, unit))
    }

    /// Of the next pieces of a scan that which most scans want, and of these the nearest. A unit with a pass comes last: the scan cannot
    /// enter it, and those who do want the rows before their entry point when it ends.
    fn most_wanted(&self, scan: ScanId) -> Option<K> {
        let own = self.scans.get(&scan)?;
        let round = own.units.range(own.behind_last..).chain(own.units.range(..own.behind_last));
        let mut best: Option<(usize, &K)> = None;
        for (_, unit) in round.take(LOOK_AHEAD) {
            let of_unit = self.units.get(unit).filter(|of_unit| of_unit.passes.is_empty());
            let wants = of_unit.map_or(0, |of_unit| 1 + self.others(scan, of_unit).count());
            if best.is_none_or(|(most, _)| wants > most) {
                best = Some((wants, unit));
            }
        }
        best.map(|(_, unit)| unit.clone())
    }

    /// The other scans that want a piece of a unit, and that come for it soon.
    fn others(&self, scan: ScanId, of_unit: &Unit<P>) -> impl Iterator<Item = ScanId> {
        let is_here = move |other: &ScanId| self.scans.get(other).is_some_and(Scan::may_be_joined);
        of_unit.pieces.scans().filter(move |other| *other != scan && is_here(other))
    }

    /// The piece of a unit that a scan reads alone, and those behind it that are read alone as well: one after the other they are read ahead.
    /// What is too much for a turn stays with the scan.
    fn take_alone(&mut self, scan: ScanId, unit: K, most: u32) -> Vec<(K, Piece)> {
        let Some(turn) = self.scans.get(&scan).map(|own| own.rows_of_turn(self.least_alone)) else { return Vec::new() };
        let (mut taken, mut left, mut next) = (Vec::new(), turn, Some(unit));
        while let Some(unit) = next.take() {
            let Some(piece) = self.take_up_to(scan, &unit, most) else { break };
            left = left.saturating_sub(piece.turn_rows(self.least_alone));
            taken.push((unit, piece));
            next = self.next_alone(scan, left);
        }
        taken
    }

    /// At most so many rows of a row group a scan takes at a time.
    fn most_of_piece(&mut self, scan: ScanId) -> u32 {
        self.scans.get_mut(&scan).map_or(u32::MAX, |own| own.most_of_piece(self.least_alone))
    }

    /// So many rows of a piece, or all of them. Others stay with the scan, but for a few.
    fn take_up_to(&mut self, scan: ScanId, unit: &K, most: u32) -> Option<Piece> {
        let WantedPiece { piece, .. } = self.take(scan, unit)?;
        let is_much = self.is_much(&piece, most);
        let Some((first, others)) = is_much.then(|| cut(&piece, most)).flatten() else { return Some(piece) };
        self.want(scan, unit.clone(), others, None);
        Some(first)
    }

    /// The unit behind the last one of a scan, if the scan wants at most so many rows of it, and would read them alone.
    fn next_alone(&self, scan: ScanId, most: u32) -> Option<K> {
        let own = self.scans.get(&scan)?;
        let unit = own.units.get(&own.behind_last)?;
        let of_unit = self.units.get(unit).filter(|of_unit| of_unit.passes.is_empty())?;
        let rows = of_unit.pieces.get(scan)?.piece.turn_rows(self.least_alone);
        let is_alone = || !self.is_lone(scan, unit) && self.worth_a_pass(scan, unit).is_none();
        (rows <= most && is_alone()).then(|| unit.clone())
    }

    /// Whether a scan that finds nobody reads a piece as a pass of one.
    fn is_lone(&self, scan: ScanId, unit: &K) -> bool {
        self.piece(scan, unit).is_some_and(|piece| piece.is_lone(self.least_lone, self.terms))
    }

    fn piece(&self, scan: ScanId, unit: &K) -> Option<&Piece> {
        Some(&self.units.get(unit)?.pieces.get(scan)?.piece)
    }

    /// If nobody has looked at the rows of a piece, this one and those behind it that nobody has looked at, either. Files are pruned as a
    /// whole, and rows that are ruled out take no turn each.
    fn unseen(&self, scan: ScanId, unit: &K) -> Vec<Piece> {
        let Some(own) = self.scans.get(&scan).filter(|_| self.piece(scan, unit).is_some_and(|piece| !piece.is_seen()))
        else {
            return Vec::new();
        };
        let next = own.units.range(own.behind_last..).chain(own.units.range(..own.behind_last)).take(LOOK_AHEAD);
        let pieces = next.filter_map(|(_, unit)| self.piece(scan, unit));
        pieces.filter(|piece| !piece.is_seen() && piece.is_lone(self.least_lone, self.terms)).cloned().collect()
    }

    /// The piece of a unit that is cut before it is read alone, if nobody has looked at its rows: whoever did so while it is cut would hold
    /// all others up.
    fn unseen_to_cut(&self, scan: ScanId, unit: &K, most: u32) -> Option<Piece> {
        let piece = self.piece(scan, unit).filter(|piece| piece.is_divisible() && !piece.is_seen())?;
        self.is_much(piece, most).then(|| piece.clone())
    }

    /// Whether so many rows of a piece leave some that are worth a turn.
    fn is_much(&self, piece: &Piece, most: u32) -> bool {
        piece.most_rows() >= most.saturating_add(self.least_alone)
    }

    /// The scans for which one decode of a unit is worth it, of which this one is the first, and what is decoded for them.
    fn worth_a_pass(&self, scan: ScanId, unit: &K) -> Option<(Vec<ScanId>, PieceGroup)> {
        let of_unit = self.units.get(unit)?;
        let scans: Vec<ScanId> = std::iter::once(scan).chain(self.others(scan, of_unit)).take(MOST_MEMBERS).collect();
        if scans.len() < 2 {
            return None;
        }
        let wanted: Vec<&Piece> =
            scans.iter().filter_map(|scan| of_unit.pieces.get(*scan)).map(|wanted| &wanted.piece).collect();
        let found = group(&wanted, self.terms)
            .filter(|found| wanted.len() == scans.len() && found.members.first() == Some(&0))?;
        let members = found.members.iter().filter_map(|&place| scans.get(place).copied()).collect();
        Some((members, found))
    }

    /// Begins a pass for a scan that finds nobody.
    fn begin_lone(
        &mut self,
        scan: ScanId,
        unit: &K,
        begin: impl FnOnce(PassPlan<'_, K>) -> BegunPass<P>,
    ) -> Option<Ticket<K, P>> {
        let most = self.most_of_piece(scan);
        let piece = self.take_up_to(scan, unit, most)?;
        let found = of_one(&piece);
        self.begin_pass(unit, vec![scan], vec![piece], found, begin)
    }

    /// Begins a pass for scans and their pieces. The first one gets its consumer, the others find theirs when they come.
    fn begin_pass(
        &mut self,
        unit: &K,
        members: Vec<ScanId>,
        pieces: Vec<Piece>,
        found: PieceGroup,
        begin: impl FnOnce(PassPlan<'_, K>) -> BegunPass<P>,
    ) -> Option<Ticket<K, P>> {
        let id = self.next_pass;
        self.next_pass += 1;
        let plan = PassPlan { id, unit, group: &found, scans: &members, pieces: &pieces };
        let BegunPass { pass, consumers } = begin(plan);
        let pass = RunningPass { id, pass, columns: Arc::new(found.columns) };
        self.running.insert(id, unit.clone());
        self.units.entry(unit.clone()).or_default().passes.push(pass.clone());
        let mut first = None;
        for ((member, piece), consumer) in members.into_iter().zip(pieces).zip(consumers) {
            let ticket = Ticket { pass: pass.clone(), consumer, unit: unit.clone(), piece };
            let Some(scan) = self.scans.get_mut(&member) else { continue };
            scan.tried.insert(id);
            if first.is_none() {
                first = Some(ticket);
            } else {
                scan.tickets.push_back(ticket);
            }
        }
        first
    }

    /// Takes a piece away, which its scan gets.
    fn take(&mut self, scan: ScanId, unit: &K) -> Option<WantedPiece> {
        let taken = self.units.get_mut(unit)?.pieces.remove(scan)?;
        if let Some(own) = self.scans.get_mut(&scan) {
            own.units.remove(&taken.place);
            own.behind_last = taken.place + 1;
            own.rows -= u64::from(taken.piece.most_rows());
        }
        self.drop_empty(unit);
        Some(taken)
    }

    fn drop_empty(&mut self, unit: &K) {
        if self.units.get(unit).is_some_and(|unit| unit.pieces.is_empty() && unit.passes.is_empty()) {
            self.units.remove(unit);
        }
    }
}

/// The first so many rows of a piece and the others; none if it stays whole.
fn cut(piece: &Piece, rows: u32) -> Option<(Piece, Piece)> {
    if !piece.is_divisible() || rows == 0 || piece.rows().len() <= rows {
        return None;
    }
    let end = behind(piece.rows(), 0, rows)?;
    let first = piece.rows().and(&RowSet::from_range(0..end, piece.rows().universe()));
    let others = piece.rows().minus(&first);
    Some((piece.with_rows(first), piece.with_rows(others)))
}

#[cfg(test)]
#[path = "wanted_tests.rs"]
mod tests;
