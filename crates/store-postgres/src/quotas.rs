//! Whether a tenant may have more jobs queued. It is counted by what the scheduler has summed up, and by the news that it
//! has not read yet, so that it costs the same however many jobs wait.

use std::collections::BTreeMap;

use mayfly_core::id::TenantId;
use mayfly_store::{error::StoreError, records::NewJob};
use sqlx::PgConnection;

use crate::{columns::Column, database::query};

/// Refuses jobs of a tenant that are more than it may have. Where there is a bound, its submissions are counted one after
/// the other, until the end of the transaction.
pub(crate) async fn check<'a>(
    connection: &mut PgConnection,
    tenant: TenantId,
    jobs: impl Iterator<Item = &'a NewJob>,
) -> Result<(), StoreError> {
    let mut pools: BTreeMap<&str, u64> = BTreeMap::new();
    for job in jobs {
        *pools.entry(&job.pool).or_default() += 1;
    }
    if pools.is_empty() {
        return Ok(());
    }
    let most = sqlx::query_scalar!(
        r#"/* most_queued */
         SELECT most_queued AS "most!" FROM tenants WHERE tenant_id = $1 AND most_queued IS NOT NULL"#,
        tenant.as_uuid()
    )
    .fetch_optional(&mut *connection)
    .await
    .map_err(query("find the tenant's quota"))?;
    let Some(most) = most else { return Ok(()) };
    let most = Column("tenants", "most_queued").number(most)?;
    sqlx::query!(
        r#"/* quota_turn */
         WITH turn AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtextextended($1, 0)) AS taken)
         SELECT true AS "taken!" FROM turn"#,
        format!("mayfly quota {tenant}")
    )
    .fetch_one(&mut *connection)
    .await
    .map_err(query("wait for the turn"))?;
    for (pool, more) in pools {
        let queued = sqlx::query_scalar!(
            r#"/* queued */
             SELECT coalesce((SELECT queued FROM tenant_shares WHERE pool = $1 AND tenant_id = $2), 0)
                    + coalesce((SELECT sum(queued)::bigint FROM pool_news
                                 WHERE pool = $1 AND made_by >= mayfly_news_from($1) AND tenant_id = $2), 0) AS "queued!""#,
            pool,
            tenant.as_uuid()
        )
        .fetch_one(&mut *connection)
        .await
        .map_err(query("count the tenant's queued jobs"))?;
        let would_be = u64::try_from(queued).unwrap_or(0) + more;
        if would_be > most {
            return Err(StoreError::OverQuota {
                pool: pool.to_owned(),
                most,
                would_be,
            });
        }
    }
    Ok(())
}
