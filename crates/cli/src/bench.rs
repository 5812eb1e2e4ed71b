//! `mayfly bench`: how long a run takes and how many there are a second, beside what the engine itself can do, all in
//! one invocation.
//!
//! `control_plane` measures a fleet without its sandboxes. For the others start with `ground`, which is what is measured
//! and what has to be removed again, and `http`, by which it is reached; then `latency` and `throughput`, which measure.
//! `report` is what they print as JSON, `text` and `page` show it to people.

mod args;
#[cfg(feature = "fleet")]
mod control_plane;
mod docker;
mod grid;
mod ground;
#[cfg(feature = "fleet")]
mod http;
mod latency;
mod machine;
mod page;
mod report;
mod stats;
mod text;
mod throughput;

use std::{path::Path, process::ExitCode, sync::Arc};

use tokio_util::sync::CancellationToken;

use self::{
    ground::{Ground, Plan},
    report::Report,
};
use crate::{
    context::Session,
    embedded::Requests,
    exit,
    failure::Failure,
    run::read,
    terminal::{print, say},
};

pub(crate) use args::{BenchCommand, LatencyArgs, ThroughputArgs};
#[cfg(feature = "fleet")]
pub(crate) use {args::ControlPlaneArgs, control_plane::null_executor};

/// `mayfly bench latency`.
pub(crate) async fn latency(session: &Session, args: LatencyArgs) -> Result<ExitCode, Failure> {
    until_stopped(async |stop| {
        let plan = Plan::of(session, &args.subject);
        let plan = stop
            .run_until_cancelled(plan)
            .await
            .unwrap_or_else(|| Err(interrupted()))?;
        let ground = Ground::lay(session, plan, 1).await?;
        let measured = latency::measure(&ground, &args, &*session.clock, stop).await;
        ground.clear().await?;
        show(&Report::Latency(measured?), args.json)
    })
    .await
}

/// `mayfly bench throughput`.
pub(crate) async fn throughput(session: &Session, args: ThroughputArgs) -> Result<ExitCode, Failure> {
    until_stopped(async |stop| {
        let plan = Plan::of(session, &args.subject);
        let plan = stop
            .run_until_cancelled(plan)
            .await
            .unwrap_or_else(|| Err(interrupted()))?;
        let ground = Arc::new(Ground::lay(session, plan, args.slots).await?);
        let measured = throughput::measure(&ground, &args, &*session.clock, stop).await;
        Arc::into_inner(ground)
            .expect("every block waits for its workers, and they hold the others")
            .clear()
            .await?;
        show(&Report::Throughput(measured?), args.json)
    })
    .await
}

/// `mayfly bench control-plane`.
#[cfg(feature = "fleet")]
pub(crate) async fn control_plane(
    common: &crate::args::Common,
    args: ControlPlaneArgs,
) -> Result<ExitCode, Failure> {
    until_stopped(async |stop| {
        let measured = control_plane::measure(common, &args, stop).await?;
        show(&Report::ControlPlane(Box::new(measured)), args.json)
    })
    .await
}

/// `mayfly bench render`.
pub(crate) fn render(file: &Path, short: bool) -> Result<ExitCode, Failure> {
    let text = read(file)?;
    let unfit = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", file.display()));
    let reports = Report::read(&text).map_err(|error| unfit(&error))?;
    print(&if short {
        page::short(&reports)
    } else {
        page::page(&reports)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs it to its end. When this process is asked to end, `stop` says so: what runs is finished, and everything that
/// was made is removed, before it returns.
async fn until_stopped(
    work: impl AsyncFnOnce(&CancellationToken) -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    let (stop, mut requests) = (CancellationToken::new(), Requests::new());
    let mut work = std::pin::pin!(work(&stop));
    let done = tokio::select! {
        done = &mut work => done,
        () = requests.next() => {
            say("mayfly: stopping; what runs is finished, and what was made is removed");
            stop.cancel();
            work.await
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn interrupted() -> Failure {
    Failure::new(
        exit::STOPPED,
        anyhow::anyhow!("the bench was interrupted; there are no figures"),
    )
}

fn show(report: &Report, json: bool) -> Result<(), Failure> {
    if json {
        let json =
            serde_json::to_string_pretty(report).map_err(|error| Failure::new(exit::INTERNAL, error))?;
        print(&format!("{json}\n"))
    } else {
        print(&text::text(report))
    }
}
