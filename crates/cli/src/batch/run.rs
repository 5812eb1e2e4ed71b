//! `mayfly batch run` and `mayfly batch resume`, up to the point where jobs run.

use std::{collections::HashMap, num::NonZero, path::PathBuf, process::ExitCode};

use mayfly_core::{
    id::{BatchId, TenantId},
    image::{ImageName, ImagePin},
};
use mayfly_settings::PoolSettings;
use mayfly_store::{
    records::{BatchRecord, NewBatch},
    seam::MAX_PAGE,
};

use super::{
    input::{Checked, Input},
    lock::{self, BatchLock},
    progress::Progress,
    results::Results,
    summary,
    work::{Accept, Work},
};
use crate::{
    args::{BatchResumeArgs, BatchRunArgs, Pace},
    context::Session,
    exit,
    failure::Failure,
    run::asked,
    terminal::{say, shown},
    uploads::{self, Asked},
};

/// Most slots where nobody says how many.
const DEFAULT_SLOTS: usize = 8;
/// Links that were left out are named up to this many.
const LEFT_OUT_SAID: usize = 20;

/// A batch that is about to be seen through.
pub(super) struct Plan<'a> {
    pub(super) session: &'a Session,
    pub(super) pace: &'a Pace,
    pub(super) id: BatchId,
    /// What it is made from, for people.
    pub(super) input: String,
    /// How many items it has.
    pub(super) items: u64,
    pub(super) slots: u32,
    pub(super) pool: PoolSettings,
    /// Held until the batch is seen through, or stopped.
    pub(super) _lock: BatchLock,
}

/// How many jobs run at a time, and which pool of warm sandboxes is kept beside them.
fn room(session: &Session, pace: &Pace) -> Result<(u32, PoolSettings), Failure> {
    let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
    let default = u32::try_from(cpus.min(DEFAULT_SLOTS)).unwrap_or(1);
    let slots = pace.slots.unwrap_or(default);
    let settings = &session.settings.pool;
    let pool = settings.with_size(pace.pool.unwrap_or(settings.size))?;
    pool.fits_beside(slots)?;
    Ok((slots, pool))
}

pub(super) async fn run(session: &Session, args: BatchRunArgs) -> Result<ExitCode, Failure> {
    let (slots, pool) = room(session, &args.pace)?;
    let Asked { spec: base, large } = asked(&args.job, &session.settings.image.default)?;
    // They are left to be swept: the batch may go on another day.
    uploads::keep(session, &large).await?;
    let input = Input::open(&args.input)?.with_uploads(uploads::known(session).await?);
    say_left_out(&args.pace, &input);
    let checked = input.check(&base, &session.settings.policy)?;
    let id = args.batch.unwrap_or_else(BatchId::new);
    // In this order: whatever may go wrong goes wrong before anything is accepted.
    let pins = pins(session, &checked).await?;
    let lock = lock::take(&session.settings.store.path, id).await?;
    let known = session.store.find_batch(TenantId::LOCAL, id).await?;
    if let Some(known) = &known {
        is_the_same(session, known, &checked, &input).await?;
    }
    let results = Results::open(args.pace.out.as_deref(), id)?;
    let plan = Plan {
        session,
        pace: &args.pace,
        id,
        input: input.name.clone(),
        items: checked.items,
        slots,
        pool,
        _lock: lock,
    };
    if known.is_none() {
        let batch = NewBatch {
            id,
            tenant: TenantId::LOCAL,
            input: input.name.clone(),
        };
        session.store.begin_batch(batch, session.clock.now()).await?;
    }
    let accept = match known.as_ref().and_then(|known| known.items) {
        Some(_) => None,
        None => Some(Accept {
            input: &input,
            base: &base,
            pins: &pins,
        }),
    };
    see_through(plan, results, accept).await
}

pub(super) async fn resume(session: &Session, args: BatchResumeArgs) -> Result<ExitCode, Failure> {
    let id = args.id;
    let (slots, pool) = room(session, &args.pace)?;
    let lock = lock::take(&session.settings.store.path, id).await?;
    let batch = find(session, id).await?;
    let Some(items) = batch.items else {
        return Err(Failure::usage(format!(
            "batch {id} was stopped while its items were being accepted: `mayfly batch run {} --batch {id}` goes on with \
             it, and no item is accepted twice",
            quoted(&batch.input)
        )));
    };
    let results = Results::open(args.pace.out.as_deref(), id)?;
    let plan = Plan {
        session,
        pace: &args.pace,
        id,
        input: batch.input.clone(),
        items,
        slots,
        pool,
        _lock: lock,
    };
    if batch.over() == items {
        // Nothing is left to be run, so that no engine is needed either.
        let progress = Progress::begin(plan.pace, items);
        let ended = Work::new(&plan, &progress, results).write_all().await;
        return summary::say(&plan, &progress, ended);
    }
    see_through(plan, results, None).await
}

