//! `doctor`: what is wrong with a table, and what to do about it.

use crate::args::DoctorArgs;
use crate::failure::Failure;
use crate::output;
use crate::queries::open;

pub(crate) async fn doctor(args: DoctorArgs) -> Result<(), Failure> {
    let report = open(&args.at).await?.doctor().await?;
    output::report(&report, args.format)?;
    if report.is_healthy() { Ok(()) } else { Err(Failure::Unhealthy) }
}
