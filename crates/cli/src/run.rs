//! `mayfly run`: one job, from a file to an exit code.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io::{self, Read as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use mayfly_core::{
    artifact::KeepAfter,
    image::{ImageName, ImagePin},
    job::{
        Blob, InputArchive, InputFile, JobSpec, Language, RetryPolicy, SecretName, SecretText, SecretValue,
        Source, UploadedFile,
    },
    outcome::Outcome,
};

use mayfly_sandbox::seam::{LiveOutput, NoLiveOutput};
use mayfly_settings::PoolSettings;

use crate::{
    args::{JobFlags, ProgramArgs, RunArgs},
    artifacts,
    context::Session,
    embedded::{Submission, asked_to_stop},
    exit,
    failure::Failure,
    live::{self, Printer},
    report,
    terminal::{print, say, unwritten},
    uploads::{self, Asked, LargeFile, uploaded},
};

/// Most bytes that are read of a file or of standard input. The policy's own bound is lower; this one keeps a mistake,
/// such as a device, from filling the memory first.
const MAX_INPUT: u64 = 256 << 20;

pub(crate) async fn run(session: &Session, args: RunArgs) -> Result<ExitCode, Failure> {
    // The inputs first: what is wrong with them is said before an engine is asked for anything.
    let Asked { mut spec, large } = spec(args.program, &session.settings.image.default)?;
    without_named_secrets(&spec).map_err(Failure::usage)?;
    if !spec.uploads.is_empty() {
        // What is too long for the policy is refused before it is kept.
        let mut known = uploads::known(session).await?;
        known.extend(large.iter().map(|file| (file.digest, file.bytes)));
        spec.know_uploads(&known);
        spec.check(&session.settings.policy).map_err(Failure::usage)?;
    }
    let engine = session.engine().await?;
    let pin = session.catalog(&engine).resolve(&spec.image).await?;
    let kept = uploads::keep(session, &large).await?;
    let how = How {
        json: args.json,
        quiet: args.quiet,
        out: args.out,
    };
    let ended = run_one(session, spec, pin, how).await;
    uploads::remove(session, &kept).await;
    ended
}

/// What is shown of a job, and where its files go.
struct How {
    json: bool,
    quiet: bool,
    out: Option<PathBuf>,
}

async fn run_one(session: &Session, spec: JobSpec, pin: ImagePin, how: How) -> Result<ExitCode, Failure> {
    let How { json, quiet, out } = how;
    let labels = spec.labels.clone();
    let (priority, retain_source) = (spec.priority, spec.retain_source);
    let times = spec
        .times(&session.settings.policy, session.clock.now())
        .map_err(Failure::usage)?;
    let resolved = spec
        .resolve(&session.settings.policy, pin, &mayfly_sandbox::baseline_digest())
        .map_err(Failure::usage)?;
    let (listener, printer): (Arc<dyn LiveOutput>, _) = if json {
        (Arc::new(NoLiveOutput), None)
    } else {
        let (live, printer) = live::start();
        (live, Some(printer))
    };
    // One job has nothing of a pool: its limits are in force exactly as asked for.
    let (embedded, _uids) = session.embedded(1, listener, &PoolSettings::default()).await?;
    let job = embedded
        .submit(Submission {
            resolved,
            labels,
            priority,
            times,
            retain_source,
        })
        .await?;
    let details = tokio::select! {
        details = embedded.wait(job) => details,
        () = asked_to_stop() => {
            embedded.cancel(job).await?;
            tokio::select! {
                details = embedded.wait(job) => details,
                () = asked_to_stop() => embedded.abort(job).await,
            }
        }
    };
    embedded.stop().await;
    let written = printer.map_or(Ok(()), Printer::finish);
    let details = details?;
    let Some(outcome) = details.job.outcome.clone() else {
        let error = anyhow::anyhow!("job {job} has not ended; `mayfly job show {job}` shows where it stands");
        return Err(Failure::new(exit::INTERNAL, error));
    };
    if !json && !quiet {
        say(&report::summary(&details, &outcome));
    }
    // The job has ended, and its record is kept, whatever becomes of the output here.
    let written = if json {
        print(&format!("{}\n", report::to_json(&details, None)))
    } else {
        written.map_err(unwritten)
    };
    written.map_err(|failure| {
        failure.about(format!(
            "job {job} has ended, and its output can't be written here"
        ))
    })?;
    if let Some(out) = out {
        let store = Arc::clone(&session.store);
        saved(
            &outcome,
            artifacts::save_all(&artifacts::Local { store, job }, &out),
        )
        .await?;
    }
    Ok(ExitCode::from(exit::of_outcome(&outcome)))
}

