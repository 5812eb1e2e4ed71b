//! What was set aside for a person. Letters serve all tenants, so that the engine's role sees them.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use mayfly_core::{
    audit::Fact,
    digest::Digest,
    id::{AttemptId, JobId, KeyId, TenantId},
};
use mayfly_dispatch::{ledger::Context, record::QueueRecord, scheduler};
use mayfly_store::{
    error::StoreError,
    letters::{
        AboutAttempt, LetterCause, LetterContent, LetterOrigin, LetterRecord, LetterStore,
        MOST_ABOUT_ATTEMPTS, MOST_CONTENT_BYTES, MOST_WITH_CONTENT, NewLetter, Replay,
    },
    seam::MAX_PAGE,
};
use sqlx::types::Uuid;

use crate::{
    PostgresStore,
    audit::Events,
    changes::Decided,
    columns::{Column, bigint},
    database::{Database, Write, query, text},
    ledger::{self, Wanted},
    schedule,
};

struct Row {
    letter_id: Vec<u8>,
    at: DateTime<Utc>,
    origin: String,
    pool: String,
    cause: String,
    reason: Option<Vec<u8>>,
    bytes: i64,
    tenant_id: Option<Uuid>,
    job_id: Option<Uuid>,
    attempt_id: Option<Uuid>,
}

const fn column(name: &'static str) -> Column {
    Column("dead_letters", name)
}

fn origin(word: &str) -> Result<LetterOrigin, StoreError> {
    LetterOrigin::of(word).ok_or_else(|| column("origin").corrupt(format!("`{word}` is no queue")))
}

fn about(tenant: Option<Uuid>, job: Option<Uuid>, attempt: Option<Uuid>) -> Option<AboutAttempt> {
    Some(AboutAttempt {
        tenant: TenantId::from_uuid(tenant?),
        job: JobId::from_uuid(job?),
        attempt: AttemptId::from_uuid(attempt?),
    })
}

impl TryFrom<Row> for LetterRecord {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let id: [u8; 32] = row
            .letter_id
            .try_into()
            .map_err(|_| column("letter_id").corrupt("it has not 32 bytes"))?;
        let cause = LetterCause::of(&row.cause)
            .ok_or_else(|| column("cause").corrupt(format!("`{}` is no cause", row.cause)))?;
        let reason = row.reason.map(|bytes| text(column("reason"), bytes));
        Ok(Self {
            id: Digest::from_bytes(id),
            at: row.at,
            origin: origin(&row.origin)?,
            pool: row.pool,
            cause,
            reason: reason.transpose()?,
            bytes: column("bytes").number(row.bytes)?,
            about: about(row.tenant_id, row.job_id, row.attempt_id),
        })
    }
}

async fn keep(database: &Database, letter: &NewLetter, now: DateTime<Utc>) -> Result<bool, StoreError> {
    let mut write = database.begin().await?;
    let now = write.now(now).await?;
    let (about, content) = match &letter.content {
        LetterContent::Attempt(about) => (Some(*about), None),
        LetterContent::Bytes { bytes, sender } => (None, Some((bytes.as_slice(), sender.as_str()))),
    };
    if content.is_some() && !has_room(&mut write, letter.id).await? {
        return Ok(false);
    }
    sqlx::query!(
        "/* keep_letter */
         INSERT INTO dead_letters (letter_id, at, origin, pool, cause, reason, bytes, tenant_id, job_id, attempt_id,
                                   content, sender)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
         ON CONFLICT (letter_id) DO UPDATE SET at = excluded.at, cause = excluded.cause, reason = excluded.reason",
        letter.id.as_bytes().as_slice(),
        now,
        letter.origin.as_str(),
        letter.pool,
        letter.cause.as_str(),
        letter.reason.as_ref().map(|reason| reason.as_bytes()),
        bigint(letter.bytes),
        about.map(|about| about.tenant.as_uuid()),
        about.map(|about| about.job.as_uuid()),
        about.map(|about| about.attempt.as_uuid()),
        content.map(|(bytes, _)| bytes),
        content.map(|(_, sender)| sender)
    )
    .execute(&mut *write.tx)
    .await
    .map_err(query("keep the dead letter"))?;
    if about.is_some() {
        sqlx::query!(
            "/* keep_letter */
             DELETE FROM dead_letters WHERE letter_id IN
                    (SELECT letter_id FROM dead_letters WHERE attempt_id IS NOT NULL
                      ORDER BY at DESC, letter_id DESC OFFSET $1)",
            i64::from(MOST_ABOUT_ATTEMPTS)
        )
        .execute(&mut *write.tx)
        .await
        .map_err(query("make room for the dead letter"))?;
    }
    write.commit_quietly().await?;
    Ok(true)
}

/// Whether there is room for a letter that holds something, or it is there already.
async fn has_room(write: &mut Write<'_>, letter: Digest) -> Result<bool, StoreError> {
    let kept = sqlx::query!(
        r#"/* has_room */
         SELECT count(*) AS "letters!", coalesce(sum(bytes), 0)::bigint AS "bytes!",
                coalesce(bool_or(letter_id = $1), false) AS "is_there!"
           FROM dead_letters WHERE content IS NOT NULL"#,
        letter.as_bytes().as_slice()
    )
    .fetch_one(&mut *write.tx)
    .await
    .map_err(query("count the dead letters"))?;
    let fits = kept.letters < i64::from(MOST_WITH_CONTENT) && kept.bytes < bigint(MOST_CONTENT_BYTES);
    Ok(kept.is_there || fits)
}

