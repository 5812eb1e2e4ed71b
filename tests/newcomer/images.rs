//! Programs in our own images for jobs, under the default limits: the examples, by the commands of docs/images.md.

mod support;

use std::{io::Write as _, process::Stdio};

#[cfg(feature = "fleet")]
use mayfly_testkit::model::{Say, Shape};
#[cfg(feature = "fleet")]
use serde_json::json;
use support::Mayfly;

/// The folder of the examples.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

/// Runs a program with a standard input; what it has printed. It must succeed, and complain of nothing.
fn run(mayfly: &Mayfly, args: &[&str], stdin: &str) -> String {
    let mut child = mayfly
        .command(["run", "--quiet"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mayfly starts");
    let mut input = child.stdin.take().expect("it was asked for");
    input.write_all(stdin.as_bytes()).expect("mayfly reads it");
    drop(input);
    let output = child.wait_with_output().expect("mayfly ends");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""));
    String::from_utf8(output.stdout).expect("text")
}

fn example(name: &str) -> String {
    format!("{EXAMPLES}/{name}")
}

/// Width and height of a PNG, from its first chunk (PNG specification, 11.2.1).
fn size_of_png(png: &[u8]) -> (u32, u32) {
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes"));
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    (number(16), number(20))
}

#[test]
fn python_data_makes_a_clean_table_and_a_plot_of_a_messy_one() {
    let Some(mayfly) = Mayfly::with_built("python-data") else {
        return;
    };
    let (table, program) = (example("sales.csv"), example("clean.py"));
    let args = ["--image", "python-data", "--file", &table, &program];
    let said = run(&mayfly, &args, "");
    let clean = "date,region,product,amount\n2026-01-03,north,lamp,1234.5\n2026-01-04,north,lamp,99.0\n\
                 2026-01-11,south,chair,450.0\n2026-02-18,south,table,780.25\n2026-02-21,east,desk,1020.0\n\
                 2026-03-02,west,lamp,61.5\n2026-03-03,west,chair,449.9\n";
    let told = format!(
        "13 rows, 7 of them of use\nregion\neast     1020.00\nnorth    1333.50\nsouth    1230.25\nwest      511.40\n\
         clean.csv {} {}\nsales.png ",
        clean.len(),
        mayfly_core::digest::Digest::of(clean.as_bytes())
            .to_string()
            .trim_start_matches("sha256:"),
    );
    assert!(said.starts_with(&told), "{said}");
    // The same fonts are taken each time: the plot is the same, byte for byte.
    assert_eq!(run(&mayfly, &args, ""), said);
    // Both come out, and are what the program itself and the record say they are.
    let out = tempfile::tempdir().expect("a folder for the test");
    let out_arg = out.path().to_str().expect("a name of ours");
    let taking = [
        "--artifact",
        "clean.csv",
        "--artifact",
        "*.png",
        "--out",
        out_arg,
        "--json",
    ];
    let output = mayfly
        .command(["run"])
        .args(taking)
        .args(args)
        .output()
        .expect("mayfly starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for (index, name) in ["clean.csv", "sales.png"].into_iter().enumerate() {
        let content = std::fs::read(out.path().join(name)).expect("it has come out");
        let digest = mayfly_core::digest::Digest::of(&content).to_hex();
        assert_eq!(record["artifacts"]["files"][index]["sha256"], digest);
        assert!(
            said.contains(&format!("{name} {} {digest}", content.len())),
            "{said}"
        );
        match name {
            "clean.csv" => assert_eq!(content, clean.as_bytes()),
            _ => assert_eq!(size_of_png(&content), (800, 500)),
        }
    }
}

