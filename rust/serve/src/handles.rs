//! Things that clients name by a handle: plans until their rows are asked for, and prepared statements.
//!
//! A handle is a number that nobody can guess. It is known to its owner alone, and to nobody once its time is over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lakemark_table::{Stopwatch, new_id};
use tokio::sync::oneshot;

/// A handle as clients have it.
pub(crate) type Handle = [u8; 16];

/// Who may use a handle: the owner of a token, or anybody where the server takes no tokens.
pub(crate) type Owner = Option<Arc<str>>;

/// Things by their handles.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    most: Most,
    life: Duration,
    kept: Mutex<Kept<T>>,
}

/// How much there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
struct Kept<T> {
    entries: HashMap<Handle, Entry<T>>,
    /// What all of them weigh.
    bytes: usize,
    /// How often things were put there or used so far.
    uses: u64,
}

/// A thing with its owner, its weight in bytes, and the time since it was put there or used.
#[derive(Debug)]
struct Entry<T> {
    value: T,
    owner: Owner,
    weight: usize,
    idle: Stopwatch,
    /// The number of its last use among those of all things.
    last_use: u64,
    /// Tells whoever holds it that it is gone.
    holder: Option<oneshot::Sender<()>>,
}

/// A thing that somebody will take, or leave where it is. Nobody else takes it meanwhile, and its time does not end.
pub(crate) struct Held<'a, T> {
    handles: &'a Handles<T>,
    handle: Handle,
    gone: oneshot::Receiver<()>,
}

/// There is as much as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// So many things.
    Count(usize),
    /// So many bytes of things.
    Bytes(usize),
}

impl<T> Kept<T> {
    fn insert(&mut self, handle: Handle, entry: Entry<T>) {
        self.bytes = self.bytes.saturating_add(entry.weight);
        self.entries.insert(handle, entry);
    }

    fn remove(&mut self, handle: &Handle) -> Option<Entry<T>> {
        let entry = self.entries.remove(handle)?;
        self.bytes = self.bytes.saturating_sub(entry.weight);
        Some(entry)
    }

    fn retain(&mut self, is_kept: impl Fn(&Entry<T>) -> bool) {
        self.entries.retain(|_, entry| is_kept(entry));
        self.bytes = self.entries.values().map(|entry| entry.weight).fold(0, usize::saturating_add);
    }

    /// Of some things the one that was idle longest, of the owner who has most of them.
    fn idlest(&self, is_meant: impl Fn(&T) -> bool) -> Option<Handle> {
        let mut counts: HashMap<&Owner, usize> = HashMap::new();
        for entry in self.entries.values().filter(|entry| is_meant(&entry.value)) {
            *counts.entry(&entry.owner).or_default() += 1;
        }
        let (owner, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let its = self.entries.iter().filter(|(_, entry)| entry.owner == *owner && is_meant(&entry.value));
        its.min_by_key(|(_, entry)| entry.last_use).map(|(handle, _)| *handle)
    }
}

impl<T> Handles<T> {
    pub(crate) fn new(most: Most, life: Duration) -> Self {
        Self { most, life, kept: Mutex::new(Kept { entries: HashMap::new(), bytes: 0, uses: 0 }) }
    }

    fn kept(&self) -> MutexGuard<'_, Kept<T>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self, entry: &Entry<T>) -> bool {
        entry.holder.is_none() && entry.idle.seconds() >= self.life.as_secs_f64()
    }

    /// Why there is no room for one more thing of so many bytes.
    fn is_full(&self, kept: &Kept<T>, weight: usize) -> Option<Full> {
        let Most { count, bytes } = self.most;
        if kept.entries.len() >= count {
            return Some(Full::Count(count));
        }
        (kept.bytes.saturating_add(weight) > bytes).then_some(Full::Bytes(bytes))
    }

    /// Keeps a thing of so many bytes under a new handle.
    pub(crate) fn put(&self, owner: Owner, value: T, weight: usize) -> Result<Handle, Full> {
        let mut kept = self.kept();
        if self.is_full(&kept, weight).is_some() {
            kept.retain(|entry| !self.is_over(entry));
        }
        match self.is_full(&kept, weight) {
            Some(full) => Err(full),
            None => Ok(Self::insert(&mut kept, owner, value, weight)),
        }
    }

