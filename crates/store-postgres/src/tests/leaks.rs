//! What a statement that fails leaves of its values behind: nothing in our errors, and nothing in the server's log. An error
//! about a row shows its values there, and not where row-level security is on.

use std::sync::Arc;

use mayfly_core::{
    chain::Chain,
    outcome::{Cause, EndState},
};
use mayfly_store::contract::bench::{Bench, Plan, report};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

use super::{Server, texts};
use crate::testing::skip;

const OUTPUT: &[u8] = b"output-of-a-job";

/// Whether it stands there, as it is or in hexadecimal digits.
fn has_output(text: &str) -> bool {
    let digits: String = OUTPUT.iter().map(|byte| format!("{byte:02x}")).collect();
    text.contains(&digits) || text.contains(std::str::from_utf8(OUTPUT).unwrap())
}

/// The server's log, as `scripts/services` has it: a file beside the data.
const PLACE: &str = "(SELECT setting || '/../log' FROM pg_settings WHERE name = 'data_directory')";

/// Where it ends; none where there is no such file.
async fn log_end(superuser: &mut PgConnection) -> Option<u64> {
    let size = format!("SELECT size::text FROM pg_stat_file({PLACE}, true) WHERE size IS NOT NULL");
    let size = texts(superuser, &size).await;
    size.first().map(|size| size.parse().unwrap())
}

async fn log_from(superuser: &mut PgConnection, from: u64) -> String {
    let log = format!("SELECT encode(pg_read_binary_file({PLACE}, {from}, 1 << 24), 'escape')");
    texts(superuser, &log).await.concat()
}

#[tokio::test]
async fn a_result_that_can_not_be_written_leaves_nothing_of_its_output_behind() {
    let Some(server) = Server::new().await else { return };
    let mut bench = Bench::new(Arc::new(server.clone())).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::once(), &mut client).await;
    let finished = client.finish(
        message.attempt,
        report(EndState::Succeeded, Cause::Exited, OUTPUT),
    );
    let mut superuser = server.superuser().await;
    let name = format!("refuses_{}", server.database.name());
    let refuse = format!("ALTER TABLE results ADD CONSTRAINT {name} CHECK (length(stdout_head) = 0)");
    superuser.execute(AssertSqlSafe(refuse)).await.unwrap();

    for logs_statements in [false, true] {
        if logs_statements {
            // As `docs/database.md` has it; it counts for new connections.
            for set in ["log_min_duration_statement", "log_parameter_max_length"] {
                let set = format!("ALTER DATABASE {} SET {set} = 0", server.database.name());
                superuser.execute(AssertSqlSafe(set)).await.unwrap();
            }
            bench.store = Arc::new(server.store().await);
        }
        let end = log_end(&mut superuser).await;
        let error = bench.try_send(&finished).await.unwrap_err();
        let said = Chain(&error).to_string();
        assert!(said.contains(&name), "it is about that: {said}");
        assert!(!has_output(&said), "{said}");
        let Some(end) = end else {
            skip("the server's log is no file beside its data");
            return;
        };
        let log = log_from(&mut superuser, end).await;
        assert!(log.contains(&name), "it is logged: {log}");
        assert_eq!(log.contains("duration: "), logs_statements, "{log}");
        assert!(!has_output(&log), "{log}");
    }

    // Whoever passes row-level security by is shown the row: it would be seen.
    let end = log_end(&mut superuser).await.unwrap();
    let insert = "INSERT INTO results SELECT t, t, '', o, o, o, o
                    FROM gen_random_uuid() AS t, convert_to('output-' || 'of-a-job', 'UTF8') AS o";
    assert!(superuser.execute(AssertSqlSafe(insert)).await.is_err());
    assert!(has_output(&log_from(&mut superuser, end).await));
}
