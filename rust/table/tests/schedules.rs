//! Interleavings on purpose: actors that share nothing but a folder run the real code of writes, flushes, migrations, publications, vacuums,
//! builds, compactions and reads, and each of their steps on the disk or request to a store waits until a scheduler lets it happen.
//!
//! ```text
//! actor 0  ──step──▶ waits ────────────────▶ goes on ──▶ …       one of them runs at a time; who is next, and whether its step
//! actor 1  ──────────────▶ waits ▶ fails ▶ waits ──────▶ …       fails, or the actor dies before it, follows from a seed
//! ```
//!
//! `LAKEMARK_SCHEDULES` is how many random schedules there are, `LAKEMARK_SCHEDULE_SEED` the first seed, `LAKEMARK_SCHEDULE_ACTORS` how many
//! actors they have (2 to 4 otherwise), `LAKEMARK_SCHEDULE_WALK` how many schedules of each pair are walked through. A schedule that is
//! wrong is told as a text that `LAKEMARK_SCHEDULE` takes, to run just that one.
#![cfg(test)]
#![cfg(feature = "failpoints")]
#![expect(clippy::disallowed_methods, reason = "tests read the clock")]

#[path = "schedules/check.rs"]
mod check;
#[path = "schedules/decide.rs"]
mod decide;
#[path = "schedules/scenes.rs"]
mod scenes;
#[path = "schedules/scheduler.rs"]
mod scheduler;
#[path = "schedules/store.rs"]
mod store;
#[path = "told/mod.rs"]
mod told;
#[path = "schedules/world.rs"]
mod world;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use self::check::check;
use self::decide::{Choices, Listed, Seeded, Slow, Walked};
use self::scenes::{Scene, drawn, pairs};
use self::scheduler::{Decided, Decider, Verdict};
use self::store::Outside;
use self::world::{Run, Start, Template};

/// Tables that schedules begin with, made once.
struct Templates(BTreeMap<(bool, Start), Template>);

impl Templates {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut templates = BTreeMap::new();
        for is_delta in [false, true] {
            for start in [Start::Buffered, Start::Due, Start::Migrated, Start::Full] {
                templates.insert((is_delta, start), runtime.block_on(Template::new(is_delta, start)));
            }
        }
        Self(templates)
    }
}

/// What a schedule came to.
struct Played {
    trace: Vec<Decided>,
    problem: Option<String>,
}

