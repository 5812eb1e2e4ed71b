use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::testing::{any_from_guest, any_to_guest, encoded, started};
use crate::{FromGuest, ToGuest};

/// Decodes `bytes` in portions of the given sizes, over and over, up to an error.
fn decode_all<M: Incoming>(
    decoder: &mut Decoder<M>,
    mut bytes: &[u8],
    portions: &[usize],
) -> (Vec<M>, Option<ProtocolError>) {
    let mut frames = Vec::new();
    let mut portions = portions.iter().cycle();
    while !bytes.is_empty() {
        let size = portions
            .next()
            .map_or(bytes.len(), |size| (*size).clamp(1, bytes.len()));
        let (mut portion, rest) = bytes.split_at(size);
        bytes = rest;
        loop {
            match decoder.decode(&mut portion) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(portion.is_empty(), "None means that all input is used");
    }
    (frames, None)
}

fn header(kind: u8, flags: u8, stream: u16, length: u32) -> Vec<u8> {
    let mut bytes = vec![kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

fn held_bytes<M>(decoder: &Decoder<M>) -> usize {
    match &decoder.state {
        State::Payload { payload, .. } => payload.capacity(),
        State::Header | State::Skip { .. } | State::Failed(_) => 0,
    }
}

proptest! {
    #[test]
    fn frames_to_the_guest_survive_any_chunking(
        frames in vec(any_to_guest(), 0..8),
        portions in vec(1_usize..5000, 1..6),
    ) {
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.encode(&mut bytes).unwrap();
        }
        let mut decoder = Decoder::<ToGuest>::new();
        prop_assert_eq!(decode_all(&mut decoder, &bytes, &portions), (frames, None));
        prop_assert!(!decoder.is_inside_frame());
    }

    #[test]
    fn frames_from_the_guest_survive_any_chunking(
        frames in vec(any_from_guest(), 0..8),
        portions in vec(1_usize..5000, 1..6),
    ) {
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.encode(&mut bytes).unwrap();
        }
        let mut decoder = Decoder::<FromGuest>::new();
        prop_assert_eq!(decode_all(&mut decoder, &bytes, &portions), (frames, None));
        prop_assert!(!decoder.is_inside_frame());
    }

    #[test]
    fn arbitrary_bytes_neither_panic_nor_hold_more_than_a_frame(
        bytes in vec(any::<u8>(), 0..3000),
        portions in vec(1_usize..100, 1..6),
    ) {
        let mut decoder = Decoder::<FromGuest>::new();
        let _ = decode_all(&mut decoder, &bytes, &portions);
        prop_assert!(held_bytes(&decoder) <= MAX_PAYLOAD);
    }

    #[test]
    fn a_real_conversation_with_one_byte_changed_neither_panics_nor_grows(
        frames in vec(any_from_guest(), 1..5),
        place in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.encode(&mut bytes).unwrap();
        }
        let place = place.index(bytes.len());
        bytes[place] = value;
        let mut decoder = Decoder::<FromGuest>::new();
        let _ = decode_all(&mut decoder, &bytes, &[7, 500]);
        prop_assert!(held_bytes(&decoder) <= MAX_PAYLOAD);
    }

    #[test]
    fn a_length_past_its_kinds_bound_is_refused_before_a_byte_is_kept(
        kind in 0x81_u8..=0x89,
        length in any::<u32>(),
    ) {
        let mut decoder = Decoder::<FromGuest>::new();
        let (least, most) = FromGuest::payload_bounds(kind).unwrap();
        let decoded = decoder.decode(&mut header(kind, 0, 0, length).as_slice());
        if (least..=most).contains(&usize::try_from(length).unwrap()) {
            prop_assert!(held_bytes(&decoder) <= MAX_PAYLOAD);
        } else {
            prop_assert_eq!(decoded, Err(ProtocolError::Length { kind, bytes: length }));
            prop_assert_eq!(held_bytes(&decoder), 0);
        }
    }
}

#[test]
fn an_error_is_final() {
    let mut decoder = Decoder::<FromGuest>::new();
    let unknown = Err(ProtocolError::UnknownKind { kind: 0xbf });
    assert_eq!(decoder.decode(&mut header(0xbf, 0, 0, 0).as_slice()), unknown);
    let mut good = &*encoded(&started());
    assert_eq!(decoder.decode(&mut good), unknown);
}

