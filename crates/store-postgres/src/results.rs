//! Results as they are kept, with what their runs have left.

use mayfly_dispatch::record::Change;
use mayfly_store::error::StoreError;
use sqlx::PgConnection;

use crate::{
    blobs,
    changes::{Decided, Moves},
    columns::json,
    database::{expect_rows, query},
};

pub(crate) async fn results(connection: &mut PgConnection, moves: &Moves<'_>) -> Result<(), StoreError> {
    if moves.results.is_empty() {
        return Ok(());
    }
    let (mut tenants, mut ids, mut reports) = (Vec::new(), Vec::new(), Vec::new());
    let (mut out_heads, mut out_tails) = (Vec::new(), Vec::new());
    let (mut err_heads, mut err_tails) = (Vec::new(), Vec::new());
    let (mut uploaded, mut lengths) = (Vec::new(), [Vec::new(), Vec::new(), Vec::new(), Vec::new()]);
    for (tenant, attempt, report) in &moves.results {
        tenants.push(tenant.as_uuid());
        ids.push(attempt.as_uuid());
        reports.push(json(&report.without_output()));
        out_heads.push(report.stdout.head.as_slice());
        out_tails.push(report.stdout.tail.as_slice());
        err_heads.push(report.stderr.head.as_slice());
        err_tails.push(report.stderr.tail.as_slice());
        let named = report.uploaded.as_ref();
        uploaded.push(named.map(|named| named.digest.as_bytes().as_slice()));
        let parts = named.map_or([0; 4], |named| {
            [
                named.stdout_head,
                named.stdout_tail,
                named.stderr_head,
                named.stderr_tail,
            ]
        });
        for (list, bytes) in lengths.iter_mut().zip(parts) {
            // More than a column can hold is in none.
            list.push(i32::try_from(bytes).unwrap_or(i32::MAX));
        }
    }
    let [out_head, out_tail, err_head, err_tail] = &lengths;
    let done = sqlx::query!(
        "/* results */
         INSERT INTO results (tenant_id, attempt_id, report, stdout_head, stdout_tail, stderr_head, stderr_tail)
         SELECT u.tenant_id, u.attempt_id, u.report,
                coalesce(substr(b.content, 1, u.out_head), u.stdout_head),
                coalesce(substr(b.content, 1 + u.out_head, u.out_tail), u.stdout_tail),
                coalesce(substr(b.content, 1 + u.out_head + u.out_tail, u.err_head), u.stderr_head),
                coalesce(substr(b.content, 1 + u.out_head + u.out_tail + u.err_head, u.err_tail), u.stderr_tail)
           FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[],
                       $9::integer[], $10::integer[], $11::integer[], $12::integer[])
                AS u (tenant_id, attempt_id, report, stdout_head, stdout_tail, stderr_head, stderr_tail, uploaded,
                      out_head, out_tail, err_head, err_tail)
                LEFT JOIN output_blobs b ON b.attempt_id = u.attempt_id AND b.tenant_id = u.tenant_id
                                        AND b.digest = u.uploaded
          -- One that is named and not there makes one row too few.
          WHERE (u.uploaded IS NULL) = (b.attempt_id IS NULL)",
        &tenants,
        &ids,
        &reports,
        &out_heads as &[&[u8]],
        &out_tails as &[&[u8]],
        &err_heads as &[&[u8]],
        &err_tails as &[&[u8]],
        &uploaded as &[Option<&[u8]>],
        out_head,
        out_tail,
        err_head,
        err_tail
    );
    expect_rows(done.execute(connection).await, ids.len(), "keep the results")
}

/// Removes what was left of the output of attempts that are over now, named or not, and of files that are not named.
pub(crate) async fn outputs_gone(
    connection: &mut PgConnection,
    decided: &Decided<'_>,
    moves: &Moves<'_>,
) -> Result<(), StoreError> {
    let over = decided.changes.iter().filter_map(|change| match change {
        Change::AttemptEnded { attempt, .. } => Some(attempt.as_uuid()),
        _ => None,
    });
    let over: Vec<_> = over.collect();
    if over.is_empty() {
        return Ok(());
    }
    let (mut kept_of, mut kept) = (Vec::new(), Vec::new());
    for (_, attempt, report) in &moves.results {
        for file in report.artifacts.iter().flat_map(|artifacts| &artifacts.files) {
            kept_of.push(attempt.as_uuid());
            kept.push(blobs::column(file.number));
        }
    }
    sqlx::query!(
        "/* outputs_gone */
         WITH outputs AS (DELETE FROM output_blobs WHERE attempt_id = ANY ($1))
         DELETE FROM artifact_pieces p
          WHERE p.attempt_id = ANY ($1)
            AND NOT EXISTS (SELECT 1 FROM unnest($2::uuid[], $3::integer[]) AS kept (attempt_id, file)
                             WHERE kept.attempt_id = p.attempt_id AND kept.file = p.file)",
        &over,
        &kept_of,
        &kept
    )
    .execute(connection)
    .await
    .map_err(query("remove what runs have left"))?;
    Ok(())
}