/// Plays one schedule and looks whether all is right.
fn play(templates: &Templates, scene: &Scene, decider: Box<dyn Decider>, outside: &Outside) -> Played {
    let template = &templates.0[&(scene.is_delta, scene.start)];
    let folder = template.copy();
    let root = std::fs::canonicalize(folder.path()).unwrap();
    let run = Run { folder: &root, is_delta: scene.is_delta, calls: &scene.calls, outside };
    let (scheduler, records, is_stuck) = run.play(decider);
    let trace = scheduler.trace();
    if is_stuck {
        return Played { trace, problem: Some("all actors wait for each other".to_owned()) };
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let checked = runtime.block_on(check(template, &root, &records, scene.allowed, scene.is_thorough));
    let with_records =
        |problem| format!("{problem}\n{}", records.iter().map(|record| format!("  {record:?}\n")).collect::<String>());
    Played { trace, problem: checked.err().map(with_records) }
}

/// The fewest choices that still give a problem: one after the other is left out.
fn smallest(
    templates: &Templates,
    scene: &Scene,
    mut choices: Choices,
    outside: &Outside,
) -> (Choices, Option<String>) {
    let fails = |choices: &Choices| play(templates, scene, Box::new(Listed(choices.clone())), outside).problem;
    let mut problem = fails(&choices);
    if problem.is_none() {
        return (choices, None);
    }
    let mut size = choices.0.len().div_ceil(2).max(1);
    let mut left = 150;
    loop {
        let all: Vec<usize> = choices.0.keys().copied().collect();
        let mut is_smaller = false;
        for part in all.chunks(size) {
            let mut fewer = choices.clone();
            fewer.0.retain(|at, _| !part.contains(at));
            left -= 1;
            if left > 0
                && let Some(found) = fails(&fewer)
            {
                (choices, problem, is_smaller) = (fewer, Some(found), true);
            }
        }
        if left <= 0 || (size == 1 && !is_smaller) {
            return (choices, problem);
        }
        size = size.div_ceil(2).max(1);
    }
}

/// The problem, and how to see it again.
fn report(templates: &Templates, scene: &Scene, trace: &[Decided], problem: &str, outside: &Outside) -> String {
    let (choices, again) = smallest(templates, scene, Choices::of(trace), outside);
    let note = if again.is_some() { "" } else { " (not seen again with these choices)" };
    let played = play(templates, scene, Box::new(Listed(choices.clone())), outside);
    let steps = played.trace.iter().enumerate().filter(|(at, _)| choices.0.keys().any(|of| at.abs_diff(*of) < 3));
    let steps: String = steps
        .map(|(at, of)| {
            format!("  {at}: {} {:?} {:?} {}\n", of.actor, of.verdict, of.step.doing, of.step.path.display())
        })
        .collect();
    format!("{}\nLAKEMARK_SCHEDULE='{} {choices}'{note}\n{steps}", again.as_deref().unwrap_or(problem), scene.name)
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok().filter(|text| !text.is_empty()).map(|text| text.parse().unwrap())
}

/// Plays the requested schedule alone; says whether there is one.
fn plays_requested(templates: &Templates) -> bool {
    let Ok(text) = std::env::var("LAKEMARK_SCHEDULE") else { return false };
    let (name, choices) = text.split_once(' ').unwrap_or((&text, ""));
    let scene = pairs().into_iter().find(|scene| scene.name == name).unwrap_or_else(|| {
        let (seed, actors) = name.split_once('/').unwrap();
        drawn(seed.parse().unwrap(), actors.parse().unwrap())
    });
    let played = play(templates, &scene, Box::new(Listed(choices.parse().unwrap())), &Outside::start());
    for (at, of) in played.trace.iter().enumerate() {
        println!("{at}: {} {:?} {:?} {}", of.actor, of.verdict, of.step.doing, of.step.path.display());
    }
    assert_eq!(played.problem.unwrap_or_default(), "");
    true
}

/// Plays schedules on all cores, some on each: the actors of a schedule wait for each other most of the time.
fn in_parallel(work: impl Fn(usize, &Outside) + Sync, count: usize) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 * std::thread::available_parallelism().map_or(2, Into::into) {
            scope.spawn(|| {
                let outside = Outside::start();
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= count {
                        break;
                    }
                    work(number, &outside);
                }
            });
        }
    });
}

