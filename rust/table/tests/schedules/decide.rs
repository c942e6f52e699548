//! Who decides: a seed, a list of what differs from the plain order, or an exhaustive walk.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lakemark_table::gate::StepKind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::scheduler::{Decided, Decider, Doing, Fault, Step, Verdict};

/// Where a schedule leaves the plain order, in which an actor goes on until it ends or waits, and nothing fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices(pub BTreeMap<usize, (usize, Verdict)>);

impl Choices {
    /// What a trace chose.
    pub fn of(trace: &[Decided]) -> Self {
        let mut choices = BTreeMap::new();
        let mut last = None;
        for (at, decided) in trace.iter().enumerate() {
            let plain = match last {
                Some(last) if decided.actor != last && !decided.is_preempted => {
                    decided.others.iter().copied().chain([decided.actor]).min()
                }
                Some(last) => Some(last),
                None => Some(0),
            };
            if plain != Some(decided.actor) || decided.verdict != Verdict::Go {
                choices.insert(at, (decided.actor, decided.verdict));
            }
            last = Some(decided.actor);
        }
        Self(choices)
    }
}

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (at, (actor, verdict))) in self.0.iter().enumerate() {
            let sign = match verdict {
                Verdict::Go => "",
                Verdict::Fail(Fault::Device) => "!",
                Verdict::Fail(Fault::Full) => "f",
                Verdict::FailAfter => "?",
                Verdict::Kill => "x",
            };
            write!(f, "{}{at}:{actor}{sign}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Choices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut choices = BTreeMap::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (at, chosen) = part.split_once(':').ok_or_else(|| format!("{part} is no choice"))?;
            let digits = chosen.trim_end_matches(['!', 'f', '?', 'x']);
            let verdict = match &chosen[digits.len()..] {
                "" => Verdict::Go,
                "!" => Verdict::Fail(Fault::Device),
                "f" => Verdict::Fail(Fault::Full),
                "?" => Verdict::FailAfter,
                _ => Verdict::Kill,
            };
            let number = |text: &str| text.parse::<usize>().map_err(|error| format!("{part}: {error}"));
            choices.insert(number(at)?, (number(digits)?, verdict));
        }
        Ok(Self(choices))
    }
}

/// Decides as a list says, and plainly elsewhere.
pub struct Listed(pub Choices);

impl Decider for Listed {
    fn decide(&mut self, at: usize, current: Option<usize>, open: &[(usize, &Step)]) -> (usize, Verdict) {
        let place = |actor: usize| open.iter().position(|(of, _)| *of == actor);
        if let Some((actor, verdict)) = self.0.0.get(&at)
            && let Some(place) = place(*actor)
        {
            return (place, *verdict);
        }
        (current.and_then(place).unwrap_or(0), Verdict::Go)
    }
}

/// Decides as another does, and takes time for it.
pub struct Slow(pub Box<dyn Decider>, pub Duration);

impl Decider for Slow {
    fn decide(&mut self, at: usize, current: Option<usize>, open: &[(usize, &Step)]) -> (usize, Verdict) {
        std::thread::sleep(self.1);
        self.0.decide(at, current, open)
    }
}

/// How often what happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Odds {
    pub faults: f64,
    pub kills: f64,
}

/// Decides by a seed: now with few switches, now with many, now by priorities that change a few times.
pub struct Seeded {
    random: StdRng,
    switch: f64,
    priorities: Option<(Vec<u64>, Vec<usize>)>,
    odds: Odds,
    /// Faults that are still to come in a row, of this kind, for an actor, or for all.
    burst: Option<(Option<usize>, Fault, u32)>,
    kills_left: u32,
}