    /// The same, in the place of things that were idle for long where there is no room. Those of the owner who has most of them go first.
    pub(crate) fn put_for_idle_ones(&self, owner: Owner, value: T, weight: usize) -> Result<Handle, Full> {
        if weight > self.most.bytes {
            return Err(Full::Bytes(self.most.bytes));
        }
        let mut kept = self.kept();
        while let Some(full) = self.is_full(&kept, weight) {
            let idlest = kept.idlest(|_| true).ok_or(full)?;
            kept.remove(&idlest);
        }
        Ok(Self::insert(&mut kept, owner, value, weight))
    }

    /// Forgets of some things the one that was idle longest, of the owner who has most of them; says whether there was one.
    pub(crate) fn forget_idlest(&self, is_meant: impl Fn(&T) -> bool) -> bool {
        let mut kept = self.kept();
        let idlest = kept.idlest(is_meant);
        idlest.and_then(|idlest| kept.remove(&idlest)).is_some()
    }

    /// Keeps a thing however many there are: the client of a change that was made must hear of it.
    pub(crate) fn put_beyond_the_limit(&self, owner: Owner, value: T, weight: usize) -> Handle {
        Self::insert(&mut self.kept(), owner, value, weight)
    }

    fn insert(kept: &mut Kept<T>, owner: Owner, value: T, weight: usize) -> Handle {
        let handle = new_id().into_bytes();
        kept.uses += 1;
        let last_use = kept.uses;
        kept.insert(handle, Entry { value, owner, weight, idle: Stopwatch::start(), last_use, holder: None });
        handle
    }

    /// Holds a thing, if the handle is the owner's and still good, and nobody else holds it.
    pub(crate) fn hold(&self, handle: &[u8], owner: &Owner) -> Option<Held<'_, T>> {
        let handle = Handle::try_from(handle).ok()?;
        let mut kept = self.kept();
        let is_good = |entry: &&mut Entry<T>| entry.owner == *owner && entry.holder.is_none() && !self.is_over(entry);
        let entry = kept.entries.get_mut(&handle).filter(is_good)?;
        let (holder, gone) = oneshot::channel();
        entry.holder = Some(holder);
        Some(Held { handles: self, handle, gone })
    }

    /// Takes a thing away, if the handle is the owner's and still good, also if somebody holds it.
    pub(crate) fn remove(&self, handle: &[u8], owner: &Owner) -> Option<T> {
        let handle = Handle::try_from(handle).ok()?;
        let mut kept = self.kept();
        kept.entries.get(&handle).filter(|entry| entry.owner == *owner && !self.is_over(entry))?;
        kept.remove(&handle).map(|entry| entry.value)
    }

    /// Forgets things whose time is over; gives how many are left.
    pub(crate) fn sweep(&self) -> usize {
        let mut kept = self.kept();
        kept.retain(|entry| !self.is_over(entry));
        kept.entries.len()
    }
}

impl<T> Held<'_, T> {
    /// Its handle.
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Looks at the thing, unless it is gone.
    pub(crate) fn look<R>(&self, at: impl FnOnce(&T) -> R) -> Option<R> {
        self.handles.kept().entries.get(&self.handle).map(|entry| at(&entry.value))
    }

    /// Ends when somebody else takes the thing away.
    pub(crate) async fn gone(&mut self) {
        // Whoever takes it away says nothing, and drops the other end.
        let _ = (&mut self.gone).await;
    }

    /// Takes the thing away, unless it is gone.
    pub(crate) fn take(self) -> Option<T> {
        let mut kept = self.handles.kept();
        kept.remove(&self.handle).map(|entry| entry.value)
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if let Some(entry) = self.handles.kept().entries.get_mut(&self.handle) {
            entry.holder = None;
        }
    }
}

