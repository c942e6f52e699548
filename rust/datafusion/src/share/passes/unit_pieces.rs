//! The pieces that scans want of a unit.
//!
//! A scan wants many units, most of which no other one wants. So they are a list, which takes a tenth of the memory of a tree.

use crate::share::prediction::Piece;

/// Tells scans apart.
pub(crate) type ScanId = u64;
/// Tells passes apart.
pub(crate) type PassId = u64;

/// A piece that a scan wants.
#[derive(Debug)]
pub(crate) struct WantedPiece {
    pub(crate) piece: Piece,
    /// Its place among the pieces of its scan.
    pub(crate) place: u64,
}

/// The pieces of a unit, in the order of their scans.
#[derive(Debug, Default)]
pub(crate) struct UnitPieces(Vec<(ScanId, WantedPiece)>);

impl UnitPieces {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The scans that want a piece.
    pub(crate) fn scans(&self) -> impl Iterator<Item = ScanId> {
        self.0.iter().map(|(scan, _)| *scan)
    }

    /// The pieces of all of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &WantedPiece> {
        self.0.iter().map(|(_, wanted)| wanted)
    }

    pub(crate) fn get(&self, scan: ScanId) -> Option<&WantedPiece> {
        self.0.get(self.place(scan).ok()?).map(|(_, wanted)| wanted)
    }

    pub(crate) fn get_mut(&mut self, scan: ScanId) -> Option<&mut WantedPiece> {
        let place = self.place(scan).ok()?;
        self.0.get_mut(place).map(|(_, wanted)| wanted)
    }

    /// Adds the piece of a scan that has none.
    pub(crate) fn add(&mut self, scan: ScanId, wanted: WantedPiece) {
        if self.0.is_empty() {
            self.0.reserve_exact(1);
        }
        let place = self.place(scan).unwrap_or_else(|place| place);
        self.0.insert(place, (scan, wanted));
    }

    pub(crate) fn remove(&mut self, scan: ScanId) -> Option<WantedPiece> {
        let place = self.place(scan).ok()?;
        Some(self.0.remove(place).1)
    }

    fn place(&self, scan: ScanId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&scan, |(scan, _)| *scan)
    }
}

#[cfg(test)]
mod tests {
    use lakemark_table::RowSet;

    use super::*;
    use crate::share::prediction::ColumnCosts;

    #[test]
    fn each_scan_has_a_piece_of_its_own() {
        let mut pieces = UnitPieces::default();
        for (place, scan) in [4, 1, 9, 2].into_iter().enumerate() {
            let piece = Piece::new(RowSet::full(7), ColumnCosts::new());
            pieces.add(scan, WantedPiece { piece, place: place as u64 });
        }
        assert_eq!(pieces.scans().collect::<Vec<_>>(), [1, 2, 4, 9]);
        assert_eq!(
            [1, 2, 4, 9, 3].map(|scan| pieces.get(scan).map(|wanted| wanted.place)),
            [Some(1), Some(3), Some(0), Some(2), None]
        );
        assert_eq!((pieces.remove(4).map(|wanted| wanted.place), pieces.remove(3).is_some()), (Some(0), false));
        assert!(pieces.get_mut(4).is_none() && pieces.get_mut(9).is_some() && !pieces.is_empty());
    }
}
