//! From what a tenant wrote to a job for the store: image, policy and times, with every fault listed at once.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use mayfly_core::{
    digest::Salt,
    id::{JobId, TenantId},
    image::{ImageName, ImagePin},
    job::{JobSpec, SecretName, SecretValue},
};
use mayfly_store::records::{BatchPlace, Idempotency, NewJob};
use mayfly_wire::problem::{Code, FaultShown};

use crate::{
    app::App,
    error::{ApiError, ApiResult, shown},
    expansion::{Applied, Expansion},
    key::random_32,
};

/// The word of the fault that an image is not in the catalog.
const NOT_PINNED: &str = "not_pinned";

/// What a job is submitted with beside its spec.
pub(crate) struct Submission {
    pub(crate) tenant: TenantId,
    pub(crate) spec: JobSpec,
    pub(crate) batch: Option<BatchPlace>,
    pub(crate) idempotency: Option<Idempotency>,
}

/// Applies every rule.
///
/// # Errors
/// Outer: trouble. Inner: everything that is wrong with the job, in the order of its fields, the image last.
pub(crate) async fn resolve(
    app: &App,
    submission: Submission,
    now: DateTime<Utc>,
    expansion: &mut Expansion,
) -> ApiResult<Result<NewJob, Vec<FaultShown>>> {
    let parts = &app.parts;
    let mut spec = submission.spec;
    let without_way = no_way(app, &spec);
    know_uploads(app, submission.tenant, &mut spec).await?;
    let pin = pin_of(app, &spec.image).await?;
    let (times, mut faults) = match spec.times(&parts.policy, now) {
        Ok(times) => (Some(times), Vec::new()),
        Err(faults) => (None, shown(&faults)),
    };
    let (labels, priority, retain_source) = (spec.labels.clone(), spec.priority, spec.retain_source);
    let image = spec.image.clone();
    let named = named_in(&spec);
    let is_pinned = pin.is_some();
    let (resolved, mut all) = match expansion.apply(app, spec, pin).await? {
        Applied::Accepted(resolved) => (Some(*resolved), Vec::new()),
        Applied::Refused(more) => (None, shown(&more)),
        Applied::TooMany => (None, vec![too_many_archives(app)]),
        Applied::WithoutImage => (None, Vec::new()),
    };
    all.append(&mut faults);
    all.extend(without_way);
    all.extend(wrong_names(app, submission.tenant, &named).await?);
    if !is_pinned {
        all.push(FaultShown {
            path: "image".to_owned(),
            code: NOT_PINNED.to_owned(),
            message: not_pinned(&image),
        });
    }
    let resolved = resolved.filter(|_| all.is_empty());
    let (Some(resolved), Some(times)) = (resolved, times) else {
        return Ok(Err(all));
    };
    Ok(Ok(NewJob {
        id: JobId::new(),
        tenant: submission.tenant,
        pool: (parts.pool)(&resolved),
        resolved: Arc::new(resolved),
        labels,
        priority,
        not_before: times.not_before,
        expires_at: times.expires_at,
        retain_source,
        salt: Salt::from_bytes(random_32()),
        batch: submission.batch,
        idempotency: submission.idempotency,
    }))
}

/// What a spec asks for that needs a way between executors and this server, where there is none.
fn no_way(app: &App, spec: &JobSpec) -> Vec<FaultShown> {
    let asked = [
        ("artifacts", !spec.artifacts.is_empty()),
        ("uploads", !spec.uploads.is_empty()),
    ];
    let without = asked
        .iter()
        .filter(|(_, asked)| *asked && !app.parts.keeps_artifacts);
    without
        .map(|(field, _)| FaultShown {
            path: (*field).to_owned(),
            code: "not_supported".to_owned(),
            message:
                "executors have no way to files on this server: whoever runs it sets `server.public_url`"
                    .to_owned(),
        })
        .collect()
}