impl<T: Clone> Handles<T> {
    /// A thing that is used, whose time begins anew.
    pub(crate) fn get(&self, handle: &[u8], owner: &Owner) -> Option<T> {
        let handle = Handle::try_from(handle).ok()?;
        let mut kept = self.kept();
        let life = self.life.as_secs_f64();
        let Kept { entries, uses, .. } = &mut *kept;
        let entry = entries.get_mut(&handle).filter(|entry| entry.owner == *owner && entry.idle.seconds() < life)?;
        *uses += 1;
        (entry.idle, entry.last_use) = (Stopwatch::start(), *uses);
        Some(entry.value.clone())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn handles_for(count: usize, life: Duration) -> Handles<usize> {
        Handles::new(Most { count, bytes: 100 }, life)
    }

    #[test]
    fn a_thing_is_taken_once_and_by_its_owner() {
        let handles = handles_for(10, LONG);
        let ann: Owner = Some("ann".into());
        let handle = handles.put(ann.clone(), 7, 1).unwrap();
        for other in [None, Some("bob".into())] {
            assert!(handles.remove(&handle, &other).is_none() && handles.hold(&handle, &other).is_none());
        }
        let held = handles.hold(&handle, &ann).unwrap();
        assert!(held.look(|value| *value) == Some(7) && handles.hold(&handle, &ann).is_none());
        drop(held);
        let held = handles.hold(&handle, &ann).unwrap();
        assert_eq!((held.handle(), held.take()), (handle, Some(7)));
        assert!(handles.hold(&handle, &ann).is_none() && handles.remove(&handle, &ann).is_none());
    }

    #[tokio::test]
    async fn whoever_holds_a_thing_hears_that_it_is_gone_and_its_time_does_not_end() {
        const LIFE: Duration = Duration::from_millis(300);
        let handles = handles_for(10, LIFE);
        // On a machine that is busy its time may end before anybody comes for it.
        let held = |value: usize| loop {
            let handle = handles.put(None, value, 1).unwrap();
            if let Some(held) = handles.hold(&handle, &None) {
                break (handle, held);
            }
        };
        let (handle, mut first) = held(7);
        tokio::time::sleep(LIFE).await;
        assert_eq!(handles.sweep(), 1);
        assert!(futures::poll!(std::pin::pin!(first.gone())).is_pending());
        assert_eq!(handles.remove(&handle, &None), Some(7));
        first.gone().await;
        assert_eq!(first.take(), None);
        let (_, held) = held(8);
        tokio::time::sleep(LIFE).await;
        drop(held);
        assert_eq!(handles.sweep(), 0);
    }

    #[test]
    fn what_is_no_handle_is_nothing() {
        let handles = handles_for(10, LONG);
        let mut forged = handles.put(None, 7, 1).unwrap();
        forged[3] ^= 1;
        for wrong in [b"".as_slice(), b"x", &forged, &[0; 17]] {
            assert!(handles.hold(wrong, &None).is_none() && handles.get(wrong, &None).is_none());
        }
    }

    #[test]
    fn there_are_no_more_than_the_limit_and_old_ones_make_room() {
        let handles = handles_for(2, LONG);
        let first = handles.put(None, 1, 1).unwrap();
        handles.put(None, 2, 1).unwrap();
        assert_eq!(handles.put(None, 3, 1), Err(Full::Count(2)));
        handles.remove(&first, &None).unwrap();
        assert!(handles.put(None, 3, 1).is_ok());
        let answer = handles.put_beyond_the_limit(None, 4, 1000);
        assert_eq!((handles.put(None, 5, 1), handles.get(&answer, &None)), (Err(Full::Count(2)), Some(4)));

        let over = handles_for(1, Duration::ZERO);
        let old = over.put(None, 1, 1).unwrap();
        assert!(over.hold(&old, &None).is_none() && over.get(&old, &None).is_none());
        assert!(over.put(None, 2, 1).is_ok());
        assert_eq!(over.sweep(), 0);
    }

    #[test]
    fn things_are_limited_by_their_bytes_as_well() {
        let handles = handles_for(10, LONG);
        let first = handles.put(None, 1, 60).unwrap();
        assert_eq!(handles.put(None, 2, 41), Err(Full::Bytes(100)));
        assert_eq!(handles.remove(&first, &None), Some(1));
        assert!(handles.put(None, 2, 100).is_ok());
        handles.put_beyond_the_limit(None, 3, 1);
        assert_eq!(handles.put(None, 4, 0), Err(Full::Bytes(100)));
    }

    #[test]
    fn the_one_idle_longest_of_whoever_has_most_makes_room() {
        let handles = handles_for(3, LONG);
        let (ann, bob): (Owner, Owner) = (Some("ann".into()), Some("bob".into()));
        let of_bob = handles.put_for_idle_ones(bob.clone(), 0, 10).unwrap();
        let [first, second] = [1, 2].map(|value| handles.put_for_idle_ones(ann.clone(), value, 10).unwrap());
        // It was used just now.
        assert_eq!(handles.get(&first, &ann), Some(1));
        let third = handles.put_for_idle_ones(bob.clone(), 3, 10).unwrap();
        assert_eq!((handles.get(&second, &ann), handles.get(&first, &ann)), (None, Some(1)));
        assert_eq!((handles.get(&of_bob, &bob), handles.get(&third, &bob)), (Some(0), Some(3)));
        let large = handles.put_for_idle_ones(ann.clone(), 4, 95).unwrap();
        assert_eq!((handles.get(&large, &ann), handles.sweep()), (Some(4), 1));
        assert_eq!(handles.put_for_idle_ones(ann, 5, 101), Err(Full::Bytes(100)));
    }

    /// What is done with handles; each by one of three owners.
    #[derive(Clone, Debug)]
    enum Step {
        Put(usize),
        Remove(Index, usize),
        Get(Index, usize),
        Hold(Index, usize),
        Release,
        Forged(Vec<u8>, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..3_usize).prop_map(Step::Put),
            2 => (any::<Index>(), 0..3_usize).prop_map(|(which, owner)| Step::Remove(which, owner)),
            2 => (any::<Index>(), 0..3_usize).prop_map(|(which, owner)| Step::Hold(which, owner)),
            2 => (any::<Index>(), 0..3_usize).prop_map(|(which, owner)| Step::Get(which, owner)),
            1 => Just(Step::Release),
            1 => (proptest::collection::vec(any::<u8>(), 0..40), 0..3_usize).prop_map(|(bytes, owner)| Step::Forged(bytes, owner)),
        ]
    }

