//! `mayfly executor`, `mayfly dead-letter` and `mayfly image` at a server.

use std::process::ExitCode;

use mayfly_client::{Client, ClientError};
use mayfly_core::id::ExecutorId;
use mayfly_wire::{
    dead_letter::DeadLetter,
    executor::{Executor, ExecutorState, SelfTest},
    image::{Image, PinImage},
};

use super::{Remote, lists::json_lines};
use crate::{
    args::{
        ImageCommand,
        remote::{DeadLetterCommand, ExecutorCommand},
    },
    catalog, exit,
    failure::Failure,
    report::{time, word},
    show::table,
    terminal::{print, shown},
};

/// Entries that one request of a whole list asks for.
const PAGE: u32 = 1000;
/// Digits of a dead letter's id that a table shows, and that name it where they name no other.
const SHORT: usize = 12;
/// Fewest digits by which a dead letter is found.
const SHORTEST: usize = 8;

pub(crate) async fn executor(remote: &Remote, command: ExecutorCommand) -> Result<ExitCode, Failure> {
    let client = &remote.client;
    let all = executors(client).await?;
    match command {
        ExecutorCommand::List { json } => {
            print(&if json { json_lines(&all)? } else { listed(&all) })?;
        }
        ExecutorCommand::Cordon { executors } => {
            for (id, name) in named(&all, &executors)? {
                client.cordon(id).await?;
                print(&format!("executor {name} is cordoned: it takes nothing new\n"))?;
            }
        }
        ExecutorCommand::Uncordon { executors } => {
            for (id, name) in named(&all, &executors)? {
                client.uncordon(id).await?;
                print(&format!("executor {name} takes jobs again\n"))?;
            }
        }
        ExecutorCommand::Drain { executors } => {
            for (id, name) in named(&all, &executors)? {
                client.drain(id).await?;
                print(&format!(
                    "executor {name} takes nothing new, finishes what it runs, and ends\n"
                ))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn executors(client: &Client) -> Result<Vec<Executor>, ClientError> {
    client.executors(PAGE).take(usize::MAX).await
}

/// Executors by their names or ids. All are known before anything is done to one.
fn named(all: &[Executor], asked: &[String]) -> Result<Vec<(ExecutorId, String)>, Failure> {
    let find = |text: &String| {
        let fits = |executor: &&Executor| executor.name == *text || executor.executor.to_string() == *text;
        let found = all.iter().find(fits).ok_or_else(|| {
            let error =
                anyhow::anyhow!("there is no executor {text}: `mayfly executor list` shows which there are");
            Failure::new(exit::NOT_FOUND, error)
        })?;
        Ok((found.executor, shown(&found.name)))
    };
    asked.iter().map(find).collect()
}

/// A table of executors.
pub(super) fn listed(executors: &[Executor]) -> String {
    let mut table = table([
        "EXECUTOR",
        "POOL",
        "STATE",
        "RUNNING",
        "SLOTS",
        "SELF-TEST",
        "BUILD",
        "HOST",
        "ENGINE",
        "ID",
    ]);
    for executor in executors {
        let session = executor.session.as_ref();
        let is_there = is_there(executor.state);
        let count = |number: fn(&mayfly_wire::executor::ExecutorSession) -> u64| {
            session
                .filter(|_| is_there)
                .map_or_else(String::new, |session| number(session).to_string())
        };
        let text = |text: fn(&mayfly_wire::executor::ExecutorSession) -> &str| {
            session.map_or_else(String::new, |session| shown(text(session)))
        };
        table.add_row([
            shown(&executor.name),
            shown(&executor.pool),
            state(executor),
            count(|session| session.running),
            count(|session| u64::from(session.slots)),
            test_of(executor).map_or_else(String::new, tested),
            text(|session| &session.build),
            text(|session| &session.host),
            text(|session| &session.engine),
            executor.executor.to_string(),
        ]);
    }
    let unfit = executors
        .iter()
        .filter(|executor| executor.state == ExecutorState::Unfit);
    let reasons: String = unfit.map(why_unfit).collect();
    format!("{table}\n{reasons}")
}

/// Whether its newest session goes on.
pub(super) const fn is_there(state: ExecutorState) -> bool {
    match state {
        ExecutorState::Live | ExecutorState::Cordoned | ExecutorState::Unfit => true,
        ExecutorState::NeverSeen | ExecutorState::Gone => false,
    }
}

fn test_of(executor: &Executor) -> Option<&SelfTest> {
    executor
        .session
        .as_ref()
        .and_then(|session| session.self_test.as_ref())
}

fn tested(test: &SelfTest) -> String {
    format!("{} {}", word(test.result).replace('_', " "), time(test.at))
}

/// What an executor that takes no jobs has failed at, a line for each program.
fn why_unfit(executor: &Executor) -> String {
    let mut lines = format!(
        "executor {} takes no jobs until its self-test passes:\n",
        shown(&executor.name)
    );
    for failure in test_of(executor).map_or(&[][..], |test| &test.failures) {
        let [probe, runtime, why] = [&failure.probe, &failure.runtime, &failure.why].map(|text| shown(text));
        lines += &format!("  {probe} on {runtime}: {why}\n");
    }
    lines
}

fn state(executor: &Executor) -> String {
    let word = word(executor.state).replace('_', " ");
    if executor.cordoned && executor.state != ExecutorState::Cordoned {
        format!("{word}, cordoned")
    } else {
        word
    }
}

pub(crate) async fn dead_letter(remote: &Remote, command: DeadLetterCommand) -> Result<ExitCode, Failure> {
    let client = &remote.client;
    match command {
        DeadLetterCommand::List { limit, json } => {
            let list = client.dead_letters(limit).await?;
            if json {
                print(&json_lines(&list.dead_letters)?)?;
            } else {
                let more = if list.more {
                    "There are more; --limit shows up to 1000.\n"
                } else {
                    ""
                };
                print(&format!("{}{more}", letters(&list.dead_letters)))?;
            }
        }
        DeadLetterCommand::Replay { letters } => {
            for id in ids(remote, &letters).await? {
                client.replay_dead_letter(&id).await?;
                print(&format!("dead letter {} is published again\n", short(&id)))?;
            }
        }
        DeadLetterCommand::Discard { letters } => {
            for id in ids(remote, &letters).await? {
                client.discard_dead_letter(&id).await?;
                print(&format!("dead letter {} is forgotten\n", short(&id)))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn letters(letters: &[DeadLetter]) -> String {
    let mut table = table(["ID", "SINCE", "QUEUE", "POOL", "WHY", "REASON", "BYTES", "JOB"]);
    for letter in letters {
        table.add_row([
            short(&letter.id),
            time(letter.at),
            word(letter.origin),
            shown(&letter.pool),
            word(letter.why).replace('_', " "),
            letter.reason.as_deref().map_or_else(String::new, shown),
            letter.bytes.to_string(),
            letter.job.map_or_else(String::new, |job| job.to_string()),
        ]);
    }
    format!("{table}\n")
}

fn short(id: &str) -> String {
    shown(&id.chars().take(SHORT).collect::<String>())
}

/// Whole ids of dead letters, of which the first digits may have been given. All are known before anything is done to one.
async fn ids(remote: &Remote, asked: &[String]) -> Result<Vec<String>, Failure> {
    let known = remote.client.dead_letters(PAGE).await?.dead_letters;
    asked.iter().map(|text| whole(&known, text)).collect()
}

fn whole(known: &[DeadLetter], text: &str) -> Result<String, Failure> {
    if text.len() == 64 {
        return Ok(text.to_owned());
    }
    if text.len() < SHORTEST {
        return Err(Failure::usage(format!(
            "`{text}` is too short: give at least {SHORTEST} digits of the id"
        )));
    }
    let mut found = known.iter().filter(|letter| letter.id.starts_with(text));
    match (found.next(), found.next()) {
        (Some(letter), None) => Ok(letter.id.clone()),
        (Some(_), Some(_)) => Err(Failure::usage(format!(
            "`{text}` begins the ids of several dead letters"
        ))),
        (None, _) => {
            let error = anyhow::anyhow!(
                "there is no dead letter {text}: `mayfly dead-letter list` shows which there are"
            );
            Err(Failure::new(exit::NOT_FOUND, error))
        }
    }
}

pub(crate) async fn image(remote: &Remote, command: ImageCommand) -> Result<ExitCode, Failure> {
    match command {
        ImageCommand::List { json } => {
            let images = remote.client.images().await?.images;
            print(&if json {
                json_lines(&images)?
            } else {
                images_listed(&images)
            })?;
        }
        ImageCommand::Pin { name, reference } => {
            // The engine of this host says what the reference means; which name stands for it is the fleet's.
            let pin = catalog::find_pin(&remote.settings, &name, &reference).await?;
            let image = remote.client.pin_image(&name, &PinImage::from(pin)).await?;
            print(&format!("{name} {}\n", image.pin.digest))?;
        }
        ImageCommand::Ensure { .. } | ImageCommand::Build { .. } => {
            return Err(Failure::usage(
                "this is done on one host's engine: use --local, then `mayfly image pin` for the fleet",
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn images_listed(images: &[Image]) -> String {
    let mut table = table(["NAME", "DIGEST", "PLATFORM", "PINNED FROM", "PINNED"]);
    for image in images {
        table.add_row([
            shown(&image.name),
            image.pin.digest.to_string(),
            shown(&image.pin.platform),
            shown(&image.pin.reference),
            time(image.pinned_at),
        ]);
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use mayfly_wire::dead_letter::{DeadLetterOrigin, WhyDead};

    use super::*;

    #[test]
    fn a_dead_letter_is_named_by_as_many_digits_as_name_no_other() {
        let letter = |id: &str| DeadLetter {
            id: id.to_owned(),
            at: chrono::DateTime::UNIX_EPOCH,
            origin: DeadLetterOrigin::Jobs,
            pool: "default".to_owned(),
            why: WhyDead::Rejected,
            reason: None,
            bytes: 1,
            attempt: None,
            job: None,
            tenant: None,
        };
        let (one, two) = ("12345678a".repeat(7) + "0", "12345678b".repeat(7) + "0");
        let known = [letter(&one), letter(&two)];
        assert_eq!(whole(&known, "12345678a").unwrap(), one);
        assert_eq!(whole(&known, &two).unwrap(), two);
        for (text, says) in [
            ("1234567", "too short"),
            ("12345678", "several"),
            ("99999999", "no dead letter"),
        ] {
            let error = whole(&known, text).unwrap_err().text();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