async fn list(database: &Database, limit: u32) -> Result<Vec<LetterRecord>, StoreError> {
    let rows = sqlx::query_as!(
        Row,
        "/* list_letters */
         SELECT letter_id, at, origin, pool, cause, reason, bytes, tenant_id, job_id, attempt_id
           FROM dead_letters ORDER BY at, letter_id LIMIT $1",
        i64::from(limit.min(MAX_PAGE + 1))
    )
    .fetch_all(&database.engine)
    .await
    .map_err(query("list the dead letters"))?;
    rows.into_iter().map(LetterRecord::try_from).collect()
}

async fn replay(
    database: &Database,
    id: Digest,
    by: Option<KeyId>,
    context: &Context,
) -> Result<Replay, StoreError> {
    let mut write = database.begin().await?;
    let found = sqlx::query!(
        "/* replay_letter */
         SELECT origin, pool, tenant_id, job_id, attempt_id, content, sender
           FROM dead_letters WHERE letter_id = $1 FOR UPDATE",
        id.as_bytes().as_slice()
    )
    .fetch_optional(&mut *write.tx)
    .await
    .map_err(query("find the dead letter"))?;
    let Some(row) = found else {
        return Ok(Replay::NoSuchLetter);
    };
    if let Some(about) = about(row.tenant_id, row.job_id, row.attempt_id) {
        return replay_attempt(write, (id, about), row.pool, by, context).await;
    }
    let now = write.now(context.now.into()).await?;
    let fact = Fact::DeadLetterReplayed {
        letter: id,
        publication: None,
        by,
    };
    let mut events = Events::new(now);
    events.add(TenantId::LOCAL, None, None, fact);
    events.write(&mut write.tx).await?;
    write.commit_quietly().await?;
    let missing = || column("content").corrupt("a letter about no attempt has none");
    Ok(Replay::Bytes {
        origin: origin(&row.origin)?,
        pool: row.pool,
        bytes: row.content.ok_or_else(missing)?,
        sender: row.sender.unwrap_or_default(),
    })
}

async fn replay_attempt(
    mut write: Write<'_>,
    (id, about): (Digest, AboutAttempt),
    pool: String,
    by: Option<KeyId>,
    context: &Context,
) -> Result<Replay, StoreError> {
    let wanted = Wanted {
        attempts: [about.attempt].into(),
        ..Wanted::default()
    };
    let loaded = ledger::load(&mut write.tx, QueueRecord::new(context.now), wanted).await?;
    let context = write.context(context).await?;
    let mut ledger = loaded.ledger.clone();
    let Some(changes) = scheduler::publish_again(about.attempt, &mut ledger, &context) else {
        return Ok(Replay::NotWaiting);
    };
    let messages = schedule::messages(&mut write.tx, &[about.attempt], &ledger, &context).await?;
    let Some(message) = messages.into_iter().next() else {
        return Ok(Replay::NotWaiting);
    };
    let now = context.now.into();
    let decided = Decided {
        before: &loaded,
        after: &ledger,
        changes: &changes,
        queue: "",
        now,
    };
    decided.write(&mut write.tx).await?;
    let fact = Fact::DeadLetterReplayed {
        letter: id,
        publication: Some(message.publication),
        by,
    };
    let mut events = Events::new(now);
    events.add(message.tenant, Some(message.job), Some(message.attempt), fact);
    events.write(&mut write.tx).await?;
    delete(&mut write, id).await?;
    write.commit().await?;
    Ok(Replay::Attempt {
        pool,
        message: Box::new(message),
    })
}

async fn delete(write: &mut Write<'_>, id: Digest) -> Result<Option<Option<AboutAttempt>>, StoreError> {
    let deleted = sqlx::query!(
        "/* delete_letter */ DELETE FROM dead_letters WHERE letter_id = $1 RETURNING tenant_id, job_id, attempt_id",
        id.as_bytes().as_slice()
    )
    .fetch_optional(&mut *write.tx)
    .await
    .map_err(query("forget the dead letter"))?;
    Ok(deleted.map(|row| about(row.tenant_id, row.job_id, row.attempt_id)))
}

async fn forget(database: &Database, id: Digest) -> Result<(), StoreError> {
    let mut write = database.begin().await?;
    delete(&mut write, id).await?;
    write.commit_quietly().await
}

async fn discard(
    database: &Database,
    id: Digest,
    by: Option<KeyId>,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let mut write = database.begin().await?;
    let now = write.now(now).await?;
    let Some(about) = delete(&mut write, id).await? else {
        return Ok(false);
    };
    let mut events = Events::new(now);
    let fact = Fact::DeadLetterDiscarded { letter: id, by };
    events.add(
        about.map_or(TenantId::LOCAL, |about| about.tenant),
        about.map(|about| about.job),
        about.map(|about| about.attempt),
        fact,
    );
    events.write(&mut write.tx).await?;
    write.commit_quietly().await?;
    Ok(true)
}

#[async_trait]
impl LetterStore for PostgresStore {
    async fn keep_letter(&self, letter: &NewLetter, now: DateTime<Utc>) -> Result<bool, StoreError> {
        let call = keep(&self.database, letter, now);
        self.database.call("keep the dead letter", call).await
    }

    async fn list_letters(&self, limit: u32) -> Result<Vec<LetterRecord>, StoreError> {
        let call = list(&self.database, limit);
        self.database.call("list the dead letters", call).await
    }

    async fn replay_letter(
        &self,
        id: Digest,
        by: Option<KeyId>,
        context: &Context,
    ) -> Result<Replay, StoreError> {
        let call = replay(&self.database, id, by, context);
        self.database.call("replay the dead letter", call).await
    }

    async fn forget_letter(&self, id: Digest) -> Result<(), StoreError> {
        let call = forget(&self.database, id);
        self.database.call("forget the dead letter", call).await
    }

    async fn discard_letter(
        &self,
        id: Digest,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let call = discard(&self.database, id, by, now);
        self.database.call("discard the dead letter", call).await
    }
}