impl Seeded {
    pub fn new(seed: u64, actors: usize, odds: Odds) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let switch = [0.02, 0.1, 0.3, 0.6][random.random_range(0..4)];
        let by_priority = random.random_bool(0.4);
        let changes = random.random_range(1..=3);
        let priorities = by_priority.then(|| {
            let of = (0..actors).map(|_| random.random_range(1_000..1_000_000)).collect();
            let at = (0..changes).map(|_| random.random_range(0..400)).collect();
            (of, at)
        });
        let is_faulty = random.random_bool(0.5);
        let odds = if is_faulty { odds } else { Odds { faults: 0.0, kills: 0.0 } };
        Self { random, switch, priorities, odds, burst: None, kills_left: 1 }
    }

    fn next(&mut self, at: usize, current: Option<usize>, open: &[(usize, &Step)]) -> usize {
        if let Some((of, changes)) = &mut self.priorities {
            let highest = |of: &[u64]| (0..open.len()).max_by_key(|place| of[open[*place].0]).unwrap_or(0);
            if changes.contains(&at) {
                // Whoever would go on goes last from now on.
                let actor = open[highest(of)].0;
                of[actor] = changes.len() as u64 - changes.iter().position(|change| *change == at).unwrap_or(0) as u64;
            }
            return highest(of);
        }
        let stays = current.and_then(|current| open.iter().position(|(actor, _)| *actor == current));
        match stays {
            Some(place) if !self.random.random_bool(self.switch) => place,
            _ => self.random.random_range(0..open.len()),
        }
    }

    fn verdict(&mut self, actor: usize, step: &Step) -> Verdict {
        if let Some((of, fault, left)) = self.burst {
            if of.is_none_or(|of| of == actor) && can_fail(step, fault) {
                self.burst = (left > 1).then_some((of, fault, left - 1));
                return Verdict::Fail(fault);
            }
            if self.random.random_bool(0.1) {
                self.burst = None;
            }
        }
        if self.kills_left > 0 && self.random.random_bool(self.odds.kills) {
            self.kills_left -= 1;
            return Verdict::Kill;
        }
        if !self.random.random_bool(self.odds.faults) {
            return Verdict::Go;
        }
        let fault = if self.random.random_bool(0.3) { Fault::Full } else { Fault::Device };
        if fault == Fault::Device && can_fail_after(step) && self.random.random_bool(0.4) {
            return Verdict::FailAfter;
        }
        if !can_fail(step, fault) {
            return Verdict::Go;
        }
        let more = self.random.random_range(0..4);
        let of = if fault == Fault::Full { None } else { Some(actor) };
        self.burst = (more > 0).then_some((of, fault, more));
        Verdict::Fail(fault)
    }
}

impl Decider for Seeded {
    fn decide(&mut self, at: usize, current: Option<usize>, open: &[(usize, &Step)]) -> (usize, Verdict) {
        let place = self.next(at, current, open);
        let verdict = self.verdict(open[place].0, open[place].1);
        (place, verdict)
    }
}

/// Whether the step may end with this error, not made.
fn can_fail(step: &Step, fault: Fault) -> bool {
    let needs_room = matches!(
        step.doing,
        Doing::Put
            | Doing::Disk(
                StepKind::MakeFolder
                    | StepKind::Create
                    | StepKind::Write
                    | StepKind::WriteRest
                    | StepKind::Link
                    | StepKind::Stored
            )
    );
    let never = matches!(
        step.doing,
        Doing::Begin | Doing::ListEnd | Doing::Disk(StepKind::Lock | StepKind::LockShared | StepKind::TryLock)
    );
    needs_room || (fault == Fault::Device && !never)
}

/// Whether the step may be made although its caller is told that it failed: requests over a network, and syncs, which tell of what was lost before.
pub fn can_fail_after(step: &Step) -> bool {
    matches!(step.doing, Doing::Put | Doing::Delete | Doing::Disk(StepKind::Sync | StepKind::SyncFolder))
}

/// Whether another actor can notice if it goes on before this step or after it.
pub fn is_shared(step: &Step) -> bool {
    let name = step.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name.starts_with(".tmp-") {
        return false;
    }
    match step.doing {
        Doing::Disk(StepKind::MakeFolder | StepKind::SyncFolder | StepKind::Stored | StepKind::Create) => false,
        Doing::Disk(StepKind::Sync) => name.ends_with(".lml"),
        _ => true,
    }
}

/// Decides as a list says, and writes down where else it could have gone.
pub struct Walked {
    pub listed: Listed,
    pub places: Arc<Mutex<Vec<(usize, usize)>>>,
}

impl Decider for Walked {
    fn decide(&mut self, at: usize, current: Option<usize>, open: &[(usize, &Step)]) -> (usize, Verdict) {
        let (place, verdict) = self.listed.decide(at, current, open);
        let mine = current.and_then(|current| open.iter().find(|(actor, _)| *actor == current));
        if mine.is_some_and(|(_, step)| is_shared(step)) {
            let others = open.iter().map(|(actor, _)| *actor).filter(|actor| Some(*actor) != current);
            self.places.lock().unwrap().extend(others.map(|actor| (at, actor)));
        }
        (place, verdict)
    }
}
