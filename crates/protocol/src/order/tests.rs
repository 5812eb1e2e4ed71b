use super::*;
use crate::testing::{job, warm_order};
use crate::{FileHeader, MAX_DATA};

fn file(size: u64) -> ToGuest {
    ToGuest::File(FileHeader {
        path: "a".to_owned(),
        mode: 0o644,
        size,
    })
}

/// The answers to all but the last frame must be good; the last one's is returned.
fn last(frames: &[ToGuest]) -> Result<(), ProtocolError> {
    let mut order = CommandOrder::new();
    let (last, before) = frames.split_last().unwrap();
    for frame in before {
        order
            .accept(frame)
            .unwrap_or_else(|error| panic!("{frame:?}: {error}"));
    }
    order.accept(last)
}

#[test]
fn what_may_not_stand_somewhere_is_refused_there() {
    let start = || ToGuest::Start;
    let warm = || ToGuest::Warm(warm_order());
    let takes = |files, stdin| ToGuest::Job(job(files, stdin));
    let credit = ToGuest::Credit {
        stream: StreamId::STDOUT,
        bytes: 1,
    };
    for frames in [
        vec![start()],
        vec![file(0)],
        vec![credit],
        vec![ToGuest::Stdin(vec![1])],
        vec![takes(0, false), takes(0, false)],
        vec![takes(0, false), file(0)],
        vec![takes(1, false), start()],
        vec![takes(1, false), ToGuest::FileEnd],
        vec![takes(1, false), file(0), start()],
        vec![takes(2, false), file(0), file(0)],
        vec![takes(1, true), ToGuest::Stdin(vec![1])],
        vec![takes(0, false), start(), ToGuest::Stdin(vec![1])],
        vec![takes(0, false), start(), start()],
        vec![
            takes(0, true),
            start(),
            ToGuest::StdinClose,
            ToGuest::Stdin(vec![1]),
        ],
        vec![takes(0, true), start(), ToGuest::StdinClose, ToGuest::StdinClose],
        vec![takes(0, true), ToGuest::Kill, start()],
        vec![ToGuest::Kill, takes(0, true)],
        vec![warm(), warm()],
        vec![warm(), takes(0, true)],
        vec![warm(), start()],
        vec![takes(0, true), warm()],
        vec![ToGuest::Kill, warm()],
    ] {
        let refused = last(&frames);
        assert!(
            matches!(refused, Err(ProtocolError::Order { .. })),
            "{frames:?}: {refused:?}"
        );
    }
}

#[test]
fn a_file_has_exactly_the_size_announced() {
    let begun = [ToGuest::Job(job(1, false)), file(3)];
    let with = |more: &[ToGuest]| last(&[&begun, more].concat());
    assert_eq!(
        with(&[ToGuest::FileData(vec![0; 4])]),
        Err(ProtocolError::FileSize)
    );
    assert_eq!(
        with(&[ToGuest::FileData(vec![0; 2]), ToGuest::FileEnd]),
        Err(ProtocolError::FileSize)
    );
    assert_eq!(
        with(&[
            ToGuest::FileData(vec![0; 2]),
            ToGuest::FileData(vec![0; 1]),
            ToGuest::FileEnd
        ]),
        Ok(())
    );
}

#[test]
fn stdin_has_its_first_window_from_the_start_and_no_more() {
    let mut order = CommandOrder::new();
    order.accept(&ToGuest::Job(job(0, true))).unwrap();
    assert_eq!(order.stdin_credit(), 0);
    order.accept(&ToGuest::Start).unwrap();
    assert_eq!(order.stdin_credit(), STDIN_WINDOW);
    for _ in 0..2 {
        order.accept(&ToGuest::Stdin(vec![0; MAX_DATA])).unwrap();
    }
    assert_eq!(order.stdin_credit(), 0);
    let beyond = order.accept(&ToGuest::Stdin(vec![0]));
    assert!(matches!(beyond, Err(ProtocolError::CreditExceeded { .. })));
    order.grant_stdin(1).unwrap();
    order.accept(&ToGuest::Stdin(vec![0])).unwrap();
}

#[test]
fn a_job_of_another_version_or_with_too_many_files_is_refused() {
    let mut other = job(0, false);
    other.version += 1;
    let theirs = other.version;
    assert_eq!(
        last(&[ToGuest::Job(other)]),
        Err(ProtocolError::Version { theirs })
    );
    assert!(last(&[ToGuest::Job(job(MAX_FILES + 1, false))]).is_err());
    assert!(last(&[ToGuest::Job(job(MAX_FILES, false))]).is_ok());
}
