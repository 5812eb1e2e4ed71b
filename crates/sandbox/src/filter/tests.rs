use std::{collections::BTreeSet, path::Path};

use serde_json::Value;

use super::*;

fn every_option() -> Vec<FilterOptions> {
    let sockets = [
        Sockets::UnixOnly,
        Sockets::LoopbackToo(SocketBuffers::Settable),
        Sockets::LoopbackToo(SocketBuffers::Fixed),
    ];
    [Arch::X86_64, Arch::Aarch64]
        .into_iter()
        .flat_map(|arch| sockets.map(|sockets| FilterOptions { arch, sockets }))
        .collect()
}

/// The rules of a profile as an engine reads them: name, action, errno, conditions.
fn rules(json: &Value) -> Vec<(&str, &str, Option<u64>, &[Value])> {
    json["syscalls"]
        .as_array()
        .expect("rules")
        .iter()
        .flat_map(|rule| {
            let action = rule["action"].as_str().expect("an action");
            let args = rule["args"].as_array().map_or(&[][..], Vec::as_slice);
            rule["names"].as_array().expect("names").iter().map(move |name| {
                (
                    name.as_str().expect("a name"),
                    action,
                    rule["errnoRet"].as_u64(),
                    args,
                )
            })
        })
        .collect()
}

#[test]
fn only_operators_that_compare_soundly_are_used() {
    for options in every_option() {
        let json = profile(options).to_json();
        for (name, _, _, args) in rules(&json) {
            let mut seen = BTreeSet::new();
            for arg in args {
                let op = arg["op"].as_str().expect("an operator");
                assert!(
                    ["SCMP_CMP_EQ", "SCMP_CMP_LT", "SCMP_CMP_MASKED_EQ"].contains(&op),
                    "{name}: {op}"
                );
                assert!(
                    seen.insert(arg["index"].as_u64()),
                    "{name}: two conditions on one argument become an or"
                );
                assert!(
                    arg["value"].as_u64().expect("a value") < 1 << 53,
                    "{name}: not exact in JSON"
                );
                assert!(
                    op != "SCMP_CMP_MASKED_EQ" || args.len() == 1,
                    "{name}: a mask beside another condition is not sound in libseccomp 2.5"
                );
                if op == "SCMP_CMP_LT" {
                    assert!(
                        arg["value"].as_u64() < Some(1 << 31),
                        "{name}: would let through bit 31"
                    );
                }
            }
        }
    }
}

#[test]
fn no_call_has_both_an_unconditional_and_another_rule() {
    for options in every_option() {
        let json = profile(options).to_json();
        let rules = rules(&json);
        for (index, (name, _, _, args)) in rules.iter().enumerate() {
            for (other, _, _, others) in &rules[index + 1..] {
                if name == other {
                    assert!(
                        !args.is_empty() && !others.is_empty() && args != others,
                        "{options:?}: {name} has rules that hide one another"
                    );
                }
            }
        }
    }
}

#[test]
fn every_answer_is_written_and_none_is_the_default() {
    for options in every_option() {
        let json = profile(options).to_json();
        assert_eq!(
            (&json["defaultAction"], &json["defaultErrnoRet"]),
            (&"SCMP_ACT_ERRNO".into(), &1.into())
        );
        for (name, action, errno, args) in rules(&json) {
            match action {
                "SCMP_ACT_ALLOW" => assert_eq!(errno, None, "{name}"),
                "SCMP_ACT_ERRNO" => {
                    assert!(
                        errno.is_some_and(|errno| errno != 1),
                        "{name}: {errno:?} is skipped"
                    );
                    let marked = ["personality", "setsockopt"].contains(&name);
                    assert!(
                        args.is_empty() || marked,
                        "{name}: a refusal that looks at arguments"
                    );
                    assert!(
                        args.iter().all(|arg| arg["op"] == "SCMP_CMP_EQ"),
                        "{name}: an answer that may overlap with an allow"
                    );
                }
                _ => panic!("{name}: {action}"),
            }
        }
    }
}

