//! Whether a tenant may have more jobs queued.

use std::collections::BTreeMap;

use mayfly_core::id::TenantId;
use mayfly_store::{error::StoreError, records::NewJob};
use sqlx::SqliteConnection;

use crate::{columns::Column, database::query};

/// Room for further jobs in the pools of tenants, as far as one submission asks for it.
#[derive(Default)]
pub(crate) struct Room(BTreeMap<(TenantId, String), Option<Left>>);

/// What is left of a bound.
struct Left {
    most: u64,
    queued: u64,
}

impl Room {
    /// Takes a place for a job, or refuses it.
    pub(crate) async fn take(
        &mut self,
        connection: &mut SqliteConnection,
        job: &NewJob,
    ) -> Result<(), StoreError> {
        let key = (job.tenant, job.pool.clone());
        if !self.0.contains_key(&key) {
            let left = left(connection, job.tenant, &job.pool).await?;
            self.0.insert(key.clone(), left);
        }
        let Some(Some(left)) = self.0.get_mut(&key) else {
            return Ok(());
        };
        left.queued += 1;
        if left.queued > left.most {
            return Err(StoreError::OverQuota {
                pool: job.pool.clone(),
                most: left.most,
                would_be: left.queued,
            });
        }
        Ok(())
    }
}

/// None where there is no bound.
async fn left(
    connection: &mut SqliteConnection,
    tenant: TenantId,
    pool: &str,
) -> Result<Option<Left>, StoreError> {
    let tenant = tenant.as_uuid();
    let most = sqlx::query_scalar!(
        r#"/* left */
         SELECT most_queued AS "most!: i64" FROM tenants WHERE tenant_id = ? AND most_queued IS NOT NULL"#,
        tenant
    )
    .fetch_optional(&mut *connection)
    .await
    .map_err(query("find the tenant's quota"))?;
    let Some(most) = most else { return Ok(None) };
    let queued = sqlx::query_scalar!(
        r#"/* left */
         SELECT count(*) AS "queued!: i64"
           FROM (SELECT 1 FROM jobs WHERE tenant_id = ?1 AND pool = ?2 AND state = 'queued' LIMIT ?3)"#,
        tenant,
        pool,
        most
    )
    .fetch_one(connection)
    .await
    .map_err(query("count the tenant's queued jobs"))?;
    let column = Column("tenants", "most_queued");
    Ok(Some(Left {
        most: column.number(most)?,
        queued: column.number(queued)?,
    }))
}
