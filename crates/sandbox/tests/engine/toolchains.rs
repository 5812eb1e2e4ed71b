//! Honest programs of languages other than Python, with all that a sandbox has in force: what it takes from a job must not
//! be what a compiler, a virtual machine or a database needs. They need an image with them, which `make test-long` builds
//! (`deploy/images/toolchains/build`). Most are the programs that the syscall filter alone is tried with, too.

use mayfly_core::{
    outcome::EndState,
    units::{ByteSize, Span},
};

use crate::support::{Bench, limits, runtime, text};

/// A script, and what it prints.
struct Program {
    name: &'static str,
    script: &'static str,
    prints: &'static str,
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "gcc",
        script: include_str!("../filter/programs/gcc.sh"),
        prints: "",
    },
    Program {
        name: "java",
        script: include_str!("../filter/programs/java.sh"),
        prints: "",
    },
    Program {
        name: "node",
        script: include_str!("../filter/programs/node.sh"),
        prints: "",
    },
    Program {
        name: "make",
        script: include_str!("../filter/programs/make.sh"),
        prints: "",
    },
    Program {
        name: "sqlite3",
        script: include_str!("../filter/programs/sqlite3.sh"),
        prints: "",
    },
    Program {
        name: "r",
        script: include_str!("toolchains/r.sh"),
        prints: "twice 2 4 6 \nforked 385 \nsolved 1 1 \nfitted -17.579 3.932 \ndrawn TRUE \n",
    },
    Program {
        name: "python",
        script: include_str!("toolchains/python.sh"),
        prints: "fork 328350\ndone done done\n300\nmanaged\ndata\n\
                 spawn 328350\ndone done done\n300\nmanaged\ndata\n",
    },
    Program {
        name: "locks",
        script: include_str!("toolchains/locks.sh"),
        prints: "delete\ndatabase is locked\n2\nwal\ndatabase is locked\n4\nflock 7\nlockf 7\n",
    },
    Program {
        name: "pipes",
        script: include_str!("toolchains/pipes.sh"),
        prints: "read hello\n500500\n",
    },
];

#[tokio::test]
async fn honest_programs_of_other_languages_run_with_everything_in_force() {
    let Some(bench) = Bench::with_image(
        "mayfly/toolchains",
        "deploy/images/toolchains/build --engine-load",
    )
    .await
    else {
        return;
    };
    let mut broken = Vec::new();
    for program in PROGRAMS {
        let mut job = bench.job(
            &["sh", "-eu", "main.py"],
            &format!("{}\necho ended\n", program.script),
        );
        job.limits = limits(|limits| {
            limits.memory = ByteSize::mib(1024);
            limits.work = ByteSize::mib(128);
            limits.wall = Span::seconds(120);
        });
        let report = bench.run(job).await;
        let (said, complained) = (text(&report.stdout), text(&report.stderr));
        if report.outcome.state == EndState::Succeeded && said == format!("{}ended\n", program.prints) {
            continue;
        }
        broken.push(format!(
            "{} on {}: {:?}, {:?}\nstdout: {said}\nstderr: {complained}",
            program.name,
            runtime(),
            report.outcome.state,
            report.outcome.cause,
        ));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
}
