//! `mayfly doctor`: what of this host is as mayfly needs it, what is not, what that means, and how to mend it.
//!
//! Each check looks at one thing and gives findings ([`finding`]); what several of them need is looked at once
//! ([`examine`]). A check whose ground is missing says so as `skipped`, and the rest goes on. Nothing is changed on the
//! host but what a run changes too: sandboxes are made and removed, and a database that is there is brought up to date.

mod database;
mod engine;
mod finding;
mod floors;
mod host;
mod images;
mod leftovers;
mod preflight;
mod probes;
mod report;
mod runtimes;
mod settings;
mod space;

use std::{process::ExitCode, sync::Arc, time::Duration};

use mayfly_core::{chain::Chain, clock::Clock};
use mayfly_sandbox::engine::{DEFAULT_ADDRESS, Engine, EngineFacts};
use mayfly_settings::Settings;
use mayfly_telemetry::SystemClock;

pub(crate) use self::preflight::host_check;
use self::{finding::Finding, report::Report};
#[cfg(feature = "fleet")]
pub(crate) use self::{preflight::names as preflight_names, probes::verdicts};
use crate::{
    args::{Common, DoctorArgs},
    context, exit,
    failure::Failure,
    progress::Step,
    terminal::print,
};

/// How long the host's own files may take to be read: a network file system may never answer.
const LOCAL_LIMIT: Duration = Duration::from_secs(5);

/// What several checks look at.
struct Examined {
    settings: Settings,
    clock: Arc<dyn Clock>,
    /// The engine, where one answers.
    engine: Option<Engine>,
    /// Whether the engine's host is this one.
    local: Locality,
}

/// Whether the engine's containers run on the kernel that this process sees.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Locality {
    Local,
    /// On the same kernel, in a container of its own, as it seems: its files are not the host's, but for the kernel's.
    SameKernel,
    /// Why it can't be taken for this host.
    Elsewhere(String),
}

pub(crate) async fn doctor(common: &Common, args: DoctorArgs) -> Result<ExitCode, Failure> {
    let report = examine(common, &args).await;
    let text = if args.json {
        report.to_json()
    } else {
        report.to_text()
    };
    print(&text)?;
    Ok(ExitCode::from(if report.is_healthy() {
        exit::OK
    } else {
        exit::UNFIT
    }))
}

async fn examine(common: &Common, args: &DoctorArgs) -> Report {
    let step = (!args.json).then(|| Step::begin("looking at settings, database and host".to_owned()));
    let (settings, mut findings) = settings::check(common);
    let (store, found) = database::check(&settings).await;
    findings.extend(found);
    let (engine, found) = engine::reach(&settings).await;
    findings.extend(found);
    let local = match &engine {
        Some(engine) => locality(engine.facts(), context::address(&settings.sandbox)),
        None => Locality::Elsewhere("no engine answers".to_owned()),
    };
    let examined = Examined {
        settings,
        clock: Arc::new(SystemClock),
        engine,
        local,
    };
    if let Some(engine) = &examined.engine {
        findings.extend(engine::check(engine.facts()));
    }
    findings.extend(space::check(&examined).await);
    let local = examined.local.clone();
    let engine_facts = examined.engine.as_ref().map(Engine::facts);
    let uids = host::uids_of_sandboxes(examined.settings.sandbox.first_uid, engine_facts);
    findings.extend(bounded("host", move || host::check(local, uids)).await);
    if let Some(engine) = &examined.engine {
        findings.push(preflight::posture(engine.facts(), &findings));
    }
    let (image, found) = images::check(&examined, store.as_deref()).await;
    findings.extend(found);
    drop(step);
    let tested = runtimes::check(&examined, image.as_ref(), args).await;
    findings.extend(tested.findings);
    Report::new(findings, tested.probes)
}

/// A check of the host's own files, within a bound.
async fn bounded(area: &'static str, check: impl FnOnce() -> Vec<Finding> + Send + 'static) -> Vec<Finding> {
    match tokio::time::timeout(LOCAL_LIMIT, tokio::task::spawn_blocking(check)).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => vec![Finding::skipped(
            area,
            format!("the check has failed: {}", Chain(&error)),
        )],
        Err(_) => vec![Finding::skipped(
            area,
            format!(
                "files of this host were not read within {} s",
                LOCAL_LIMIT.as_secs()
            ),
        )],
    }
}

/// Two hosts with one name and one kernel release are not told apart; an engine in a virtual machine of this host is. A process
/// in a container has another name: it is on the engine's kernel where that is behind a socket, of the same release and with the
/// same memory to the byte.
fn locality(facts: &EngineFacts, address: Option<&str>) -> Locality {
    let system = rustix::system::uname();
    let (name, release) = (
        system.nodename().to_string_lossy(),
        system.release().to_string_lossy(),
    );
    let same_kernel = facts.kernel == release;
    if same_kernel && facts.details.host_name == name {
        return Locality::Local;
    }
    let by_socket = address.unwrap_or(DEFAULT_ADDRESS).starts_with("unix://");
    if same_kernel && by_socket && host::memory_bytes() == Some(facts.memory_bytes) {
        return Locality::SameKernel;
    }
    Locality::Elsewhere(format!(
        "the engine is on another host ({}, kernel {})",
        facts.details.host_name, facts.kernel
    ))
}

/// Where the engine is looked for.
fn address(settings: &Settings) -> &str {
    context::address(&settings.sandbox).unwrap_or(DEFAULT_ADDRESS)
}
