//! What was set aside for a person.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use mayfly_core::{
    audit::Fact,
    digest::Digest,
    id::{AttemptId, JobId, KeyId, TenantId},
};
use mayfly_dispatch::{ledger::Context, scheduler};
use mayfly_store::{
    error::StoreError,
    letters::{
        AboutAttempt, LetterCause, LetterContent, LetterOrigin, LetterRecord, LetterStore,
        MOST_ABOUT_ATTEMPTS, MOST_CONTENT_BYTES, MOST_WITH_CONTENT, NewLetter, Replay,
    },
    seam::MAX_PAGE,
};
use sqlx::{SqliteConnection, types::Uuid};

use crate::{
    SqliteStore,
    audit::{self, About},
    columns::{Column, micros},
    database::{Write, query},
    dispatch::{Messages, write_changes},
    ledger::Loader,
};

struct Row {
    letter_id: Vec<u8>,
    at: i64,
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

/// In whose log it stands what becomes of a letter.
fn log_of(about: Option<AboutAttempt>) -> About {
    About {
        tenant: about.map_or(TenantId::LOCAL, |about| about.tenant),
        job: about.map(|about| about.job),
        attempt: about.map(|about| about.attempt),
    }
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
        let reason = row
            .reason
            .map(|bytes| String::from_utf8(bytes).map_err(|error| column("reason").corrupt(error)));
        Ok(Self {
            id: Digest::from_bytes(id),
            at: column("at").time(row.at)?,
            origin: origin(&row.origin)?,
            pool: row.pool,
            cause,
            reason: reason.transpose()?,
            bytes: column("bytes").number(row.bytes)?,
            about: about(row.tenant_id, row.job_id, row.attempt_id),
        })
    }
}

/// Whether there is room for a letter that holds something, or it is there already.
async fn has_room(connection: &mut SqliteConnection, letter: Digest) -> Result<bool, StoreError> {
    let id = letter.as_bytes().as_slice();
    let kept = sqlx::query!(
        r#"/* has_room */
         SELECT count(*) AS "letters!: i64", coalesce(sum(bytes), 0) AS "bytes!: i64",
                coalesce(max(letter_id = ?), 0) AS "is_there!: bool"
           FROM dead_letters WHERE content IS NOT NULL"#,
        id
    )
    .fetch_one(connection)
    .await
    .map_err(query("count the dead letters"))?;
    let most = i64::try_from(MOST_CONTENT_BYTES).unwrap_or(i64::MAX);
    let fits = kept.letters < i64::from(MOST_WITH_CONTENT) && kept.bytes < most;
    Ok(kept.is_there || fits)
}

/// Removes a letter, and says what it was about; none where there is none.
async fn delete(
    connection: &mut SqliteConnection,
    id: Digest,
) -> Result<Option<Option<AboutAttempt>>, StoreError> {
    let id = id.as_bytes().as_slice();
    let deleted = sqlx::query!(
        r#"/* delete_letter */
         DELETE FROM dead_letters WHERE letter_id = ?
         RETURNING tenant_id AS "tenant_id: Uuid", job_id AS "job_id: Uuid", attempt_id AS "attempt_id: Uuid""#,
        id
    )
    .fetch_optional(connection)
    .await
    .map_err(query("forget the dead letter"))?;
    Ok(deleted.map(|row| about(row.tenant_id, row.job_id, row.attempt_id)))
}

async fn replay_attempt(
    mut write: Write<'_>,
    (id, about): (Digest, AboutAttempt),
    pool: String,
    by: Option<KeyId>,
    context: &Context,
) -> Result<Replay, StoreError> {
    let mut loader = Loader::new(&mut write.tx, "", context.now).await?;
    loader.attempt(about.attempt).await?;
    let mut ledger = loader.into_ledger();
    let Some(changes) = scheduler::publish_again(about.attempt, &mut ledger, context) else {
        return Ok(Replay::NotWaiting);
    };
    let mut messages = Messages::default();
    messages
        .add(&mut write.tx, about.attempt, &ledger, context)
        .await?;
    let Some(message) = messages.made.into_iter().next() else {
        return Ok(Replay::NotWaiting);
    };
    write_changes(&mut write, "", &changes, context).await?;
    let fact = Fact::DeadLetterReplayed {
        letter: id,
        publication: Some(message.publication),
        by,
    };
    audit::record(&mut write.tx, log_of(Some(about)), fact, context.now.into()).await?;
    delete(&mut write.tx, id).await?;
    write.commit().await?;
    Ok(Replay::Attempt {
        pool,
        message: Box::new(message),
    })
}