/// The program's own exit code stands, unless that is success and a file could not be written here.
pub(crate) async fn saved(
    outcome: &Outcome,
    saving: impl Future<Output = Result<ExitCode, Failure>>,
) -> Result<(), Failure> {
    let code = saving.await?;
    if code != ExitCode::SUCCESS && exit::of_outcome(outcome) == exit::OK {
        let error = anyhow::anyhow!("not every file of the job could be written here");
        return Err(Failure::new(exit::NO_OUTPUT, error));
    }
    Ok(())
}

/// The job that the flags describe.
pub(crate) fn spec(args: ProgramArgs, default_image: &str) -> Result<Asked, Failure> {
    if args.file == Path::new("-") && args.stdin.as_deref() == Some(Path::new("-")) {
        return Err(Failure::usage(
            "the program and its standard input can't both be our standard input",
        ));
    }
    let text = Blob::from(read(&args.file)?);
    let stdin = args.stdin.as_deref().map(read).transpose()?;
    let Asked { spec, large } = asked(&args.job, default_image)?;
    let mut spec = JobSpec {
        args: args.args,
        stdin: stdin.map(Blob::from),
        ..spec
    };
    let extension = args.file.extension().and_then(OsStr::to_str);
    let language = match extension {
        // Node.js tells a module from a script by the name of its file.
        Some(extension @ ("js" | "mjs" | "cjs")) => {
            let path = format!("main.{extension}");
            spec.command = Some(vec!["node".to_owned(), format!("/work/{path}")]);
            spec.files.push(InputFile {
                path,
                content: text,
                executable: false,
                mode: None,
            });
            return Ok(Asked { spec, large });
        }
        Some("sh") => Language::Shell,
        _ => Language::Python,
    };
    spec.source = Some(Source { language, text });
    Ok(Asked { spec, large })
}

/// What flags ask for, for a program that is not named yet.
pub(crate) fn asked(flags: &JobFlags, default_image: &str) -> Result<Asked, Failure> {
    let image = match &flags.image {
        Some(image) => image.clone(),
        None => default_image.parse::<ImageName>().map_err(Failure::usage)?,
    };
    let retry = RetryPolicy {
        max_attempts: flags.max_attempts.unwrap_or(RetryPolicy::default().max_attempts),
        ..RetryPolicy::default()
    };
    let given = Given::by(flags)?;
    let mut uploads: Vec<_> = flags
        .uploads
        .iter()
        .map(|text| uploaded(text))
        .collect::<Result<_, _>>()?;
    let (mut files, mut large) = (Vec::new(), Vec::new());
    for text in &flags.files {
        let (path, name) = named_file(text)?;
        match LargeFile::if_large(&path)? {
            None => files.push(input_file_at(&path, name)?),
            Some(file) => {
                uploads.push(UploadedFile {
                    executable: is_executable(&path),
                    mode: None,
                    path: name,
                    digest: file.digest,
                    bytes: Some(file.bytes),
                });
                large.push(file);
            }
        }
    }
    let spec = JobSpec {
        image,
        source: None,
        command: None,
        files,
        archives: flags
            .archives
            .iter()
            .map(|archive| input_archive(archive))
            .collect::<Result<_, _>>()?,
        uploads,
        args: Vec::new(),
        stdin: None,
        env: pairs("--env", &flags.env)?,
        secrets: given.secrets,
        secret_files: given.files,
        limits: flags.limits(),
        network: None,
        egress: flags.allow_host.clone(),
        runtime: flags.runtime.clone(),
        artifacts: flags.artifact.clone(),
        artifacts_after: if flags.artifacts_always {
            KeepAfter::AnyEnd
        } else {
            KeepAfter::Success
        },
        labels: pairs("--label", &flags.label)?,
        retry,
        expires_after: None,
        not_before: None,
        priority: 0,
        retain_source: true,
    };
    Ok(Asked { spec, large })
}

