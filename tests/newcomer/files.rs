//! Files, archives and modes, from the command line into the sandbox of the real engine.

mod support;

use std::{path::Path, process::Command};

use support::{Mayfly, skip};

/// A project whose main program imports a package of its own, with files of several modes.
const MAIN: &str = "import os, sys\nhere = os.path.dirname(os.path.abspath(__file__))\nos.chdir(here)\n\
sys.path.insert(0, here)\nfrom pkg.words import greeting\nprint(greeting(sys.argv[1]))\n\
for name in sorted(os.listdir('modes')):\n    print(name, oct(os.stat('modes/' + name).st_mode & 0o7777))\n\
print(os.popen('modes/755').read().strip())\n";

fn project(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir_all(folder.join("pkg")).expect("the test's folder can be written");
    std::fs::create_dir_all(folder.join("modes")).expect("the test's folder can be written");
    std::fs::write(folder.join("main.py"), MAIN).expect("the test's folder can be written");
    std::fs::write(folder.join("pkg/__init__.py"), "").expect("the test's folder can be written");
    std::fs::write(
        folder.join("pkg/words.py"),
        "def greeting(name):\n    return f'hello, {name}'\n",
    )
    .expect("the test's folder can be written");
    for mode in [0o400, 0o600, 0o640, 0o644, 0o666, 0o755, 0o777] {
        let path = folder.join(format!("modes/{mode:o}"));
        std::fs::write(&path, "#!/bin/sh\necho executed\n").expect("the test's folder can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
            .expect("the test's folder can be written");
    }
}

/// Runs a tool of the host's in a folder. Says where there is none.
fn tool(folder: &Path, program: &str, args: &[&str]) -> bool {
    match Command::new(program).args(args).current_dir(folder).output() {
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{program}: {stderr}");
            true
        }
        Err(error) => {
            skip(&format!(
                "{program} can't be started, so that no archive of it is tried: {error}"
            ));
            false
        }
    }
}

#[test]
fn a_project_in_an_archive_runs_with_its_modules_and_modes() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let start = mayfly.file(
        "start.py",
        b"import runpy; runpy.run_path('project/main.py', run_name='__main__')",
    );
    let home = start.parent().unwrap().to_owned();
    project(&home.join("project"));
    let zip = "import sys, zipfile, os\nwith zipfile.ZipFile('project.zip', 'w', zipfile.ZIP_DEFLATED) as archive:\n    \
               for folder, _, names in os.walk('project'):\n        \
               [archive.write(os.path.join(folder, name)) for name in names]\n";
    let made = [
        (
            "project.tar.gz",
            tool(&home, "tar", &["-czf", "project.tar.gz", "project"]),
        ),
        (
            "project.tar",
            tool(&home, "tar", &["-cf", "project.tar", "--format=pax", "./project"]),
        ),
        ("project.zip", tool(&home, "python3", &["-c", zip])),
    ];
    for (archive, _) in made.into_iter().filter(|(_, is_made)| *is_made) {
        let output = mayfly
            .command(["run", "--quiet", "--archive", archive, "start.py", "--", "world"])
            .current_dir(&home)
            .output()
            .unwrap();
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{archive}: {stderr}");
        assert!(stdout.starts_with("hello, world\n"), "{archive}: {stdout}");
    }
}

#[test]
fn modes_are_those_of_the_archive_whatever_the_umask() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let start = mayfly.file("unused", b"");
    let home = start.parent().unwrap().to_owned();
    project(&home.join("project"));
    if !tool(
        &home,
        "tar",
        &["-czf", "project.tar.gz", "-C", "project", "pkg", "modes"],
    ) {
        return;
    }
    mayfly.file("start.py", MAIN.as_bytes());
    let output = mayfly
        .command([
            "run",
            "--quiet",
            "--archive",
            "project.tar.gz",
            "start.py",
            "--",
            "world",
        ])
        .current_dir(&home)
        .output()
        .unwrap();
    let expected = "hello, world\n400 0o400\n600 0o600\n640 0o640\n644 0o644\n666 0o666\n755 0o755\n777 0o777\nexecuted\n";
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        expected,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn an_archive_that_is_refused_is_refused_by_its_names_before_anything_runs() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let start = mayfly.file("start.py", b"print('it has run')");
    let seed = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/seeds/archive/refused-names.tar.gz"
    );
    let output = mayfly
        .command(["run", "--archive", &format!("{seed}=in"), "start.py"])
        .current_dir(start.parent().unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    let stderr = String::from_utf8_lossy(&output.stderr);
    for name in [
        "../../etc/cron.d/job",
        "/etc/passwd",
        "link",
        "hard",
        "pipe",
        "disk",
        "tool",
    ] {
        assert!(
            stderr.contains(&format!("archives[0][\"{name}\"]")),
            "{name}: {stderr}"
        );
    }
    assert!(output.stdout.is_empty());
}

#[test]
fn a_large_file_is_uploaded_before_its_job_and_gone_after_it() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let content: Vec<u8> = (0..=250).cycle().take((20 << 20) + 3).collect();
    mayfly.file("large.bin", &content);
    let program = mayfly.file(
        "main.py",
        b"import hashlib, os\n\
          data = open('in/large.bin', 'rb').read()\n\
          print(len(data), hashlib.sha256(data).hexdigest(), oct(os.stat('in/large.bin').st_mode & 0o777))\n",
    );
    let home = program.parent().expect("it has one").to_owned();
    let run = |args: &[&str]| {
        let mut command = mayfly.command(args);
        command
            .current_dir(&home)
            .output()
            .expect("mayfly can be started")
    };
    let output = run(&["run", "-q", "--file", "large.bin=in/large.bin", "main.py"]);
    let digest = mayfly_core::digest::Digest::of(&content);
    let expected = format!("{} {} 0o644\n", content.len(), digest.to_hex());
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    let record = run(&["job", "show", "--last", "--json"]);
    assert!(record.status.success(), "{}", text(&record.stderr));
    // Nothing of it is kept, so that what names it by its digest is told so.
    let named = format!("{digest}=a.bin");
    let output = run(&["run", "--upload", &named, "main.py"]);
    assert_eq!(output.status.code(), Some(64), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("there is no upload"),
        "{}",
        text(&output.stderr)
    );
    let output = run(&["run", "--file", "large.bin", "--work", "8MiB", "main.py"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(
        text(&output.stderr).contains("limits.work"),
        "{}",
        text(&output.stderr)
    );
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
