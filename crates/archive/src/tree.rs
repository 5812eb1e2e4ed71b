//! Which names are taken, and by what.

use std::collections::BTreeSet;

/// Files and folders that are to be in one place, so that no two of them are in each other's way.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeSet<String>,
    /// Those that were named. Others are there because something is below them.
    folders: BTreeSet<String>,
}

/// Why a name can't be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Clash {
    Duplicate,
    IsFolder,
    IsFile,
    BelowFile(String),
}

impl Tree {
    /// Takes the name of a file that has been judged elsewhere; one that is taken stays so.
    pub fn insert_file(&mut self, path: &str) {
        self.files.insert(path.to_owned());
    }

    pub(crate) fn file(&mut self, path: &str) -> Result<(), Clash> {
        if self.files.contains(path) {
            return Err(Clash::Duplicate);
        }
        if self.is_folder(path) {
            return Err(Clash::IsFolder);
        }
        self.below_no_file(path)?;
        self.files.insert(path.to_owned());
        Ok(())
    }

    pub(crate) fn folder(&mut self, path: &str) -> Result<(), Clash> {
        if self.files.contains(path) {
            return Err(Clash::IsFile);
        }
        self.below_no_file(path)?;
        self.folders.insert(path.to_owned());
        Ok(())
    }

    fn is_folder(&self, path: &str) -> bool {
        let below = format!("{path}/");
        let is_below = |set: &BTreeSet<String>| {
            set.range(below.clone()..)
                .next()
                .is_some_and(|next| next.starts_with(&below))
        };
        self.folders.contains(path) || is_below(&self.files) || is_below(&self.folders)
    }

    fn below_no_file(&self, path: &str) -> Result<(), Clash> {
        let mut parents = path.match_indices('/').map(|(end, _)| &path[..end]);
        match parents.find(|parent| self.files.contains(*parent)) {
            Some(file) => Err(Clash::BelowFile(file.to_owned())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_file_or_one_folder() {
        let mut tree = Tree::default();
        tree.insert_file("main.py");
        assert_eq!(tree.file("main.py"), Err(Clash::Duplicate));
        assert_eq!(
            tree.file("main.py/a"),
            Err(Clash::BelowFile("main.py".to_owned()))
        );
        assert_eq!(tree.folder("main.py"), Err(Clash::IsFile));
        assert_eq!(tree.file("a/b/c"), Ok(()));
        assert_eq!(tree.file("a/b"), Err(Clash::IsFolder));
        assert_eq!(tree.file("a/b-"), Ok(()), "a name that only begins alike");
        assert_eq!(tree.folder("a/b"), Ok(()));
        assert_eq!(tree.folder("d"), Ok(()));
        assert_eq!(tree.folder("d"), Ok(()));
        assert_eq!(tree.file("d"), Err(Clash::IsFolder));
        assert_eq!(tree.folder("a/b/c/e"), Err(Clash::BelowFile("a/b/c".to_owned())));
    }
}