    proptest! {
        #[test]
        fn handles_are_a_map_of_which_each_owner_sees_a_part(steps in proptest::collection::vec(step(), 0..60)) {
            const LIMIT: usize = 5;
            let owners: [Owner; 3] = [None, Some("ann".into()), Some("bob".into())];
            let handles = handles_for(LIMIT, LONG);
            // Every handle that there was, with its owner, its value, and whether it is there.
            let mut model: Vec<(Handle, usize, usize, bool)> = Vec::new();
            let mut held: Vec<Held<'_, usize>> = Vec::new();
            for step in steps {
                let there = model.iter().filter(|(.., is_there)| *is_there).count();
                match step {
                    Step::Put(owner) => {
                        let value = model.len();
                        match handles.put(owners[owner].clone(), value, 1) {
                            Ok(handle) => {
                                prop_assert!(there < LIMIT);
                                model.push((handle, owner, value, true));
                            }
                            Err(full) => prop_assert_eq!((full, there >= LIMIT), (Full::Count(LIMIT), true)),
                        }
                    }
                    Step::Remove(which, owner) if !model.is_empty() => {
                        let place = which.index(model.len());
                        let (handle, of, value, is_there) = model[place];
                        let found = handles.remove(&handle, &owners[owner]);
                        prop_assert_eq!(found, (is_there && of == owner).then_some(value));
                        model[place].3 = is_there && of != owner;
                    }
                    Step::Hold(which, owner) if !model.is_empty() => {
                        let (handle, of, _, is_there) = model[which.index(model.len())];
                        let is_held = held.iter().any(|held| held.handle() == handle);
                        let found = handles.hold(&handle, &owners[owner]);
                        prop_assert_eq!(found.is_some(), is_there && of == owner && !is_held);
                        held.extend(found);
                    }
                    Step::Get(which, owner) if !model.is_empty() => {
                        let (handle, of, value, is_there) = model[which.index(model.len())];
                        let expected = (is_there && of == owner).then_some(value);
                        prop_assert_eq!(handles.get(&handle, &owners[owner]), expected);
                    }
                    Step::Forged(bytes, owner) => {
                        prop_assert!(handles.hold(&bytes, &owners[owner]).is_none());
                        prop_assert!(handles.remove(&bytes, &owners[owner]).is_none());
                        prop_assert!(handles.get(&bytes, &owners[owner]).is_none());
                    }
                    Step::Release => drop(held.pop()),
                    Step::Remove(..) | Step::Hold(..) | Step::Get(..) => {}
                }
            }
            prop_assert_eq!(handles.sweep(), model.iter().filter(|(.., is_there)| *is_there).count());
        }
    }
}