#[test]
fn each_end_takes_frames_of_the_other_alone() {
    let mut started = &*encoded(&started());
    let kind = started[0];
    let refused = Decoder::<ToGuest>::new().decode(&mut started);
    assert_eq!(refused, Err(ProtocolError::UnknownKind { kind }));
    let mut alive = Vec::new();
    ToGuest::Alive.encode(&mut alive).unwrap();
    let refused = Decoder::<FromGuest>::new().decode(&mut alive.as_slice());
    assert_eq!(refused, Err(ProtocolError::UnknownKind { kind: alive[0] }));
}

#[test]
fn unknown_advisory_frames_are_skipped_and_counted() {
    let mut decoder = Decoder::<FromGuest>::new();
    let mut advisory = header(0xc1, 9, 77, 3);
    advisory.extend([1, 2, 3]);
    let wanted = encoded(&started());
    for _ in 0..MAX_SKIPPED_FRAMES {
        let (frames, error) = decode_all(&mut decoder, &[&*advisory, &*wanted].concat(), &[1, 4]);
        assert_eq!((frames, error), (vec![started()], None));
    }
    let (frames, error) = decode_all(&mut decoder, &advisory, &[100]);
    assert_eq!((frames, error), (vec![], Some(ProtocolError::TooManySkipped)));
}

#[test]
fn an_advisory_frame_keeps_the_bound_of_all_frames() {
    let length = u32::try_from(MAX_PAYLOAD).unwrap() + 1;
    let refused = Decoder::<FromGuest>::new().decode(&mut header(0xc1, 0, 0, length).as_slice());
    assert_eq!(
        refused,
        Err(ProtocolError::Length {
            kind: 0xc1,
            bytes: length
        })
    );
}

#[test]
fn flags_and_streams_that_mean_nothing_are_refused() {
    for (bytes, error) in [
        (
            header(0x82, 1, 0, 0),
            ProtocolError::Flags { kind: 0x82, flags: 1 },
        ),
        (
            [header(0x82, 0, 3, 2), b"{}".to_vec()].concat(),
            ProtocolError::Stream {
                kind: 0x82,
                stream: StreamId(3),
            },
        ),
    ] {
        assert_eq!(
            Decoder::<FromGuest>::new().decode(&mut bytes.as_slice()),
            Err(error)
        );
    }
    let mut on_the_wrong_stream = header(0x83, 0, 2, 1);
    on_the_wrong_stream.push(b'x');
    assert_eq!(
        Decoder::<FromGuest>::new().decode(&mut on_the_wrong_stream.as_slice()),
        Err(ProtocolError::Stream {
            kind: 0x83,
            stream: StreamId(2)
        })
    );
}

#[test]
fn frames_without_content_that_need_some_are_refused() {
    for kind in [0x83, 0x84] {
        let refused = Decoder::<FromGuest>::new().decode(&mut header(kind, 0, 1, 0).as_slice());
        assert_eq!(refused, Err(ProtocolError::Length { kind, bytes: 0 }));
    }
    let mut nothing_granted = header(0x87, 0, 0, 4);
    nothing_granted.extend([0; 4]);
    assert_eq!(
        Decoder::<FromGuest>::new().decode(&mut nothing_granted.as_slice()),
        Err(ProtocolError::Grant {
            stream: StreamId::STDIN,
            bytes: 0
        })
    );
}

#[test]
fn an_error_never_quotes_the_payload() {
    let payload = br#"{"stage":"file","errno":null,"detail":"x","sekrit":1}"#;
    let mut bytes = header(0x86, 0, 0, u32::try_from(payload.len()).unwrap());
    bytes.extend(payload);
    let error = Decoder::<FromGuest>::new()
        .decode(&mut bytes.as_slice())
        .unwrap_err();
    assert!(matches!(error, ProtocolError::Payload { kind: 0x86, .. }));
    assert!(!format!("{error} {error:?}").contains("sekrit"));
}

#[test]
fn a_list_is_bounded_while_it_is_parsed() {
    let frame = encoded(&FromGuest::Ready(Box::new(crate::testing::report())));
    let json = String::from_utf8(frame[HEADER_BYTES..].to_vec()).unwrap();
    for (least, list) in [(r#""groups":["#, "0,"), (r#""interfaces":["#, r#""x","#)] {
        let many = json.replacen(least, &format!("{least}{}", list.repeat(64)), 1);
        let mut bytes = header(0x81, 0, 0, u32::try_from(many.len()).unwrap());
        bytes.extend(many.as_bytes());
        let refused = Decoder::<FromGuest>::new().decode(&mut bytes.as_slice());
        assert!(matches!(refused, Err(ProtocolError::Payload { .. })), "{least}");
    }
}