#[async_trait]
impl LetterStore for SqliteStore {
    async fn keep_letter(&self, letter: &NewLetter, now: DateTime<Utc>) -> Result<bool, StoreError> {
        let mut write = self.database.begin().await?;
        let (about, content) = match &letter.content {
            LetterContent::Attempt(about) => (Some(*about), None),
            LetterContent::Bytes { bytes, sender } => (None, Some((bytes.as_slice(), sender.as_str()))),
        };
        if content.is_some() && !has_room(&mut write.tx, letter.id).await? {
            return Ok(false);
        }
        let (id, at) = (letter.id.as_bytes().as_slice(), micros(now));
        let (origin, cause) = (letter.origin.as_str(), letter.cause.as_str());
        let reason = letter.reason.as_ref().map(|reason| reason.as_bytes());
        let bytes = i64::try_from(letter.bytes).unwrap_or(i64::MAX);
        let (tenant, job, attempt) = (
            about.map(|about| about.tenant.as_uuid()),
            about.map(|about| about.job.as_uuid()),
            about.map(|about| about.attempt.as_uuid()),
        );
        let (body, sender) = (content.map(|(bytes, _)| bytes), content.map(|(_, sender)| sender));
        sqlx::query!(
            "/* keep_letter */
             INSERT INTO dead_letters (letter_id, at, origin, pool, cause, reason, bytes, tenant_id, job_id, attempt_id,
                                       content, sender)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT (letter_id) DO UPDATE SET at = excluded.at, cause = excluded.cause, reason = excluded.reason",
            id,
            at,
            origin,
            letter.pool,
            cause,
            reason,
            bytes,
            tenant,
            job,
            attempt,
            body,
            sender
        )
        .execute(&mut *write.tx)
        .await
        .map_err(query("keep the dead letter"))?;
        if about.is_some() {
            sqlx::query!(
                "/* keep_letter */
                 DELETE FROM dead_letters WHERE letter_id IN
                        (SELECT letter_id FROM dead_letters WHERE attempt_id IS NOT NULL
                          ORDER BY at DESC, letter_id DESC LIMIT -1 OFFSET ?)",
                MOST_ABOUT_ATTEMPTS
            )
            .execute(&mut *write.tx)
            .await
            .map_err(query("make room for the dead letter"))?;
        }
        write.commit().await?;
        Ok(true)
    }

    async fn list_letters(&self, limit: u32) -> Result<Vec<LetterRecord>, StoreError> {
        let limit = limit.min(MAX_PAGE + 1);
        let rows = sqlx::query_as!(
            Row,
            r#"/* list_letters */
             SELECT letter_id AS "letter_id!", at AS "at!", origin AS "origin!", pool AS "pool!", cause AS "cause!", reason,
                    bytes AS "bytes!", tenant_id AS "tenant_id: Uuid", job_id AS "job_id: Uuid",
                    attempt_id AS "attempt_id: Uuid"
               FROM dead_letters ORDER BY at, letter_id LIMIT ?"#,
            limit
        )
        .fetch_all(&self.database.read)
        .await
        .map_err(query("list the dead letters"))?;
        rows.into_iter().map(LetterRecord::try_from).collect()
    }

    async fn replay_letter(
        &self,
        id: Digest,
        by: Option<KeyId>,
        context: &Context,
    ) -> Result<Replay, StoreError> {
        let mut write = self.database.begin().await?;
        let letter = id.as_bytes().as_slice();
        let found = sqlx::query!(
            r#"/* replay_letter */
             SELECT origin AS "origin!", pool AS "pool!", tenant_id AS "tenant_id: Uuid", job_id AS "job_id: Uuid",
                    attempt_id AS "attempt_id: Uuid", content, sender
               FROM dead_letters WHERE letter_id = ?"#,
            letter
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
        let fact = Fact::DeadLetterReplayed {
            letter: id,
            publication: None,
            by,
        };
        audit::record(&mut write.tx, log_of(None), fact, context.now.into()).await?;
        write.commit().await?;
        let missing = || column("content").corrupt("a letter about no attempt has none");
        Ok(Replay::Bytes {
            origin: origin(&row.origin)?,
            pool: row.pool,
            bytes: row.content.ok_or_else(missing)?,
            sender: row.sender.unwrap_or_default(),
        })
    }

    async fn forget_letter(&self, id: Digest) -> Result<(), StoreError> {
        let mut write = self.database.begin().await?;
        delete(&mut write.tx, id).await?;
        write.commit().await
    }

    async fn discard_letter(
        &self,
        id: Digest,
        by: Option<KeyId>,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let mut write = self.database.begin().await?;
        let Some(about) = delete(&mut write.tx, id).await? else {
            return Ok(false);
        };
        let fact = Fact::DeadLetterDiscarded { letter: id, by };
        audit::record(&mut write.tx, log_of(about), fact, now).await?;
        write.commit().await?;
        Ok(true)
    }
}
