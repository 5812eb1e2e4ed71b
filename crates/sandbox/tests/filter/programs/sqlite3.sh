# A database with a write-ahead log.
sqlite3 a.db 'PRAGMA journal_mode=WAL; PRAGMA mmap_size=1000000; CREATE TABLE t(a); INSERT INTO t VALUES (1),(2);' > /dev/null
test "$(sqlite3 a.db 'SELECT sum(a) FROM t')" = 3
sqlite3 a.db '.backup b.db'
sqlite3 b.db 'PRAGMA integrity_check; VACUUM;' > /dev/null