#[test]
fn matplotlib_writes_nothing_but_the_plot_and_does_without_threads_of_its_own() {
    let Some(mayfly) = Mayfly::with_built("python-data") else {
        return;
    };
    let program = mayfly.file(
        "plot.py",
        b"import os, sys\nimport matplotlib.pyplot as plt\nimport numpy, pandas, scipy.stats\n\
          (numpy.ones((600, 600)) @ numpy.ones((600, 600))).sum()\n\
          plt.plot([1, 4, 9])\nplt.savefig('plot.png')\nsys.stdout.buffer.write(open('plot.png', 'rb').read())\n\
          left = sorted(os.path.join(folder, name) for place in ('/work', '/tmp') for folder, _, names in os.walk(place) for name in names)\n\
          assert left == ['/work/main.py', '/work/plot.png'], left\n\
          assert 'Threads:\\t1\\n' in open('/proc/self/status').read()\n",
    );
    let program = program.to_str().expect("a name of ours");
    let output = mayfly
        .command(["run", "--quiet", "--image", "python-data", "--pids", "4", program])
        .output()
        .expect("mayfly starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*stderr), (Some(0), ""));
    assert_eq!(size_of_png(&output.stdout), (640, 480));
}

#[test]
fn node_runs_scripts_and_modules() {
    let Some(mayfly) = Mayfly::with_built("node") else {
        return;
    };
    let text = "The fly and the spider.\nThe day of a mayfly: one day, THE day.\n";
    let program = example("words.js");
    let said = run(&mayfly, &["--image", "node", "--stdin", "-", &program], text);
    assert_eq!(said, "4 the\n3 day\n1 a\n1 and\n1 fly\n");
    let module = mayfly.file(
        "module.mjs",
        b"import { readFile } from 'node:fs/promises';\nconsole.log((await readFile('note')).toString(), process.argv[2]);\n",
    );
    let note = mayfly.file("note", b"brought along,");
    let (module, note) = (module.to_str().expect("ours"), note.to_str().expect("ours"));
    let said = run(
        &mayfly,
        &["--image", "node", "--file", note, module, "--", "and told"],
        "",
    );
    assert_eq!(said, "brought along, and told\n");
}

#[test]
fn shell_runs_a_pipeline_with_jq_and_what_is_bash_in_it() {
    let Some(mayfly) = Mayfly::with_built("shell") else {
        return;
    };
    let lines = "{\"level\": \"error\", \"service\": \"api\", \"ms\": 12}\n{\"level\": \"info\", \"service\": \"api\", \"ms\": 940}\n\
                 {\"level\": \"error\", \"service\": \"db\", \"ms\": 7}\n{\"level\": \"error\", \"service\": \"api\", \"ms\": 3}\n";
    let program = example("errors.sh");
    let said = run(&mayfly, &["--image", "shell", "--stdin", "-", &program], lines);
    assert_eq!(said, "api: 2\ndb: 1\nslowest: api, 940 ms\n");
}

#[test]
fn an_image_of_ours_that_is_not_pinned_is_refused_with_the_command_that_gets_it() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let program = example("words.js");
    for (image, command) in [
        ("node", "`mayfly image ensure node`"),
        ("tools", "`mayfly image pin tools REFERENCE`"),
    ] {
        let output = mayfly
            .command(["run", "--image", image, &program])
            .output()
            .expect("mayfly starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(68), "{stderr}");
        assert!(stderr.contains(command), "{stderr}");
    }
}

#[test]
fn a_name_of_ours_that_was_given_to_another_image_keeps_it() {
    let Some(mayfly) = Mayfly::with_built("shell") else {
        return;
    };
    let listed = mayfly
        .command(["image", "list", "--json"])
        .output()
        .expect("mayfly starts");
    let shell: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("one image");
    let shell = shell["pin"]["digest"].as_str().expect("a digest");
    let pinned = mayfly
        .command(["image", "pin", "node", shell])
        .output()
        .expect("mayfly starts");
    assert!(
        pinned.status.success(),
        "{}",
        String::from_utf8_lossy(&pinned.stderr)
    );
    let ensured = mayfly
        .command(["image", "ensure", "node"])
        .output()
        .expect("mayfly starts");
    assert_eq!(
        String::from_utf8_lossy(&ensured.stdout),
        format!("node {shell}\n")
    );
}

/// The model can answer from nothing but what the program wrote in its sandbox: a number that was made there, and digests.
#[cfg(feature = "fleet")]
#[tokio::test(flavor = "multi_thread")]
async fn a_model_cleans_a_table_and_plots_it_and_both_files_come_out() {
    let Some(mayfly) = Mayfly::with_built("python-data") else {
        return;
    };
    let program = std::fs::read_to_string(example("clean.py")).expect("an example of ours");
    let program = format!("{program}\nimport secrets\nprint('nonce', secrets.token_hex(8))\n");
    let server = mayfly_testkit::model::ModelServer::start(move |asked| match asked.results.first() {
        None if asked.tools.is_empty() => Say::Text("I can't".to_owned()),
        None => Say::call(
            "run_python",
            json!({"source": program, "keep": ["clean.csv", "sales.png"]}),
        ),
        Some(result) => Say::Text(format!("It said: {}", result.text)),
    })
    .await;
    let table = example("sales.csv");
    let out = tempfile::tempdir().expect("a folder for the test");
    let out_arg = out
        .path()
        .join("results")
        .to_str()
        .expect("a name of ours")
        .to_owned();
    let transcript = out.path().join("transcript.json");
    let ask = |further: &[&str]| {
        let mut command = mayfly.command(["ask", "--image", "python-data", "--file", &table]);
        command
            .args(further)
            .arg("Clean the table, and plot the sums by region")
            .env_remove("MODEL")
            .env("MODEL", "claude-scripted")
            .env("ANTHROPIC_BASE_URL", server.base(Shape::Anthropic))
            .env("ANTHROPIC_API_KEY", "sk-of-the-test")
            .stdin(Stdio::null());
        tokio::task::spawn_blocking(move || command.output().expect("mayfly starts"))
    };
    let kept = transcript.to_str().expect("a name of ours");
    let asked = ask(&["--out", &out_arg, "--transcript", kept])
        .await
        .expect("it ends");
    let (answer, steps) = (
        String::from_utf8_lossy(&asked.stdout).into_owned(),
        String::from_utf8_lossy(&asked.stderr).into_owned(),
    );
    assert!(asked.status.success(), "{answer}{steps}");
    assert!(steps.contains("3 of 3 files"), "{steps}");
    let transcript = std::fs::read_to_string(&transcript).expect("it was written");
    let transcript: serde_json::Value = serde_json::from_str(&transcript).expect("JSON");
    let id = transcript["steps"][0]["calls"][0]["job"]
        .as_str()
        .expect("the job is named");
    let shown = mayfly
        .command(["job", "show", id, "--json"])
        .output()
        .expect("mayfly starts");
    let record: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(record["labels"]["run"], transcript["id"]);
    for (index, name) in ["clean.csv", "sales.png"].into_iter().enumerate() {
        let content = std::fs::read(out.path().join("results").join(name)).expect("it has come out");
        let digest = mayfly_core::digest::Digest::of(&content).to_hex();
        assert_eq!(record["artifacts"]["files"][index]["sha256"], digest);
        // The program said it, the model read it, and it is what came out.
        assert!(
            answer.contains(&format!("{name} {} {digest}", content.len())),
            "{answer}"
        );
    }
    // And the figure that it left open.
    assert!(out.path().join("results/figure-1.png").exists());
    let nonce = regex::Regex::new("nonce [0-9a-f]{16}").expect("a pattern");
    let nonce = nonce
        .find(&answer)
        .expect("it was made in the sandbox")
        .as_str()
        .to_owned();
    assert!(record.to_string().contains(&nonce), "{nonce} {record}");
    let audit = mayfly
        .command(["audit", "list", "--job", id])
        .output()
        .expect("mayfly starts");
    assert!(String::from_utf8_lossy(&audit.stdout).contains("run_finished"));
    // Without the tool there is no such answer.
    let without = ask(&["--no-tools"]).await.expect("it ends");
    assert_eq!(String::from_utf8_lossy(&without.stdout), "I can't\n");
}