#[test]
fn whoever_goes_first_and_whatever_fails_rows_are_right() {
    let templates = Templates::new();
    if plays_requested(&templates) {
        return;
    }
    let count = number("LAKEMARK_SCHEDULES").unwrap_or(300);
    let first = number("LAKEMARK_SCHEDULE_SEED").unwrap_or(1);
    let actors = number("LAKEMARK_SCHEDULE_ACTORS");
    let (started, steps, problems) = (Instant::now(), AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    in_parallel(
        |number, outside| {
            let seed = (first + number) as u64;
            let scene = drawn(seed, actors.unwrap_or(2 + number % 3));
            let played = play(&templates, &scene, Box::new(Seeded::new(seed, scene.calls.len(), scene.odds)), outside);
            steps.fetch_add(played.trace.len(), Ordering::SeqCst);
            if let Some(problem) = played.problem {
                let is_first = problems.lock().unwrap().len() < 5;
                let text =
                    if is_first { report(&templates, &scene, &played.trace, &problem, outside) } else { problem };
                problems.lock().unwrap().insert(seed, text);
            }
        },
        count,
    );
    let (seconds, problems) = (started.elapsed().as_secs_f64(), problems.into_inner().unwrap());
    println!(
        "{count} schedules, {} steps, {seconds:.1} s: {:.1} a second; {} problems",
        steps.into_inner(),
        count as f64 / seconds,
        problems.len()
    );
    let mut kinds: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    for (seed, problem) in &problems {
        kinds.entry(kind_of(problem)).or_insert((0, *seed)).0 += 1;
    }
    for (kind, (times, seed)) in kinds {
        println!("{times} times, first with seed {seed}: {kind}");
    }
    let shown: Vec<String> = problems.iter().take(10).map(|(seed, text)| format!("seed {seed}: {text}")).collect();
    assert!(problems.is_empty(), "{} of {count}\n{}", problems.len(), shown.join("\n"));
}

/// What problems with other keys and places have in common.
fn kind_of(problem: &str) -> String {
    let line = problem.lines().next().unwrap_or_default();
    let from = line.find("call: ").unwrap_or(0);
    let is_place = |word: &&str| word.starts_with(".tmp") || word.len() > 30;
    let words: Vec<&str> = line[from..].split([' ', '/']).filter(|word| !is_place(word)).collect();
    let text: String = words.join(" ").chars().filter(|letter| !letter.is_ascii_digit()).collect();
    let text = text.replace("outcome: ", "").replace("from: , to: , ", "");
    text.chars().take(140).collect()
}

/// Every schedule of a pair with up to two switches that need not be, as far as the count goes: those with fewer switches first.
fn walk(
    templates: &Templates,
    scene: &Scene,
    most: usize,
    outside: &Outside,
) -> (usize, bool, Option<(usize, String)>) {
    let mut open = VecDeque::from([Choices::default()]);
    // Also with the second actor first.
    open.push_back(Choices(BTreeMap::from([(0, (1, Verdict::Go))])));
    let mut played = 0;
    // Of a count that is too small for all of them it is not always the first.
    let mut random = StdRng::seed_from_u64(number("LAKEMARK_SCHEDULE_SEED").unwrap_or(1) as u64);
    while let Some(choices) = open.pop_front() {
        if played == most {
            return (played, false, None);
        }
        played += 1;
        let places = Arc::new(Mutex::new(Vec::new()));
        let decider = Walked { listed: Listed(choices.clone()), places: Arc::clone(&places) };
        let found = play(templates, scene, Box::new(decider), outside);
        if let Some(problem) = found.problem {
            let text = report(templates, scene, &found.trace, &problem, outside);
            return (played, false, Some((played, text)));
        }
        let switches = choices.0.keys().filter(|at| **at > 0).count();
        if switches < 2 {
            let last = choices.0.keys().last().copied().unwrap_or(0);
            let mut places = places.lock().unwrap().clone();
            places.retain(|(at, _)| *at > last);
            places.shuffle(&mut random);
            for (at, actor) in places {
                let mut more = choices.clone();
                more.0.insert(at, (actor, Verdict::Go));
                open.push_back(more);
            }
        }
    }
    (played, true, None)
}

#[test]
fn every_short_schedule_of_two_actors_is_right() {
    let templates = Templates::new();
    if std::env::var("LAKEMARK_SCHEDULE").is_ok() {
        return;
    }
    let most = number("LAKEMARK_SCHEDULE_WALK").unwrap_or(15);
    let only = std::env::var("LAKEMARK_SCHEDULE_PAIR").unwrap_or_default();
    let scenes: Vec<Scene> = pairs().into_iter().filter(|scene| scene.name.contains(&only)).collect();
    let problems = Mutex::new(Vec::new());
    in_parallel(
        |number, outside| {
            let scene = &scenes[number];
            let (played, is_all, problem) = walk(&templates, scene, most, outside);
            let whole = if is_all { ", all of them" } else { "" };
            match problem {
                None => println!("{}: {played} schedules{whole}, 0 problems", scene.name),
                Some((at, text)) => {
                    println!("{}: wrong at schedule {at}", scene.name);
                    problems.lock().unwrap().push(format!("{}, schedule {at}: {text}", scene.name));
                }
            }
        },
        scenes.len(),
    );
    let problems = problems.into_inner().unwrap();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Otherwise a schedule that was found could not be run again. Nor may anything depend on how long a step takes.
#[test]
fn a_seed_gives_the_same_schedule_again() {
    let templates = Templates::new();
    if std::env::var("LAKEMARK_SCHEDULE").is_ok() {
        return;
    }
    let outside = Outside::start();
    for seed in 1..=8 {
        let steps = |decider: Box<dyn Decider>| -> (Choices, Vec<_>) {
            let played = play(&templates, &drawn(seed, 3), decider, &outside);
            let steps = played.trace.iter().map(|of| (of.actor, of.verdict, of.step.doing)).collect();
            (Choices::of(&played.trace), steps)
        };
        let odds = drawn(seed, 3).odds;
        let (choices, first) = steps(Box::new(Seeded::new(seed, 3, odds)));
        let (_, second) = steps(Box::new(Seeded::new(seed, 3, odds)));
        assert_eq!(first, second, "seed {seed}");
        let (_, listed) = steps(Box::new(Listed(choices.to_string().parse().unwrap())));
        assert_eq!(first, listed, "seed {seed}");
        let (_, slow) = steps(Box::new(Slow(Box::new(Seeded::new(seed, 3, odds)), Duration::from_millis(2))));
        assert_eq!(first, slow, "seed {seed}, slowly");
    }
}
