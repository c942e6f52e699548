//! Where statements are planned: on threads of their own, so many at a time, and for so long.
//!
//! A planner does not let others come while it works. On the threads that serve clients, a few statements that are planned for minutes
//! would keep all clients waiting. This holds for queries and changes alike: the session has the plans of changes made here, too.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use lakemark_datafusion::PlanningPlace;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tonic::Status;

use crate::error::{come_again, through_engine};

/// Statements that are planned at a time on each core. They wait for storage, too.
const PLACES_PER_CORE: usize = 4;
/// How long a statement is waited for while it is planned.
const PLANNED_WITHIN: Duration = Duration::from_secs(60);

/// The places where statements are planned; clones are the same ones.
#[derive(Clone)]
pub(crate) struct Planning {
    places: Arc<Semaphore>,
    within: Duration,
}

impl Default for Planning {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, Into::into);
        Self { places: Arc::new(Semaphore::new(PLACES_PER_CORE * cores)), within: PLANNED_WITHIN }
    }
}

impl Planning {
    /// Places of which none is ever free.
    #[cfg(test)]
    pub(crate) fn closed() -> Self {
        Self { places: Arc::new(Semaphore::new(0)), within: Duration::from_millis(1) }
    }

    /// These places for the plans of changes, which a session makes as it runs them.
    pub(crate) fn place_for_changes(&self) -> PlanningPlace {
        let planning = self.clone();
        PlanningPlace::new(move |plan| {
            let planning = planning.clone();
            async move { planning.run(move || plan).await.unwrap_or_else(|refused| Err(through_engine(refused))) }
                .boxed()
        })
    }

    /// Does what plans a statement, and gives what it gives. Work that takes too long is not waited for; its place is taken until it ends.
    pub(crate) async fn run<T, F>(&self, work: impl FnOnce() -> F + Send + 'static) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = T>,
    {
        let seconds = self.within.as_secs();
        let place = tokio::time::timeout(self.within, Arc::clone(&self.places).acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            let message = format!("the server is busy: nobody could plan the statement within {seconds} s; try again");
            return Err(come_again(message, self.within));
        };
        let runtime = Handle::current();
        let planned = tokio::task::spawn_blocking(move || {
            let planned = runtime.block_on(work());
            drop(place);
            planned
        });
        match tokio::time::timeout(self.within, planned).await {
            Ok(Ok(planned)) => Ok(planned),
            Ok(Err(error)) => Err(Status::internal(format!("the statement could not be planned: {error}"))),
            Err(_) => Err(Status::invalid_argument(format!(
                "the statement was not planned within {seconds} s: join fewer relations at a time, or write it as several statements"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    async fn bug() {
        panic!("a bug");
    }

    #[tokio::test]
    async fn what_takes_too_long_to_plan_is_refused_and_others_are_planned() {
        let planning = Planning { places: Arc::new(Semaphore::new(1)), within: Duration::from_millis(1) };
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let endless = planning.run(move || async move { ended.await.is_ok() }).await.unwrap_err();
        assert!(
            endless.code() == Code::InvalidArgument && endless.message().contains("was not planned"),
            "{endless:?}"
        );
        let refused = planning.run(|| async { 1 }).await.unwrap_err();
        assert!(refused.code() == Code::ResourceExhausted && refused.message().contains("busy"), "{refused:?}");
        end.send(()).unwrap();
        let patient = Planning { places: Arc::clone(&planning.places), within: Duration::from_secs(60) };
        assert_eq!(patient.run(|| async { 1 }).await.unwrap(), 1);
        let found = patient.run(bug).await.unwrap_err();
        assert!(found.code() == Code::Internal && found.message().contains("could not be planned"), "{found:?}");
    }
}