#[test]
fn only_the_native_abi_is_named() {
    for (arch, name) in [
        (Arch::X86_64, "SCMP_ARCH_X86_64"),
        (Arch::Aarch64, "SCMP_ARCH_AARCH64"),
    ] {
        let json = profile(FilterOptions {
            arch,
            sockets: Sockets::UnixOnly,
        })
        .to_json();
        assert_eq!(json["architectures"], serde_json::json!([name]));
        assert!(json.get("archMap").is_none());
    }
}

#[test]
fn nothing_that_is_promised_away_is_allowed() {
    const NEVER: &str = "acct add_key adjtimex bpf cachestat chroot clock_adjtime clock_settime clone3 delete_module \
        fanotify_init fanotify_mark finit_module fsconfig fsmount fsopen fspick get_mempolicy init_module \
        io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit io_uring_enter io_uring_register \
        io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl listmount lookup_dcookie mbind \
        memfd_secret migrate_pages modify_ldt mount mount_setattr move_mount move_pages name_to_handle_at \
        nfsservctl open_by_handle_at open_tree open_tree_attr perf_event_open pidfd_getfd pivot_root \
        process_madvise process_mrelease process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot \
        remap_file_pages request_key sendfile set_mempolicy set_mempolicy_home_node setdomainname sethostname \
        setns settimeofday socketcall splice statmount swapoff swapon sync syncfs sysfs syslog tee umount2 \
        unshare userfaultfd uselib ustat vhangup vmsplice";
    const WITH_CONDITIONS: &str = "arch_prctl clone madvise mknod mknodat personality prctl recvfrom recvmmsg \
        recvmsg seccomp sendmmsg sendmsg sendto setsockopt socket socketpair";
    for options in every_option() {
        let json = profile(options).to_json();
        for (name, action, _, args) in rules(&json) {
            if action == "SCMP_ACT_ALLOW" {
                assert!(!NEVER.split_whitespace().any(|never| never == name), "{name}");
                let conditional = WITH_CONDITIONS.split_whitespace().any(|with| with == name);
                assert_eq!(conditional, !args.is_empty(), "{name}");
            }
        }
    }
}

#[test]
fn the_inline_form_is_the_document_and_its_digest_tells_profiles_apart() {
    let mut digests = BTreeSet::new();
    for options in every_option() {
        let profile = profile(options);
        let inline = profile.inline();
        assert!(!inline.contains('\n'));
        assert_eq!(
            serde_json::from_str::<Value>(&inline).expect("JSON"),
            profile.to_json()
        );
        assert_eq!(
            serde_json::from_str::<Value>(&profile.pretty()).expect("JSON"),
            profile.to_json()
        );
        assert_eq!(profile.digest(), Digest::of(inline.as_bytes()));
        assert_eq!(profile, super::profile(options));
        assert!(digests.insert(profile.digest()), "{options:?}");
    }
}

#[test]
fn an_architecture_is_known_by_the_engines_and_the_kernels_name() {
    assert_eq!(Arch::of("x86_64"), Some(Arch::X86_64));
    assert_eq!(Arch::of("amd64"), Some(Arch::X86_64));
    assert_eq!(Arch::of("aarch64"), Some(Arch::Aarch64));
    assert_eq!(Arch::of("arm64"), Some(Arch::Aarch64));
    assert_eq!(Arch::of("i686"), None);
}

#[test]
fn the_committed_profile_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/seccomp.json");
    let current = profile(FilterOptions {
        arch: Arch::X86_64,
        sockets: Sockets::UnixOnly,
    })
    .pretty();
    if std::env::var_os("MAYFLY_UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
        std::fs::write(&path, &current).expect("the file can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == current,
        "config/seccomp.json is not what the code gives; docs/syscall-filter.md says how to write it anew"
    );
}
