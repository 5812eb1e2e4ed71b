# Forks, pipes, socket pairs, locks, copies.
perl -MFile::Copy -MSocket -MFcntl=:flock -MIO::Select -e '
    open my $f, ">", "a" or die $!; print $f "x" x 1e6; flock $f, LOCK_EX or die $!; close $f;
    copy("a", "b") && -s "b" == 1e6 or die $!;
    socketpair my $one, my $two, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die $!;
    defined(my $pid = fork) or die $!;
    if (!$pid) { syswrite $one, "hello"; exit 3 }
    IO::Select->new($two)->can_read(10) or die "nothing"; sysread $two, my $got, 10; $got eq "hello" or die;
    waitpid $pid, 0; $? >> 8 == 3 or die;
    `echo out` eq "out\n" or die $!;
    local $SIG{ALRM} = sub { exit 0 }; alarm 1; sleep 10; die "no signal";'
