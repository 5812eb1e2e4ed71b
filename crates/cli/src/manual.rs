//! Completion scripts and manual pages, both made of the one command line that `args` describes.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

use crate::{args::Cli, exit, failure::Failure, terminal::print};

/// Prints the completion script of a shell.
pub(crate) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mayfly", &mut script);
    print(&String::from_utf8_lossy(&script)).map(|()| ExitCode::SUCCESS)
}

/// Prints the manual page, or writes one for each command into a folder, which is made where it is not there.
pub(crate) fn man(folder: Option<&Path>) -> Result<ExitCode, Failure> {
    let Some(folder) = folder else {
        let page = page(&whole()).map_err(|error| Failure::new(exit::INTERNAL, error))?;
        return print(&page).map(|()| ExitCode::SUCCESS);
    };
    let failed = |path: &Path, error: io::Error| {
        let error = anyhow::Error::new(error).context(format!("{} can't be written", path.display()));
        Failure::new(exit::NO_OUTPUT, error)
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for (name, text) in pages().map_err(|error| Failure::new(exit::INTERNAL, error))? {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| failed(&path, error))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The command line with the names that its parts have by themselves: `mayfly-job-list`.
fn whole() -> Command {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

/// Every page: file name and text.
fn pages() -> io::Result<Vec<(PathBuf, String)>> {
    let mut pages = Vec::new();
    let mut left = vec![whole()];
    while let Some(command) = left.pop() {
        pages.push((PathBuf::from(format!("{}.1", name(&command))), page(&command)?));
        left.extend(command.get_subcommands().cloned());
    }
    Ok(pages)
}

fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &Command) -> io::Result<String> {
    let is_whole = command.get_name() == "mayfly";
    let mut text = Vec::new();
    Man::new(command.clone())
        .source(format!("mayfly {}", env!("CARGO_PKG_VERSION")))
        .manual("mayfly")
        .render(&mut text)?;
    if is_whole {
        around().to_writer(&mut text)?;
    }
    Ok(String::from_utf8_lossy(&text).chars().map(escaped).collect())
}

/// Formatters take ASCII for granted, and other characters by their number (groff_char(7)).
fn escaped(c: char) -> String {
    if c.is_ascii() {
        c.to_string()
    } else {
        format!("\\[u{:04X}]", u32::from(c))
    }
}

/// What is said of all commands at once.
fn around() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    roff.text([roman(
        "mayfly run passes the program's own exit code on. Beside it, and for every other command:",
    )]);
    for (code, means) in exit::TABLE {
        entry(&mut roff, &code.to_string(), means);
    }
    roff.control("SH", ["ENVIRONMENT"]);
    entry(
        &mut roff,
        "MAYFLY_<SECTION>__<KEY>",
        "A setting, with two underscores before each key: MAYFLY_SANDBOX__ENGINE.",
    );
    entry(
        &mut roff,
        "MAYFLY_CONFIG",
        "The settings file, as --config names it.",
    );
    entry(
        &mut roff,
        "DOCKER_HOST",
        "Where the container engine is, when no setting says so: unix:///path or tcp://host:port.",
    );
    roff.control("SH", ["FILES"]);
    entry(
        &mut roff,
        "~/.config/mayfly/mayfly.toml, /etc/mayfly/mayfly.toml",
        "Settings; the first of them that is there.",
    );
    entry(
        &mut roff,
        "~/.local/share/mayfly/mayfly.db",
        "Jobs, results and the audit log.",
    );
    roff
}

fn entry(roff: &mut Roff, term: &str, means: &str) {
    roff.control("TP", []);
    roff.text([bold(term)]);
    roff.text([roman(means)]);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn commands(command: &Command) -> Vec<String> {
        let mut names = vec![name(command).to_owned()];
        for inner in command.get_subcommands() {
            names.extend(commands(inner));
        }
        names
    }

    #[test]
    fn every_command_has_a_page_of_its_own_that_names_its_options() {
        let whole = whole();
        let pages = pages().unwrap();
        let names: BTreeSet<_> = pages.iter().map(|(name, _)| name.display().to_string()).collect();
        let expected: BTreeSet<_> = commands(&whole).iter().map(|name| format!("{name}.1")).collect();
        assert_eq!(names, expected);
        assert_eq!(names.len(), pages.len(), "two pages with one name");
        assert!(names.contains("mayfly-job-list.1"), "{names:?}");
        let text = |name: &str| &pages.iter().find(|(path, _)| path == Path::new(name)).unwrap().1;
        for option in whole
            .find_subcommand("run")
            .unwrap()
            .get_arguments()
            .filter_map(clap::Arg::get_long)
        {
            // A dash of an option is escaped, so that it can be searched for and copied.
            let escaped = format!("\\-\\-{}", option.replace('-', "\\-"));
            assert!(text("mayfly-run.1").contains(&escaped), "{option}");
        }
        for (name, text) in &pages {
            assert!(text.contains(".SH NAME"), "{}", name.display());
            assert!(text.contains(".SH SYNOPSIS"), "{}", name.display());
        }
    }

    #[test]
    fn the_page_of_all_names_every_exit_code() {
        let page = page(&whole()).unwrap();
        for (code, means) in exit::TABLE {
            assert!(page.contains(&format!("\\fB{code}\\fR")), "{code}");
            let written = means.split('\'').next().unwrap().replace('-', "\\-");
            assert!(page.contains(&written), "{means}");
        }
    }

    #[test]
    fn each_shell_has_a_script_that_knows_every_command() {
        for shell in <Shell as clap::ValueEnum>::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "mayfly", &mut script);
            let script = String::from_utf8(script).unwrap();
            for command in [
                "run",
                "submit",
                "job",
                "logs",
                "cancel",
                "audit",
                "image",
                "dead-letter",
                "tenant",
                "key",
                "top",
                "doctor",
                "completions",
                "man",
            ] {
                assert!(script.contains(command), "{shell}: {command}");
            }
        }
    }
}
