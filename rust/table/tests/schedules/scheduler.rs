//! One actor runs at a time. At each step it asks the decider who goes on, and whether the step of that actor fails.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use lakemark_table::gate::{Gate, StepKind};

/// What an actor is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doing {
    /// It begins, or begins its next call.
    Begin,
    /// A step of the local disk.
    Disk(StepKind),
    /// A request to the object store.
    Get,
    Head,
    /// A listing begins, and ends: what happens between them may be in it or not.
    List,
    ListEnd,
    Put,
    Delete,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub doing: Doing,
    pub path: PathBuf,
}

/// What becomes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Go,
    /// It fails and was not made: the device is bad, or full.
    Fail(Fault),
    /// It was made, and the caller is told that it failed.
    FailAfter,
    /// The actor is killed before it.
    Kill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Device,
    Full,
}

impl Fault {
    fn error(self) -> Error {
        // EIO and ENOSPC.
        Error::from_raw_os_error(if self == Self::Device { 5 } else { 28 })
    }
}

/// Chooses at each step.
pub trait Decider: Send {
    /// The place in `open` of the actor that goes on, and what becomes of its step. `current` is who ran last, if it can go on.
    fn decide(&mut self, at: usize, current: Option<usize>, open: &[(usize, &Step)]) -> (usize, Verdict);
}

/// What was decided at a step.
#[derive(Clone, Debug)]
pub struct Decided {
    pub actor: usize,
    pub verdict: Verdict,
    pub step: Step,
    /// Those who could have gone on instead.
    pub others: Vec<usize>,
    /// Whether the one that ran before could have gone on.
    pub is_preempted: bool,
}

#[derive(Default)]
struct ActorState {
    /// Steps of its threads that wait, by ticket; in what this harness runs it is one at a time.
    waiting: VecDeque<(u64, Step)>,
    granted: Vec<(u64, Verdict)>,
    has_ended: bool,
    is_gone: bool,
    faults: u64,
}

struct State {
    actors: Vec<ActorState>,
    current: Option<usize>,
    decider: Box<dyn Decider>,
    trace: Vec<Decided>,
    tickets: u64,
    is_stuck: bool,
}

pub struct Scheduler {
    state: Mutex<State>,
    wake: Vec<Condvar>,
    ended: Condvar,
}