/// A file's bytes, or our standard input's for `-`.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error: io::Error| {
        let error = anyhow::Error::new(error).context(format!("{} can't be read", path.display()));
        Failure::new(exit::NO_INPUT, error)
    };
    let mut bytes = Vec::new();
    let count = if path == Path::new("-") {
        io::stdin().lock().take(MAX_INPUT + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MAX_INPUT + 1).read_to_end(&mut bytes))
    }
    .map_err(failed)?;
    if count as u64 > MAX_INPUT {
        return Err(Failure::usage(format!(
            "{} is larger than {MAX_INPUT} bytes",
            path.display()
        )));
    }
    Ok(bytes)
}

/// `PATH`, or `PATH=NAME`. A path that itself has a `=` is given with its name: `a=b.txt=a=b.txt` is ambiguous, so the
/// last one parts them, unless the whole is a file.
fn path_and_name(text: &str) -> (PathBuf, Option<String>) {
    let whole = PathBuf::from(text);
    match text.rsplit_once('=') {
        Some((path, name)) if !whole.exists() => (PathBuf::from(path), Some(name.to_owned())),
        _ => (whole, None),
    }
}

fn input_archive(text: &str) -> Result<InputArchive, Failure> {
    let (path, into) = path_and_name(text);
    Ok(InputArchive {
        content: Blob::from(read(&path)?),
        // Its first bytes say it more reliably than its name.
        format: None,
        into,
    })
}

/// A file to put beside a program: `PATH`, or `PATH=NAME`.
#[cfg(any(feature = "fleet", test))]
pub(crate) fn input_file(text: &str) -> Result<InputFile, Failure> {
    let (path, name) = named_file(text)?;
    input_file_at(&path, name)
}

/// `PATH`, or `PATH=NAME`, with the name that it has where none is said.
fn named_file(text: &str) -> Result<(PathBuf, String), Failure> {
    let (path, name) = path_and_name(text);
    let name = match name {
        Some(name) => name,
        None => path
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| {
                Failure::usage(format!(
                    "--file {text}: say what it is called in /work: {text}=NAME"
                ))
            })?
            .to_owned(),
    };
    Ok((path, name))
}

fn input_file_at(path: &Path, name: String) -> Result<InputFile, Failure> {
    let content = Blob::from(read(path)?);
    Ok(InputFile {
        executable: is_executable(path),
        mode: None,
        path: name,
        content,
    })
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(_: &Path) -> bool {
    false
}

/// `NAME=VALUE`, each name once.
fn pairs(flag: &str, list: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut pairs = BTreeMap::new();
    for item in list {
        let (name, value) = item
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("{flag} {item:?}: expected NAME=VALUE")))?;
        if pairs.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::usage(format!("{flag} {name}: given twice")));
        }
    }
    Ok(pairs)
}

/// Secrets by their places. No value is on our own command line, which every user of the host can read.
struct Given {
    /// By variable.
    secrets: BTreeMap<String, SecretValue>,
    /// By path.
    files: BTreeMap<String, SecretValue>,
}

impl Given {
    fn by(flags: &JobFlags) -> Result<Self, Failure> {
        let mut given = Self {
            secrets: BTreeMap::new(),
            files: BTreeMap::new(),
        };
        for item in &flags.secret {
            let (name, value) = match item.split_once('=') {
                Some((name, file)) => (name, text_of(Path::new(file))?),
                None => (item.as_str(), own_variable(item)?),
            };
            place(&mut given.secrets, "--secret", name, value.into())?;
        }
        for item in &flags.named_secret {
            let (variable, name) = secret_name("--named-secret", "VARIABLE=NAME", item)?;
            place(&mut given.secrets, "--named-secret", variable, name.into())?;
        }
        for item in &flags.secret_file {
            let wrong = || Failure::usage(format!("--secret-file {item:?}: expected PATH=FILE"));
            let (path, file) = item.split_once('=').ok_or_else(wrong)?;
            let value = text_of(Path::new(file))?;
            place(&mut given.files, "--secret-file", path, value.into())?;
        }
        for item in &flags.named_secret_file {
            let (path, name) = secret_name("--named-secret-file", "PATH=NAME", item)?;
            place(&mut given.files, "--named-secret-file", path, name.into())?;
        }
        Ok(given)
    }
}

