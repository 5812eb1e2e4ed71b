use super::*;

fn load(variables: &[(&str, &str)], file: Option<&str>) -> Result<Settings, SettingsError> {
    let folder = tempfile::tempdir().unwrap();
    let file = file.map(|text| {
        let path = folder.path().join("mayfly.toml");
        std::fs::write(&path, text).unwrap();
        path
    });
    let mut all = HashMap::from([("HOME".to_owned(), folder.path().to_str().unwrap().to_owned())]);
    all.extend(
        variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    );
    Settings::load(&Surroundings {
        variables: all,
        file,
        ..Surroundings::default()
    })
}

fn message(error: &SettingsError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[test]
fn nothing_set_gives_the_defaults() {
    let settings = load(&[], None).unwrap();
    assert_eq!(settings.policy, Policy::default());
    assert!(settings.store.path.ends_with(".local/share/mayfly/mayfly.db"));
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_defaults() {
    let file =
        "[policy.limits.defaults]\nmemory = \"512MiB\"\nwall = \"5s\"\n[sandbox]\ndeployment = \"lab\"\n";
    let settings = load(&[("MAYFLY_SANDBOX__DEPLOYMENT", "other")], Some(file)).unwrap();
    assert_eq!(settings.sandbox.deployment, "other");
    assert_eq!(settings.policy.limits.defaults.memory.to_string(), "512MiB");
    assert_eq!(settings.policy.limits.defaults.wall, Span::seconds(5));
    assert_eq!(settings.policy.limits.defaults.pids, 128);
}

#[test]
fn a_flag_wins_over_all() {
    let variables = HashMap::from([
        ("HOME".to_owned(), "/nowhere".to_owned()),
        ("MAYFLY_LOG__FILTER".to_owned(), "info".to_owned()),
    ]);
    let flags = vec![("log.filter", "debug".to_owned())];
    let settings = Settings::load(&Surroundings {
        variables,
        flags,
        ..Surroundings::default()
    })
    .unwrap();
    assert_eq!(settings.log.filter, "debug");
}

#[test]
fn a_service_needs_no_home_and_tells_more() {
    let service = Surroundings {
        is_service: true,
        ..Surroundings::default()
    };
    assert_eq!(Settings::load(&service).unwrap().log.filter, "info");
    let error = Settings::load(&Surroundings::default()).unwrap_err();
    assert!(matches!(error, SettingsError::NoHome));
}

#[test]
fn a_number_of_the_environment_is_a_number() {
    let settings = load(&[("MAYFLY_SANDBOX__FIRST_UID", "30000")], None).unwrap();
    assert_eq!(settings.sandbox.first_uid, 30_000);
}

#[test]
fn the_pool_can_be_set_key_by_key() {
    let file = "[pool]\nsize = 2\n[pool.classes]\nmemory = [\"1GiB\"]\n[pool.images.python]\nmin = 1\n";
    let settings = load(&[("MAYFLY_POOL__SIZE", "4")], Some(file)).unwrap();
    let pool = settings.pool;
    assert_eq!((pool.size, pool.images["python"].min), (4, 1));
    assert_eq!(pool.classes.memory, [mayfly_core::units::ByteSize::mib(1024)]);
    assert_eq!(pool.classes.pids, PoolSettings::default().classes.pids);
}

#[test]
fn the_sections_of_a_fleet_can_be_set_by_variables_alone() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let settings = load(
        &[
            ("MAYFLY_SERVER__LISTEN", "0.0.0.0:9000"),
            ("MAYFLY_SERVER__POOLS", "default, gpu"),
            ("MAYFLY_DATABASE__API_URL_FILE", "/run/secrets/api"),
            ("MAYFLY_BROKER__URL", "amqp://u:p@h"),
            ("MAYFLY_EXECUTOR__IMAGES__PYTHON", &digest),
            ("MAYFLY_EXECUTOR__ACCEPT", "engine.versions"),
            ("MAYFLY_EXECUTOR__POSTURE", "development"),
            ("MAYFLY_EXECUTOR__SLOTS", "4"),
        ],
        None,
    )
    .unwrap();
    assert_eq!(settings.server.listen.to_string(), "0.0.0.0:9000");
    assert_eq!(settings.server.pools, ["default", "gpu"]);
    assert_eq!(settings.broker.amqp().unwrap().expose(), "amqp://u:p@h");
    assert_eq!(settings.executor.images["python"], digest);
    assert_eq!(settings.executor.accept, ["engine.versions"]);
    assert_eq!(settings.executor.posture, Posture::Development);
    assert!(!format!("{settings:?}").contains("u:p"), "a secret is not shown");
    let list = "[server]\npools = [\"a\", \"b\"]\n";
    assert_eq!(load(&[], Some(list)).unwrap().server.pools, ["a", "b"]);
}

#[test]
fn a_wrong_key_is_named_by_its_path() {
    for (variables, file, expected) in [
        (vec![], Some("[sandbox]\nengin = \"x\"\n"), "engin"),
        (vec![("MAYFLY_SANDBOX__ENGIN", "x")], None, "engin"),
        (
            vec![],
            Some("[policy.limits.defaults]\nmemory = 512\n"),
            "policy.limits.defaults.memory",
        ),
        (vec![], Some("[image]\nsource = \"anywhere\"\n"), "image.source"),
        (
            vec![("MAYFLY_IMAGE__SOURCE", "anywhere")],
            None,
            "`auto`, `present`, `pull`, `build`",
        ),
        (vec![("MAYFLY_LOG__FORMAT", "xml")], None, "`text` or `json`"),
        (
            vec![("MAYFLY_POLICY__ON_OUTPUT_LIMIT", "stop")],
            None,
            "`truncate` or `kill`",
        ),
        (
            vec![],
            Some("[policy]\nnetworks = [\"bridge\"]\n"),
            "expected `none`",
        ),
        (
            vec![],
            Some("[policy.artifacts]\nfiles = 1001\nglobs = 65\n"),
            "artifacts.files",
        ),
        (
            vec![],
            Some("[policy.egress]\nallow = [\"pypi.org\", \"*\"]\n"),
            "egress.allow[1]",
        ),
        (
            vec![],
            Some("[policy.redaction]\nwithout = [\"jvt\"]\n"),
            "there is no redaction rule \"jvt\"",
        ),
        (
            vec![("MAYFLY_POLICY__REDACTION__RULES", "some")],
            None,
            "`all` or `none`",
        ),
        (
            vec![("MAYFLY_SANDBOX__FIRST_UID", "many")],
            None,
            "sandbox.first_uid",
        ),
    ] {
        let error = message(&load(&variables, file).unwrap_err());
        assert!(error.contains(expected), "{error}");
    }
    let error = message(&load(&[], Some("[policy.limits.defaults]\nmemory = 512\n")).unwrap_err());
    assert!(error.contains("no unit"), "{error}");
}

#[test]
fn values_that_make_no_sense_are_named() {
    for (name, value, expected) in [
        (
            "MAYFLY_POLICY__LIMITS__CEILINGS__MEMORY",
            "128MiB",
            "limits.memory",
        ),
        ("MAYFLY_POLICY__LIMITS__FLOORS__PIDS", "129", "limits.pids"),
        ("MAYFLY_SANDBOX__FIRST_UID", "0", "sandbox.first_uid"),
        ("MAYFLY_POOL__SIZE", "32", "pool.size"),
        ("MAYFLY_SANDBOX__FIRST_UID", "70000", "sandbox.first_uid"),
        ("MAYFLY_IMAGE__PYTHON", "python:3", "image.python"),
        ("MAYFLY_IMAGE__PULL_TIMEOUT", "0s", "between 1s and 6h"),
        ("MAYFLY_SANDBOX__KILL_GRACE", "0s", "between 100ms and 1m"),
        ("MAYFLY_SANDBOX__KILL_GRACE", "2h", "between 100ms and 1m"),
        ("MAYFLY_SANDBOX__DEPLOYMENT", "", "sandbox.deployment"),
        ("MAYFLY_STORE__PATH", "", "store.path"),
        ("MAYFLY_STORE__PATH", "/", "store.path"),
    ] {
        let error = load(&[(name, value)], None).unwrap_err();
        assert!(matches!(error, SettingsError::Impossible { .. }), "{name}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let file = Some(PathBuf::from("/nowhere/mayfly.toml"));
    let variables = HashMap::from([("HOME".to_owned(), "/nowhere".to_owned())]);
    let error = Settings::load(&Surroundings {
        variables,
        file,
        ..Surroundings::default()
    })
    .unwrap_err();
    assert!(matches!(error, SettingsError::NoFile(_)));
}
