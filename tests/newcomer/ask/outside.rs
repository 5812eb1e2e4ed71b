//! What a run has beside the model's words: files that come out of it, and hosts that its programs reach.

use std::fs;

use mayfly_testkit::model::Say;
use serde_json::{Value, json};

use crate::{
    ask, command, job, output, server,
    support::{Mayfly, assert_nothing_acts},
    text,
};

/// Keeps a file, and says what is in it.
const KEEPS: &str = "import secrets, sys
text = sys.argv[0] + secrets.token_hex(8)
open('out.txt', 'w').write(text)
open('NAME', 'w').write('of one program alone')
print(text)
";

#[tokio::test(flavor = "multi_thread")]
async fn files_that_programs_keep_come_out_and_replace_nothing_that_was_there() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let server = server(|asked| {
        let keep = |name: &str, globs: Value| {
            let source = KEEPS.replace("NAME", name);
            Say::call("run_python", json!({"source": source, "keep": globs}))
        };
        match asked.turns {
            0 => keep("first/a.txt", json!(["out.txt"])),
            1 => keep("second.txt", json!(["*.txt"])),
            _ => Say::Text(format!("The last one wrote {}", asked.results[0].text)),
        }
    })
    .await;
    let out = mayfly.file("mine.txt", b"mine").with_file_name("results");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("second.txt"), b"was there before").unwrap();
    let folder = out.to_str().expect("a name of ours");
    let args = ["--out", folder, "--transcript", "transcript.json", "Do it"];
    let asked = ask(&mayfly, &server, 0, &args).await;
    let (answer, steps) = (text(&asked.stdout), text(&asked.stderr));
    // The answer is there; that one of the files is not is told, and is not success.
    assert!(answer.starts_with("The last one wrote"), "{answer}{steps}");
    assert!(!asked.status.success(), "{steps}");
    assert!(steps.contains("second.txt is not written"), "{steps}");
    assert!(steps.contains("1 of 2 files"), "{steps}");
    assert_eq!(fs::read(out.join("second.txt")).unwrap(), b"was there before");
    // Of two programs' the later one's: the text that came back to the model last.
    let kept = fs::read_to_string(out.join("out.txt")).unwrap();
    assert!(answer.contains(&kept), "{answer} {kept}");
    let path = mayfly.file("other", b"").with_file_name("transcript.json");
    let transcript: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let last = transcript["steps"][1]["calls"][0]["job"]
        .as_str()
        .expect("the job is named");
    let digest = mayfly_core::digest::Digest::of(kept.as_bytes()).to_hex();
    assert!(job(&mayfly, last).to_string().contains(&digest));
    assert_nothing_acts("the steps", &steps);
}

/// What is asked of it is told to the model, and goes with each job; the policy decides.
#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_were_named_are_told_to_the_model_and_asked_for_with_each_program() {
    let Some(mayfly) = Mayfly::with_python() else {
        return;
    };
    let server = server(|asked| match asked.turns {
        0 => Say::call(
            "run_python",
            json!({"source": "import os\nprint(os.environ.get('HTTPS_PROXY', 'no proxy'))"}),
        ),
        _ => Say::Text(asked.results[0].text.clone()),
    })
    .await;
    let args = ["--allow-host", "a.example.test", "Where is it?"];
    let refused = ask(&mayfly, &server, 0, &args).await;
    let told = text(&refused.stdout);
    assert!(told.contains("the policy lets jobs reach: nothing"), "{told}");
    let mut command = command(&mayfly, &server, 0, &args);
    command.env("MAYFLY_POLICY__EGRESS__ALLOW", "*.example.test");
    let allowed = output(command).await;
    let told = text(&allowed.stdout);
    assert!(
        told.contains("http://127.0.0.1:3128"),
        "{told}{}",
        text(&allowed.stderr)
    );
    let tools = server.asked()[0].body.to_string();
    assert!(tools.contains("no network but for these hosts"), "{tools}");
}
