# Copies by every way that cp, cat, tar and dd know, and makes what mknod makes.
head -c 3000000 /dev/urandom > a
cp a b
cmp a b
cp --sparse=always --reflink=auto -a a c
cmp a c
cat a > d
cmp a d
cat a | cat | tail -c 1000 > tail
dd if=a of=e bs=64k conv=fsync 2> /dev/null
cmp a e
mkdir -p tree/deep
ln -s ../a tree/link
ln a tree/hard
mkfifo tree/pipe
tar -cf tree.tar tree
mkdir out
tar -xf tree.tar -C out
test -p out/tree/pipe
gzip < a | gunzip | cmp - a
sort --parallel=2 tail > /dev/null
install -m 644 a f
truncate -s 10 f
split -n 3 a part.
sync
sync f
(sleep 100 & kill $!; wait $! || true)
timeout 5 true
nice true
env -i /bin/true
setpriv --no-new-privs true
flock lock true
ls -laR . > /dev/null
stat a > /dev/null
df . > /dev/null
du . > /dev/null
