//! Ctrl-C and SIGTERM, for commands that run until somebody stops them.

use std::io::{self, Write};

use lakemark_table::CancelFlag;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::failure::{Failure, INTERRUPTED};

/// Listens for Ctrl-C and SIGTERM as long as it lives. The first one asks the command to end, a second Ctrl-C ends the process.
pub(crate) struct Stop {
    requested: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Stop {
    /// Sets `flag` at the first signal. Listens from this call on.
    pub(crate) fn listen(flag: CancelFlag) -> Result<Self, Failure> {
        let (mut interrupts, mut terms) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let (sender, requested) = watch::channel(false);
        let task = tokio::spawn(async move {
            tokio::select! {
                _ = interrupts.recv() => {}
                _ = terms.recv() => {}
            }
            flag.cancel();
            sender.send_replace(true);
            if interrupts.recv().await.is_some() {
                let _ = writeln!(io::stderr(), "stopped at once");
                std::process::exit(INTERRUPTED);
            }
        });
        Ok(Self { requested, task })
    }

    /// Whether a stop was requested.
    pub(crate) fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Ends when a stop was requested.
    pub(crate) async fn requested(&self) {
        let mut requested = self.requested.clone();
        // Nobody can request one any more if the other end is gone.
        if requested.wait_for(|is_requested| *is_requested).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.task.abort();
    }
}
