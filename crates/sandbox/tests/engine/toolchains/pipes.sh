# Named pipes, by the shell and between two processes that open them from either end.
mkfifo /work/named /tmp/other
(read -r line < /work/named; echo "read $line" > /tmp/other) &
echo hello > /work/named
cat /tmp/other
wait
seq 1 1000 > /work/named & awk '{ sum += $1 } END { print sum }' < /work/named
wait
