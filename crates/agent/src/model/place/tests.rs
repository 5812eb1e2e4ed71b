use super::*;

fn variables(list: &[(&str, &str)]) -> HashMap<String, String> {
    list.iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn environment(process: &[(&str, &str)], file: &[(&str, &str)]) -> Environment {
    Environment {
        process: variables(process),
        file: Some(DotEnv {
            path: "/somewhere/.env".into(),
            variables: variables(file),
        }),
    }
}

fn key_of(place: &Place) -> Option<String> {
    let header = place.key.as_ref()?.header("")?;
    Some(header.to_str().unwrap().to_owned())
}

#[test]
fn keys_and_addresses_come_from_the_environment_then_from_the_file() {
    let place = Place::of(
        Provider::Anthropic,
        &environment(
            &[("ANTHROPIC_API_KEY", "of-process")],
            &[("ANTHROPIC_API_KEY", "of-file")],
        ),
    )
    .unwrap();
    assert_eq!(place.base.as_str(), "https://api.anthropic.com/");
    assert_eq!(key_of(&place).as_deref(), Some("of-process"));
    assert!(!place.is_elsewhere);

    let place = Place::of(
        Provider::OpenAi,
        &environment(
            &[("OPENAI_BASE_URL", "https://llm.example.com/openai/v1")],
            &[("OPENAI_API_KEY", "of-file")],
        ),
    )
    .unwrap();
    assert_eq!(place.base.as_str(), "https://llm.example.com/openai/v1/");
    assert_eq!(key_of(&place).as_deref(), Some("of-file"));
    assert_eq!(place.host(), "llm.example.com");

    let error = Place::of(Provider::Gemini, &environment(&[("OPENAI_API_KEY", "x")], &[])).unwrap_err();
    assert!(error.to_string().contains("GEMINI_API_KEY"), "{error}");
    // A server of one's own may want none.
    let own = [("OPENAI_BASE_URL", "http://vllm.internal:8000/v1")];
    assert_eq!(
        key_of(&Place::of(Provider::OpenAi, &environment(&own, &[])).unwrap()),
        None
    );
    let ollama = Place::of(Provider::Ollama, &environment(&[], &[])).unwrap();
    assert_eq!(ollama.host(), "localhost:11434");
}

#[test]
fn an_address_in_a_file_never_gets_a_key_that_is_not_in_it() {
    let evil = [("OPENAI_BASE_URL", "https://evil.example")];
    let refused = Place::of(
        Provider::OpenAi,
        &environment(&[("OPENAI_API_KEY", "of-process")], &evil),
    );
    assert!(
        matches!(refused, Err(PlaceError::NotItsKey { .. })),
        "{refused:?}"
    );

    let both = [
        ("OPENAI_BASE_URL", "https://own.example"),
        ("OPENAI_API_KEY", "of-file"),
    ];
    let place = Place::of(
        Provider::OpenAi,
        &environment(&[("OPENAI_API_KEY", "of-process")], &both),
    )
    .unwrap();
    assert_eq!(key_of(&place).as_deref(), Some("of-file"));

    // Whoever sets the address in the environment has the last word, and the file's says nothing.
    let over = [
        ("OPENAI_API_KEY", "of-process"),
        ("OPENAI_BASE_URL", "https://good.example"),
    ];
    let place = Place::of(Provider::OpenAi, &environment(&over, &evil)).unwrap();
    assert_eq!(
        (place.host().as_str(), key_of(&place).as_deref()),
        ("good.example", Some("of-process"))
    );

    // It names no files to be read and sent.
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("id");
    fs::write(&secret, "of-another").unwrap();
    let named = [
        ("OPENAI_BASE_URL", "https://evil.example"),
        ("OPENAI_API_KEY_FILE", secret.to_str().unwrap()),
    ];
    assert_eq!(
        key_of(&Place::of(Provider::OpenAi, &environment(&[], &named)).unwrap()),
        None
    );
}

#[test]
fn a_key_is_in_its_variable_or_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    fs::write(&file, "sk-from-file\n").unwrap();
    let file = file.to_str().unwrap();
    let place = Place::of(
        Provider::OpenAi,
        &environment(&[("OPENAI_API_KEY_FILE", file)], &[]),
    )
    .unwrap();
    assert_eq!(key_of(&place).as_deref(), Some("sk-from-file"));
    let both = [("OPENAI_API_KEY_FILE", file), ("OPENAI_API_KEY", "x")];
    let error = Place::of(Provider::OpenAi, &environment(&both, &[])).unwrap_err();
    assert!(matches!(error, PlaceError::Both { .. }), "{error}");
    let none = [("OPENAI_API_KEY_FILE", "/nowhere/key")];
    let error = Place::of(Provider::OpenAi, &environment(&none, &[])).unwrap_err();
    assert!(error.to_string().contains("/nowhere/key"), "{error}");
    let broken = [("OPENAI_API_KEY", "sk-hunter2 x")];
    let error = Place::of(Provider::OpenAi, &environment(&broken, &[])).unwrap_err();
    assert!(!format!("{error:?} {error}").contains("hunter2"), "{error}");
}