impl Scheduler {
    pub fn new(actors: usize, decider: Box<dyn Decider>) -> Arc<Self> {
        let state = State {
            actors: (0..actors).map(|_| ActorState::default()).collect(),
            current: None,
            decider,
            trace: Vec::new(),
            tickets: 0,
            is_stuck: false,
        };
        let wake = (0..actors).map(|_| Condvar::new()).collect();
        Arc::new(Self { state: Mutex::new(state), wake, ended: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits until the actor's step is chosen.
    pub fn pass(&self, actor: usize, doing: Doing, path: &Path) -> Verdict {
        let mut state = self.state();
        if state.actors[actor].is_gone {
            return Verdict::Kill;
        }
        state.tickets += 1;
        let ticket = state.tickets;
        state.actors[actor].waiting.push_back((ticket, Step { doing, path: path.to_owned() }));
        let all_wait = || state.actors.iter().all(|actor| actor.has_ended || !actor.waiting.is_empty());
        if state.current == Some(actor) || (state.current.is_none() && all_wait()) {
            self.decide(&mut state);
        }
        loop {
            let granted = &mut state.actors[actor].granted;
            if let Some(place) = granted.iter().position(|(of, _)| *of == ticket) {
                return granted.swap_remove(place).1;
            }
            state = self.wake[actor].wait(state).unwrap();
        }
    }

    fn decide(&self, state: &mut State) {
        let mut open = Vec::new();
        for (number, actor) in state.actors.iter().enumerate() {
            if let Some((_, step)) = actor.waiting.front().filter(|(_, step)| !actor.has_ended && can_go(step)) {
                open.push((number, step));
            }
        }
        if open.is_empty() {
            if state.actors.iter().any(|actor| !actor.has_ended) {
                state.is_stuck = true;
                for number in 0..state.actors.len() {
                    state.actors[number].is_gone = true;
                    self.grant(state, number, Verdict::Kill);
                }
            }
            self.ended.notify_all();
            return;
        }
        let current = state.current.filter(|current| open.iter().any(|(actor, _)| actor == current));
        let (place, verdict) = state.decider.decide(state.trace.len(), current, &open);
        let (actor, step) = (open[place].0, open[place].1.clone());
        let others = open.iter().map(|(other, _)| *other).filter(|other| *other != actor).collect();
        let is_preempted = current.is_some_and(|current| current != actor);
        state.trace.push(Decided { actor, verdict, step, others, is_preempted });
        state.current = Some(actor);
        state.actors[actor].is_gone |= verdict == Verdict::Kill;
        state.actors[actor].faults += u64::from(verdict != Verdict::Go);
        self.grant(state, actor, verdict);
    }

    fn grant(&self, state: &mut State, actor: usize, verdict: Verdict) {
        let of = &mut state.actors[actor];
        for (place, (ticket, _)) in of.waiting.drain(..).enumerate() {
            let later = if verdict == Verdict::Kill { verdict } else { Verdict::Go };
            of.granted.push((ticket, if place == 0 { verdict } else { later }));
        }
        self.wake[actor].notify_all();
    }

    /// The actor makes no more steps, and holds no lock.
    pub fn end(&self, actor: usize) {
        let mut state = self.state();
        state.actors[actor].has_ended = true;
        self.decide(&mut state);
    }

    /// Waits for all actors. Says whether none of them could go on.
    pub fn wait(&self) -> bool {
        let mut state = self.state();
        while state.actors.iter().any(|actor| !actor.has_ended) {
            state = self.ended.wait(state).unwrap();
        }
        state.is_stuck
    }

    /// Steps that were decided so far.
    pub fn now(&self) -> usize {
        self.state().trace.len()
    }

    /// Faults that the actor met so far, and whether it was killed.
    pub fn met(&self, actor: usize) -> (u64, bool) {
        let state = self.state();
        (state.actors[actor].faults, state.actors[actor].is_gone)
    }

    pub fn trace(&self) -> Vec<Decided> {
        self.state().trace.clone()
    }

    /// Whether another actor ran since that step.
    pub fn others_ran(&self, actor: usize, since: usize) -> bool {
        self.state().trace[since..].iter().any(|decided| decided.actor != actor)
    }
}

/// Whether nobody holds the lock that the step waits for. The file of a claim is gone with the claim.
fn can_go(step: &Step) -> bool {
    let is_free = |lock: fn(&File) -> bool| match File::options().write(true).open(&step.path) {
        Ok(file) => lock(&file),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    match step.doing {
        Doing::Disk(StepKind::Lock) => is_free(|file| file.try_lock().is_ok()),
        Doing::Disk(StepKind::LockShared) => is_free(|file| file.try_lock_shared().is_ok()),
        _ => true,
    }
}

/// An actor of a schedule, as its threads and its object store know it.
#[derive(Clone)]
pub struct Actor {
    pub scheduler: Arc<Scheduler>,
    pub number: usize,
}

impl Actor {
    /// Waits for a step's turn; says whether it is to fail once it was made.
    pub fn pass(&self, doing: Doing, path: &Path) -> Result<bool> {
        match self.scheduler.pass(self.number, doing, path) {
            Verdict::Go => Ok(false),
            Verdict::FailAfter => Ok(true),
            Verdict::Fail(fault) => Err(fault.error()),
            Verdict::Kill => Err(Error::other("the actor was killed")),
        }
    }
}

/// Longer than any file is young: whether one is would depend on how long a step takes.
const CLOCK_AHEAD: Duration = Duration::from_secs(60);

/// The gate of the local disk. A step that fails after it was made is remembered until then.
pub struct DiskGate {
    pub actor: Actor,
    pub fails_after: Mutex<Option<StepKind>>,
}

impl Gate for DiskGate {
    fn before(&self, kind: StepKind, path: &Path) -> Result<()> {
        let fails_after = self.actor.pass(Doing::Disk(kind), path)?;
        *self.fails_after.lock().unwrap() = fails_after.then_some(kind);
        Ok(())
    }

    fn after(&self, kind: StepKind, _path: &Path) -> Result<()> {
        match self.fails_after.lock().unwrap().take_if(|of| *of == kind) {
            Some(_) => Err(Fault::Device.error()),
            None => Ok(()),
        }
    }

    fn is_gone(&self) -> bool {
        self.actor.scheduler.met(self.actor.number).1
    }

    fn ahead(&self) -> Duration {
        CLOCK_AHEAD
    }
}
