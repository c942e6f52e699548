//! What a build shows on stderr while it runs, and how Ctrl-C stops it.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lakemark_table::{CancelFlag, Progress};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use crate::failure::{Failure, INTERRUPTED};

/// A bar on stderr; nothing is drawn where stderr is no terminal.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar that waits for the build to begin.
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let template = "{bar:30} {percent:>3}%  {human_pos} of {human_len} rows  {per_sec}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }
}

impl Progress for Bar {
    fn start(&self, total_rows: u64) {
        // A command may have several things to read, one after the other.
        self.0.reset();
        self.0.set_length(total_rows);
    }

    fn advance(&self, rows: u64) {
        self.0.inc(rows);
    }

    fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// Listens for Ctrl-C as long as it lives. The first one asks the build to commit what is finished and to stop. The second one ends the
/// process, which costs what was not committed.
pub struct CtrlC(JoinHandle<()>);

impl CtrlC {
    /// Sets `flag` at the first Ctrl-C. Listens from this call on, not from when the runtime gets to it.
    pub fn sets(flag: CancelFlag) -> Result<Self, Failure> {
        let mut interrupts = signal(SignalKind::interrupt())?;
        Ok(Self(tokio::spawn(async move {
            if interrupts.recv().await.is_none() {
                return;
            }
            flag.cancel();
            let _ = writeln!(
                io::stderr(),
                "stopping once what is finished is committed; press Ctrl-C again to stop at once"
            );
            if interrupts.recv().await.is_some() {
                std::process::exit(INTERRUPTED);
            }
        })))
    }
}

impl Drop for CtrlC {
    fn drop(&mut self) {
        self.0.abort();
    }
}
