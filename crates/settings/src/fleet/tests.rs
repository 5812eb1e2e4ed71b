use super::*;

fn executor(change: impl FnOnce(&mut ExecutorSettings)) -> Result<(), String> {
    let mut settings = ExecutorSettings::default();
    change(&mut settings);
    settings.check().map_err(|error| error.to_string())
}

#[test]
fn what_makes_no_sense_of_an_executor_is_named() {
    assert_eq!(executor(|_| {}), Ok(()));
    let digest = format!("sha256:{}", "0".repeat(64));
    for reference in [digest.clone(), format!("docker.io/library/python@{digest}")] {
        assert_eq!(
            executor(|settings| drop(settings.images.insert("python".to_owned(), reference))),
            Ok(())
        );
    }
    type Change = fn(&mut ExecutorSettings);
    let changes: [(Change, &str); 9] = [
        (|settings| settings.slots = 0, "executor.slots"),
        (|settings| settings.slots = SANDBOXES + 1, "executor.slots"),
        (|settings| settings.pool = "a.b".to_owned(), "executor.pool"),
        (
            |settings| settings.self_test_every = Span::seconds(0),
            "executor.self_test_every",
        ),
        (
            |settings| settings.self_test_every = Span::seconds(31 * 24 * 3600),
            "executor.self_test_every",
        ),
        (
            |settings| settings.grace = Span::seconds(90_000),
            "executor.grace",
        ),
        (
            |settings| drop(settings.images.insert("python".to_owned(), "python:3".to_owned())),
            "executor.images.python",
        ),
        (
            |settings| {
                let digest = format!("sha256:{}", "0".repeat(64));
                let many = (0..=MOST_IMAGES).map(|number| (format!("image-{number}"), digest.clone()));
                settings.images = many.collect();
            },
            "executor.images",
        ),
        (
            |settings| {
                drop(
                    settings
                        .images
                        .insert("Py thon".to_owned(), "sha256:0".to_owned()),
                )
            },
            "executor.images.Py thon",
        ),
    ];
    for (change, path) in changes {
        let error = executor(change).unwrap_err();
        assert!(error.contains(path), "{error}");
    }
}

#[test]
fn an_executor_without_an_id_is_told_how_to_get_one() {
    let mut settings = ExecutorSettings::default();
    let error = settings.id().unwrap_err().to_string();
    assert!(error.contains("mayfly executor enroll"), "{error}");
    settings.id = "worker-1".to_owned();
    assert!(settings.id().unwrap_err().to_string().contains("executor.id"));
    let id = ExecutorId::new();
    settings.id = id.to_string();
    assert_eq!(settings.id().unwrap(), id);
}

#[test]
fn a_server_needs_a_pool_and_both_halves_of_its_tls() {
    let check = |change: fn(&mut ServerSettings)| {
        let mut settings = ServerSettings::default();
        change(&mut settings);
        settings.check().map_err(|error| error.to_string())
    };
    assert_eq!(check(|_| {}), Ok(()));
    assert!(
        check(|settings| settings.pools.clear())
            .unwrap_err()
            .contains("server.pools")
    );
    assert!(
        check(|settings| settings.pools = vec!["A".to_owned()])
            .unwrap_err()
            .contains("`A` is no pool")
    );
    for url in [
        "http://server:8420",
        "https://fleet.example/mayfly/",
        "https://[::1]:8420",
    ] {
        let settings = ServerSettings {
            public_url: url.to_owned(),
            ..ServerSettings::default()
        };
        assert!(settings.check().is_ok(), "{url}");
    }
    for url in [
        "server:8420",
        "ftp://a",
        "https://",
        "http://:80",
        "https://a?b",
        "https://u:p@a",
        "https://a b",
    ] {
        let settings = ServerSettings {
            public_url: url.to_owned(),
            ..ServerSettings::default()
        };
        let error = settings.check().unwrap_err().to_string();
        assert!(error.contains("server.public_url"), "{url}: {error}");
    }
    assert!(
        check(|settings| settings.input_in_message = ByteSize::mib(17))
            .unwrap_err()
            .contains("server.input_in_message")
    );
    assert!(
        check(|settings| settings.output_in_message = ByteSize::bytes(1023))
            .unwrap_err()
            .contains("server.output_in_message")
    );
    assert!(
        check(|settings| settings.tls_cert = "cert.pem".into())
            .unwrap_err()
            .contains("server.tls_key")
    );
}

#[test]
fn an_address_that_is_not_given_is_named_with_the_way_to_give_it() {
    let database = DatabaseSettings::default();
    for (missing, path) in [
        (database.owner(), "database.owner_url"),
        (database.api(), "database.api_url"),
        (database.engine(), "database.engine_url"),
        (BrokerSettings::default().amqp(), "broker.url"),
        (ServerSettings::default().token_key(), "server.token_key"),
    ] {
        let error = missing.unwrap_err().to_string();
        assert!(error.contains(path) && error.contains("_file"), "{error}");
    }
    assert_eq!(BrokerSettings::default().management().unwrap(), None);
    let short = ServerSettings {
        token_key: Secret::from("a".repeat(TOKEN_KEY_BYTES - 1)),
        ..ServerSettings::default()
    };
    let error = short.token_key().unwrap_err().to_string();
    assert!(error.contains("at least 32"), "{error}");
}
