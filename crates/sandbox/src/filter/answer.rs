//! Calls that are not made and have another answer than `EPERM`.

use super::document::Rule;

/// `errno` values, the same on both architectures (`asm-generic/errno*.h`).
const SUCCESS: u32 = 0;
const EINVAL: u32 = 22;
const ENOSYS: u32 = 38;

pub(super) fn rules() -> impl Iterator<Item = Rule> {
    [
        // Its flags lie in memory. The C library falls back to `clone` after this answer and no other.
        Rule::answer(
            "its flags can't be seen; clone is taken instead",
            ENOSYS,
            &["clone3"],
        ),
        // EPERM was measured to break Java's Files.copy, ENOSYS its transferTo.
        Rule::answer(
            "page cache pages into sockets; programs copy by themselves after EINVAL",
            EINVAL,
            &["sendfile"],
        ),
        // `fs.aio-max-nr` is not namespaced: one job could take all of it. Databases fall back after ENOSYS.
        Rule::answer(
            "Linux AIO: its limit is shared by the whole host",
            ENOSYS,
            &[
                "io_cancel",
                "io_destroy",
                "io_getevents",
                "io_pgetevents",
                "io_setup",
                "io_submit",
            ],
        ),
        // A runtime answers ENOSYS to numbers above all that it knows, so the answer must not depend on its age.
        // `cachestat` also told of other containers' reading until Linux 6.14.
        Rule::answer(
            "newer than what programs need",
            ENOSYS,
            &[
                "cachestat",
                "file_getattr",
                "file_setattr",
                "listmount",
                "listns",
                "lsm_get_self_attr",
                "lsm_list_modules",
                "lsm_set_self_attr",
                "open_tree_attr",
                "statmount",
            ],
        ),
        // All that a job writes to is memory, so there is nothing to make durable, and `sync` acts on every file
        // system of the host.
        Rule::answer(
            "would flush the disks of the whole host; a sandbox has none",
            SUCCESS,
            &["sync", "syncfs"],
        ),
    ]
    .into_iter()
}
