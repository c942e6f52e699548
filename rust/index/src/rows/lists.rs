//! Set operations on ascending lists.

pub(super) fn intersect_lists(a: &[u32], b: &[u32]) -> Vec<u32> {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    // Far apart in size: search the long list for each row of the short one.
    if short.len() * 16 < long.len() {
        let mut rest = long;
        return short
            .iter()
            .copied()
            .filter(|row| {
                rest = rest.get(rest.partition_point(|x| x < row)..).unwrap_or_default();
                rest.first() == Some(row)
            })
            .collect();
    }
    let mut rows = Vec::with_capacity(short.len());
    let mut others = long.iter().copied().peekable();
    for &row in short {
        while others.next_if(|&other| other < row).is_some() {}
        if others.peek() == Some(&row) {
            rows.push(row);
        }
    }
    rows
}

pub(super) fn merge_lists(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut rows = Vec::with_capacity(a.len() + b.len());
    let mut others = b.iter().copied().peekable();
    for &row in a {
        while let Some(other) = others.next_if(|&other| other < row) {
            rows.push(other);
        }
        others.next_if_eq(&row);
        rows.push(row);
    }
    rows.extend(others);
    rows
}
