use super::*;
use crate::testing::{encoded, report};
use crate::{Decoder, FromGuest};

/// Encodes and decodes, as the executor would get it.
fn as_received(report: &ReadyReport) -> ReadyReport {
    let bytes = encoded(&FromGuest::Ready(Box::new(report.clone())));
    let frame = Decoder::new().decode(&mut bytes.as_slice()).unwrap();
    let Some(FromGuest::Ready(received)) = frame else {
        panic!("{frame:?}")
    };
    *received
}

#[test]
fn a_report_that_fits_stays_as_it_is() {
    let mut fitting = report();
    fitting.fit();
    assert_eq!(fitting, report());
    assert_eq!(as_received(&fitting), report());
}

#[test]
fn a_report_of_any_size_fits_a_frame_and_says_that_it_was_cut() {
    let long = "\u{1}é".repeat(100);
    let mut huge = report();
    let mount = Mount {
        mount_point: long.clone(),
        options: vec![long.clone(); 100],
        super_options: vec![long.clone(); 100],
        ..report().mounts[0].clone()
    };
    huge.mounts = vec![mount; 200];
    huge.present = vec![long.clone(); 1000];
    huge.interfaces = Some(vec![long.clone(); 1000]);
    huge.devices = Some(vec![long.clone(); 1000]);
    huge.guest.groups = vec![1; 65_536];
    huge.uid_map = vec![report().uid_map[0]; 340];
    huge.build = long.clone();
    huge.kernel.version = long;
    huge.fit();
    assert!(huge.truncated);
    assert_eq!(as_received(&huge), huge);
}

#[test]
fn one_name_or_range_too_many_is_a_cut_too() {
    let mut many = report();
    many.interfaces = Some(vec!["lo".to_owned(); 65]);
    many.fit();
    assert!(many.truncated);
    assert_eq!(many.interfaces.as_ref().map(Vec::len), Some(64));
    let mut many = report();
    many.gid_map = vec![report().uid_map[0]; 17];
    let refused = Decoder::<FromGuest>::new()
        .decode(&mut encoded(&FromGuest::Ready(Box::new(many.clone()))).as_slice());
    assert!(refused.is_err(), "{refused:?}");
    many.fit();
    assert!(many.truncated);
    assert_eq!(as_received(&many).gid_map.len(), 16);
}