#[test]
fn a_key_travels_encrypted_or_stays_on_the_host_and_an_address_holds_nothing_else() {
    let at = |base: &str| {
        Place::of(
            Provider::OpenAi,
            &environment(&[("OPENAI_API_KEY", "x"), ("OPENAI_BASE_URL", base)], &[]),
        )
    };
    for base in [
        "http://127.0.0.1:9/v1",
        "http://localhost:9",
        "http://[::1]:9",
        "https://10.0.0.1",
    ] {
        assert!(at(base).is_ok(), "{base}");
    }
    for base in [
        "http://10.0.0.1/v1",
        "http://localhost.example.com",
        "http://0.0.0.0:9",
    ] {
        assert!(matches!(at(base), Err(PlaceError::PlainHttp { .. })), "{base}");
    }
    for base in [
        "llm.example.com",
        "ftp://h",
        "https://u:hunter2@h",
        "https://h/?key=hunter2",
        "https://h/#hunter2",
    ] {
        let error = at(base).unwrap_err();
        assert!(matches!(error, PlaceError::Address { .. }), "{base}");
        assert!(!error.to_string().contains("hunter2"));
    }
}

#[test]
fn a_file_is_lines_of_pairs_and_nothing_in_it_is_substituted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".env");
    assert!(DotEnv::read(&path).unwrap().is_none());
    fs::write(
        &path,
        "# models\nMODEL=gpt-4o # cheap\nexport OPENAI_API_KEY = 'sk-#1'\n\nA=\"b c\" # d\nB=$HOME${A}#1\nEMPTY=\n",
    )
    .unwrap();
    let file = DotEnv::read(&path).unwrap().unwrap();
    let expected = variables(&[
        ("MODEL", "gpt-4o"),
        ("OPENAI_API_KEY", "sk-#1"),
        ("A", "b c"),
        ("B", "$HOME${A}#1"),
        ("EMPTY", ""),
    ]);
    assert_eq!(file.variables, expected);
    assert!(!format!("{file:?}").contains("sk-"), "{file:?}");
    let environment = Environment {
        process: HashMap::new(),
        file: Some(file),
    };
    assert_eq!(environment.get("EMPTY"), None);
    for (text, line) in [("A=1\nsk-hunter2\n", 2), ("a b=1", 1), ("A='1\n", 1), ("=1", 1)] {
        fs::write(&path, text).unwrap();
        let error = DotEnv::read(&path).unwrap_err().to_string();
        assert!(
            error.contains(&format!("line {line}")) && !error.contains("hunter2"),
            "{error}"
        );
    }
    fs::write(&path, "A=1\n".repeat(1 << 15)).unwrap();
    assert!(matches!(DotEnv::read(&path), Err(DotEnvError::TooLarge { .. })));
}