/// Looks up how long the uploads are that a spec names.
async fn know_uploads(app: &App, tenant: TenantId, spec: &mut JobSpec) -> ApiResult<()> {
    // More than the policy lets through are refused whether or not they are there.
    let most = app.parts.policy.content.files as usize;
    let named: Vec<_> = spec.named_uploads().take(most).collect();
    if named.is_empty() {
        return Ok(());
    }
    let found = app.parts.store.find_uploads(tenant, &named).await?;
    spec.know_uploads(&found.iter().map(|upload| (upload.digest, upload.bytes)).collect());
    Ok(())
}

/// The places of a spec's named secrets, as paths of its fields, and their names.
fn named_in(spec: &JobSpec) -> Vec<(String, SecretName)> {
    let fields = [("secrets", &spec.secrets), ("secret_files", &spec.secret_files)];
    let mut found = Vec::new();
    for (field, places) in fields {
        for (place, value) in places {
            if let SecretValue::Named(secret) = value {
                found.push((format!("{field}[{place:?}]"), secret.named.clone()));
            }
        }
    }
    found
}

/// What is wrong with the secrets that a spec names.
async fn wrong_names(
    app: &App,
    tenant: TenantId,
    named: &[(String, SecretName)],
) -> ApiResult<Vec<FaultShown>> {
    let Some((first, _)) = named.first() else {
        return Ok(Vec::new());
    };
    let not_supported = |setting: &str| {
        vec![FaultShown {
            path: first.clone(),
            code: "not_supported".to_owned(),
            message: format!("this server gives no job a named secret: whoever runs it sets `{setting}`"),
        }]
    };
    if app.parts.vault.is_none() {
        return Ok(not_supported("server.secrets_key"));
    }
    if !app.parts.keeps_artifacts {
        return Ok(not_supported("server.public_url"));
    }
    let there = app.parts.store.list_secrets(tenant).await?;
    let is_there = |name: &SecretName| there.iter().any(|secret| secret.name == *name);
    let missing = named.iter().filter(|(_, name)| !is_there(name));
    Ok(missing
        .map(|(path, name)| FaultShown {
            path: path.clone(),
            code: "no_such_secret".to_owned(),
            message: format!(
                "no secret `{name}` is kept for this tenant: an admin sets it with `PUT /v1/secrets/{name}`"
            ),
        })
        .collect())
}

fn too_many_archives(app: &App) -> FaultShown {
    let message = format!(
        "the archives of one request may expand to {} together, each that is refused counted as large as it could have \
         been; those of this job were not looked at: send it in another request",
        app.parts.limits.expanded
    );
    FaultShown {
        path: "archives".to_owned(),
        code: "too_large".to_owned(),
        message,
    }
}

fn not_pinned(image: &ImageName) -> String {
    match image {
        ImageName::Catalog(name) => format!(
            "`{name}` is no name of the image catalog: `GET /v1/images` lists what is, an admin adds one"
        ),
        ImageName::Digest { digest, .. } => format!(
            "no image of the catalog has the digest {digest}, and nothing is pulled on the way to a run: an admin pins \
             it once"
        ),
    }
}

/// The problem that faults make.
pub(crate) fn refusal(faults: Vec<FaultShown>) -> ApiError {
    let only_images = faults.iter().all(|fault| fault.code == NOT_PINNED);
    let code = if only_images {
        Code::ImageNotPinned
    } else {
        Code::InvalidJob
    };
    ApiError::faults(code, faults)
}

/// What an image's name means, as it was within the last second.
async fn pin_of(app: &App, name: &ImageName) -> ApiResult<Option<ImagePin>> {
    let text = name.to_string();
    let moment = app.moment();
    if let Some(pin) = app.images.get(&text, moment) {
        return Ok(Some(pin));
    }
    let found = match name {
        ImageName::Catalog(name) => app.parts.store.find_image(name).await?,
        ImageName::Digest { digest, .. } => {
            let all = app.parts.store.list_images().await?;
            all.into_iter().find(|entry| entry.pin.digest == *digest)
        }
    };
    let pin = found.map(|entry| entry.pin);
    if let Some(pin) = &pin {
        app.images.put(text, pin.clone(), moment);
    }
    Ok(pin)
}