/// A batch that must be there.
pub(super) async fn find(session: &Session, id: BatchId) -> Result<BatchRecord, Failure> {
    let found = session.store.find_batch(TenantId::LOCAL, id).await?;
    found.ok_or_else(|| {
        let error = anyhow::anyhow!("there is no batch {id}: `mayfly batch list` shows those that are there");
        Failure::new(exit::NOT_FOUND, error)
    })
}

/// A path as a shell takes it.
pub(super) fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:@%".contains(c);
    if !path.is_empty() && path.chars().all(is_plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', "'\\''"))
    }
}

async fn see_through(
    plan: Plan<'_>,
    results: Results,
    accept: Option<Accept<'_>>,
) -> Result<ExitCode, Failure> {
    let progress = Progress::begin(plan.pace, plan.items);
    progress.say(&format!(
        "mayfly: batch {}: {} items of {}, {} at a time",
        plan.id,
        plan.items,
        shown(&plan.input),
        plan.slots
    ));
    let ended = Work::new(&plan, &progress, results).run(accept).await;
    summary::say(&plan, &progress, ended)
}

/// What each image means now. All that can't be had are said, not just the first.
async fn pins(session: &Session, checked: &Checked) -> Result<HashMap<ImageName, ImagePin>, Failure> {
    let engine = session.engine().await?;
    let catalog = session.catalog(&engine);
    let mut names: Vec<_> = checked.images.iter().collect();
    names.sort_by_key(|name| name.to_string());
    let (mut pins, mut missing) = (HashMap::new(), None);
    for name in names {
        match catalog.resolve(name).await {
            Ok(pin) => {
                pins.insert(name.clone(), pin);
            }
            Err(failure) => {
                if let Some(earlier) = missing.replace(failure) {
                    earlier.say();
                }
            }
        }
    }
    missing.map_or(Ok(pins), Err)
}

/// Whether a batch can be of this input: each item that it has is there, and how many it has in all is known once it is
/// complete.
async fn is_the_same(
    session: &Session,
    known: &BatchRecord,
    checked: &Checked,
    input: &Input,
) -> Result<(), Failure> {
    let (id, items) = (known.id, checked.items);
    match known.items {
        Some(has) if has != items => Err(Failure::usage(format!(
            "batch {id} is complete with {has} items, and {} has {items}: leave --batch out for a new batch",
            input.name
        ))),
        None if known.accepted() > items => Err(Failure::usage(format!(
            "batch {id} has {} items already, and {} has {items}: it was begun from another input, {}",
            known.accepted(),
            input.name,
            quoted(&known.input)
        ))),
        _ => has_every_item(session, known, checked, input).await,
    }
}

async fn has_every_item(
    session: &Session,
    known: &BatchRecord,
    checked: &Checked,
    input: &Input,
) -> Result<(), Failure> {
    let (store, tenant, id) = (&session.store, TenantId::LOCAL, known.id);
    let mut after = None;
    loop {
        let page = store.list_batch_jobs(tenant, id, after, MAX_PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = Some(last.position);
        if let Some(other) = page.iter().find(|job| !checked.has(&job.item)) {
            return Err(Failure::usage(format!(
                "batch {id} has an item {}, and {} has none: it was begun from another input, {}; leave --batch out \
                 for a new batch",
                quoted(&other.item),
                input.name,
                quoted(&known.input)
            )));
        }
    }
}

fn say_left_out(pace: &Pace, input: &Input) {
    let left_out = input.left_out();
    if pace.quiet || left_out.is_empty() {
        return;
    }
    for path in left_out.iter().take(LEFT_OUT_SAID) {
        say(&format!("mayfly: left out, since it is a link: {}", shown(path)));
    }
    let more = left_out.len().saturating_sub(LEFT_OUT_SAID);
    if more > 0 {
        say(&format!("mayfly: and {more} more links"));
    }
}

/// How to go on with a batch.
pub(super) fn resume_command(id: BatchId, out: Option<&PathBuf>) -> String {
    let out = out.map_or_else(String::new, |path| {
        format!(" --out {}", quoted(&path.display().to_string()))
    });
    format!("mayfly batch resume {id}{out}")
}
