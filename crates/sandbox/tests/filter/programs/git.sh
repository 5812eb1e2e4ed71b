# A repository through its usual life.
export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e
git init --quiet one
cd one
seq 10000 > numbers
git add .
git commit --quiet -m first
git checkout --quiet -b side
seq 20000 > numbers
git commit --quiet -am second
git checkout --quiet -
git merge --quiet side
git gc --quiet
git fsck --strict 2> /dev/null
cd ..
git clone --quiet one two
git clone --quiet --no-local one three
cd two
git log --stat > /dev/null
git worktree add --quiet ../four HEAD~1
git status > /dev/null
echo x > numbers
git stash --quiet
git archive HEAD | tar -t > /dev/null
