//! `index watch`: looks at tables from time to time and builds what is new, until somebody stops it.

use futures::future::join_all;
use lakemark_table::watch::{Look, Watch};
use lakemark_table::{BuildOptions, CancelFlag, ErrorKind, Report};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::args::{TableArgs, WatchArgs};
use crate::failure::Failure;
use crate::job::{Job, done};
use crate::log::{Log, object};
use crate::maintain::{build_options, merging};
use crate::queries::open;
use crate::stop::Stop;

pub(crate) async fn watch(args: WatchArgs, log: Log) -> Result<(), Failure> {
    check(&args)?;
    let cancel = CancelFlag::new();
    let stop = Stop::listen(cancel.clone())?;
    let job = Job::begin(&args.job, log).await?;
    let mut watches = Vec::new();
    for table in &args.tables {
        let at = TableArgs {
            table: table.clone(),
            store: args.store.clone(),
            storage: args.storage.clone(),
            profile: args.profile.clone(),
        };
        let table = open(&at).await?;
        table.check_open_for_changes()?;
        job.add(&table);
        let progress = job.progress("build", &table, args.tuning.quiet);
        let merging = merging(args.no_merge);
        let options = BuildOptions { progress, merging, ..build_options(None, &args.tuning, cancel.clone()) };
        watches.push(Watch::new(table, options, args.every));
    }
    // One build at a time: each of them takes all cores, and the memory that it may.
    let turn = Semaphore::new(1);
    let followed = watches.into_iter().map(|watch| follow(watch, args.once, &job, &stop, &turn));
    let ended = join_all(followed).await;
    job.write();
    match ended.into_iter().max() {
        None | Some(Ended::Well) => Ok(()),
        Some(Ended::Incomplete) => Err(Failure::Incomplete(
            "some files could not be indexed, and queries scan them. Mend or remove them; the next look tries them again."
                .to_owned(),
        )),
        Some(Ended::Failed) => Err(Failure::Reported),
    }
}

/// Fails where the tables cannot be told apart.
fn check(args: &WatchArgs) -> Result<(), Failure> {
    if args.store.is_some() && args.tables.len() > 1 {
        return Err(Failure::Error(
            "a store belongs to one table: give --store with one TABLE, and watch the others by a command of their own"
                .to_owned(),
        ));
    }
    let mut seen = std::collections::HashSet::new();
    match args.tables.iter().find(|table| !seen.insert(*table)) {
        Some(twice) => Err(Failure::Error(format!("the table {twice} is given twice; give it once"))),
        None => Ok(()),
    }
}

/// How the last look ended, the worse the greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ended {
    /// As it should, or somebody stopped it.
    Well,
    /// Some files could not be indexed.
    Incomplete,
    /// With an error, which was told.
    Failed,
}

/// Looks at a table again and again.
async fn follow(mut watch: Watch, once: bool, job: &Job, stop: &Stop, turn: &Semaphore) -> Ended {
    loop {
        let looked = {
            let _turn = turn.acquire().await;
            if stop.is_requested() {
                return Ended::Well;
            }
            watch.look().await
        };
        let pause = watch.pause();
        let ended = match &looked {
            Ok(look) => {
                tell(&watch, look, once, job);
                if look.failed() == 0 { Ended::Well } else { Ended::Incomplete }
            }
            Err(error) if error.kind() == ErrorKind::Cancelled => return Ended::Well,
            Err(error) => {
                let table = watch.table().location();
                let next = if once { String::new() } else { format!("; looking again in {} s", pause.as_secs()) };
                let fields = json!({
                    "verb": "watch",
                    "table": table,
                    "message": error.to_string(),
                    "seconds_to_next": (!once).then_some(pause.as_secs_f64()),
                });
                job.problem("failed", &format!("error: {table}: {error}{next}"), object(fields));
                Ended::Failed
            }
        };
        job.write();
        if once {
            return ended;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.requested() => return Ended::Well,
        }
    }
}

/// Tells what a look did. A look that found nothing to do says nothing, unless it is the only one.
fn tell(watch: &Watch, look: &Look, once: bool, job: &Job) {
    let table = watch.table();
    let lag = look.coverage.lag(lakemark_table::now()).as_secs();
    let share = (look.coverage.share() * 100.0).floor();
    match &look.report {
        Some(report) => {
            let built = report.describe().to_string().replace('\n', "; ");
            let text = format!("{}: {built}; covered {share} %, lag {lag} s", table.location());
            job.line("done", &text, done("watch", table, report));
        }
        None if once => {
            let text = format!("{}: nothing to build; covered {share} %, lag {lag} s", table.location());
            job.line("done", &text, done("watch", table, &()));
        }
        None => {}
    }
}
