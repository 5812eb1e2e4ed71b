# A parallel build with a job server.
printf 'all: a b c d\n%%:\n\t@echo $@ > $@.out\n' > Makefile
make -j 3 --silent
cat a.out b.out c.out d.out > /dev/null