fn place(
    places: &mut BTreeMap<String, SecretValue>,
    flag: &str,
    at: &str,
    value: SecretValue,
) -> Result<(), Failure> {
    match places.insert(at.to_owned(), value) {
        None => Ok(()),
        Some(_) => Err(Failure::usage(format!("{flag} {at}: given twice"))),
    }
}

fn secret_name<'a>(flag: &str, form: &str, item: &'a str) -> Result<(&'a str, SecretName), Failure> {
    let (at, name) = item
        .split_once('=')
        .ok_or_else(|| Failure::usage(format!("{flag} {item:?}: expected {form}")))?;
    let name = name
        .parse()
        .map_err(|error| Failure::usage(format!("{flag} {at}: {error}")))?;
    Ok((at, name))
}

/// What roles in this process can't do: nobody keeps secrets for them.
pub(crate) fn without_named_secrets(spec: &JobSpec) -> Result<(), &'static str> {
    let mut all = spec.secrets.values().chain(spec.secret_files.values());
    if all.any(|value| matches!(value, SecretValue::Named(_))) {
        return Err(
            "named secrets are kept by a server, and none is configured (`client.server`): give the value itself, by --secret or \
             --secret-file",
        );
    }
    Ok(())
}

/// A file's text, or that of our standard input for `-`, without the end of a line after it.
pub(crate) fn text_of(file: &Path) -> Result<SecretText, Failure> {
    let text = String::from_utf8(read(file)?)
        .map_err(|_| Failure::usage(format!("--secret: {} has no text (UTF-8)", file.display())))?;
    let value = text.strip_suffix('\n').unwrap_or(&text);
    Ok(value.strip_suffix('\r').unwrap_or(value).to_owned().into())
}

#[expect(
    clippy::disallowed_methods,
    reason = "it is no setting: the user names a variable of theirs to be sent"
)]
fn own_variable(name: &str) -> Result<SecretText, Failure> {
    match std::env::var(name) {
        Ok(value) => Ok(value.into()),
        Err(std::env::VarError::NotPresent) => Err(Failure::usage(format!(
            "--secret {name}: there is no such variable; name a file by --secret {name}=FILE"
        ))),
        Err(std::env::VarError::NotUnicode(_)) => Err(Failure::usage(format!(
            "--secret {name}: its value is no text (UTF-8)"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_needs_its_sign_and_a_name_stands_once() {
        let pairs = |list: &[&str]| {
            pairs(
                "--env",
                &list.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(pairs(&["A=1", "B=x=y"]).unwrap()["B"], "x=y");
        assert!(pairs(&["A"]).is_err());
        assert!(pairs(&["A=1", "A=2"]).is_err());
    }

    #[test]
    fn a_file_may_have_another_name_in_work_and_an_archive_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.csv");
        std::fs::write(&path, "1,2").unwrap();
        let plain = input_file(path.to_str().unwrap()).unwrap();
        assert_eq!(
            (plain.path.as_str(), plain.content.as_bytes()),
            ("data.csv", &b"1,2"[..])
        );
        let named = input_file(&format!("{}=in/other.csv", path.display())).unwrap();
        assert_eq!(named.path, "in/other.csv");
        let archive = input_archive(&format!("{}=in", path.display())).unwrap();
        assert_eq!(
            (archive.into.as_deref(), archive.content.as_bytes()),
            (Some("in"), &b"1,2"[..])
        );
        assert_eq!(input_archive(path.to_str().unwrap()).unwrap().into, None);
        let odd = folder.path().join("a=b");
        std::fs::write(&odd, "").unwrap();
        assert_eq!(input_file(odd.to_str().unwrap()).unwrap().path, "a=b");
    }
}
