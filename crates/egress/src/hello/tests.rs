use proptest::prelude::*;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, pki_types::ServerName};

use super::*;

/// A hello as rustls says it.
fn real(name: &str) -> Vec<u8> {
    let config = ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(config.into(), name).unwrap();
    let mut said = Vec::new();
    client.write_tls(&mut said).unwrap();
    said
}

fn vector16(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&length, content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [kind.to_be_bytes().to_vec(), vector16(content)].concat()
}

fn names(names: &[(u8, &[u8])]) -> Vec<u8> {
    let list: Vec<u8> = names
        .iter()
        .flat_map(|(kind, name)| [vec![*kind], vector16(name)].concat())
        .collect();
    extension(SERVER_NAME, &vector16(&list))
}

/// A message with these extensions, without records around it.
fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0]);
    body.extend(vector16(&[0x13, 1]));
    body.extend([1, 0]);
    body.extend(vector16(&extensions.concat()));
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[CLIENT_HELLO], &length[1..], &body].concat()
}

/// It in records of at most `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    let record = |part: &[u8]| [vec![HANDSHAKE_RECORD, 3, 1], vector16(part)].concat();
    message.chunks(size).flat_map(record).collect()
}

async fn read_all(mut bytes: &[u8]) -> Result<Option<String>, Reason> {
    let hello = read(&mut bytes).await?;
    Ok(hello.server_name.map(String::from))
}

#[tokio::test]
async fn the_name_is_found_in_what_a_real_client_says() {
    assert_eq!(
        read_all(&real("Example.com")).await,
        Ok(Some("example.com".to_owned()))
    );
    // RFC 6066: an address is no server's name, so that it is left out.
    assert_eq!(read_all(&real("192.0.2.1")).await, Ok(None));
}

#[tokio::test]
async fn a_hello_in_pieces_is_put_together() {
    let whole = message(&[names(&[(0, b"a.test")])]);
    for size in [1, 3, 50, 1 << 14] {
        let sent = records(&whole, size);
        assert_eq!(read_all(&sent).await, Ok(Some("a.test".to_owned())), "{size}");
        let hello = read(&mut sent.as_slice()).await.unwrap();
        assert_eq!(hello.raw, sent);
    }
}

#[tokio::test]
async fn a_hello_that_hides_its_name_is_known_as_that() {
    for kind in ENCRYPTED {
        let hidden = message(&[names(&[(0, b"a.test")]), extension(kind, &[0; 40])]);
        assert_eq!(
            read_all(&records(&hidden, 1 << 14)).await,
            Err(Reason::EncryptedHello)
        );
    }
}

#[tokio::test]
async fn what_two_readers_could_read_differently_is_refused() {
    let name = names(&[(0, b"a.test")]);
    let trailing = [message(std::slice::from_ref(&name)), vec![14, 0, 0, 0]].concat();
    let mut long_list = vector16(&[0, 0, 1, b'a', 0, 0]);
    long_list[1] += 1;
    for (what, bad) in [
        ("two lists of names", message(&[name.clone(), name.clone()])),
        ("two names", message(&[names(&[(0, b"a.test"), (0, b"b.test")])])),
        ("a name of another kind", message(&[names(&[(1, b"a.test")])])),
        ("no name in the list", message(&[names(&[])])),
        ("a second message behind it", trailing),
        ("another message", [&[2_u8], &message(&[])[1..]].concat()),
        (
            "a length that lies",
            message(&[extension(SERVER_NAME, &long_list)]),
        ),
        ("a length that is too large", vec![1, 1, 0, 0, 0]),
    ] {
        assert_eq!(
            read_all(&records(&bad, 1 << 14)).await,
            Err(Reason::BadHello),
            "{what}"
        );
    }
    let spelled = message(&[names(&[(0, b"127.0.0.1")])]);
    assert_eq!(
        read_all(&records(&spelled, 100)).await,
        Err(Reason::ServerNameMismatch)
    );
}

#[tokio::test]
async fn what_is_not_tls_is_known_by_its_first_byte() {
    for other in [
        &b"SSH-2.0-x\r\n"[..],
        b"GET / HTTP/1.1\r\n",
        b"\x80\x2e\x01\x03\x01",
        b"\x17\x03\x03",
    ] {
        assert_eq!(read_all(other).await, Err(Reason::NotTls));
    }
    for bad in [
        &b"\x16\x02\x00\x00\x05"[..],
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x40\x01",
        b"\x16\x03",
        b"",
    ] {
        assert_eq!(read_all(bad).await, Err(Reason::BadHello));
    }
}

#[tokio::test]
async fn tls_without_extensions_names_nobody() {
    assert_eq!(read_all(&records(&message(&[]), 100)).await, Ok(None));
}

proptest! {
    #[test]
    fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..300), size in 1_usize..64) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut hostile = vec![CLIENT_HELLO, 0, 0, u8::try_from(bytes.len().min(255)).unwrap()];
        hostile.extend(bytes);
        let _: Result<_, Reason> = runtime.block_on(read_all(&records(&hostile, size)));
    }
}
