# Compiles, links, archives; runs threads, shared objects, memory protection and POSIX objects.
cat > lib.c <<'C'
int six(void) { return 6; }
C
cat > main.c <<'C'
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>
int six(void);
extern char **environ;
static void *add(void *sum) { __atomic_add_fetch((long *)sum, 1, __ATOMIC_SEQ_CST); return NULL; }
int main(void) {
    long sum = 0;
    pthread_t threads[20];
    for (int i = 0; i < 20; i++) if (pthread_create(&threads[i], NULL, add, &sum)) return 1;
    for (int i = 0; i < 20; i++) pthread_join(threads[i], NULL);
    if (sum != 20) return 2;
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED || mprotect(code, 4096, PROT_READ | PROT_EXEC)) return 3;
    sem_t *semaphore = sem_open("/honest", O_CREAT, 0600, 1);
    if (semaphore == SEM_FAILED || sem_wait(semaphore) || sem_unlink("/honest")) return 4;
    int shared = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    if (shared < 0 || shmat(shared, NULL, 0) == (void *)-1 || shmctl(shared, IPC_RMID, NULL)) return 5;
    pid_t child;
    char *arguments[] = {"true", NULL};
    int status;
    if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) || wait(&status) != child || status) return 6;
    if (system("exit 3") != 3 << 8) return 7;
    FILE *pipe = popen("echo popen", "r");
    char line[10];
    if (!fgets(line, sizeof line, pipe) || strcmp(line, "popen\n") || pclose(pipe)) return 8;
    return six() == 6 ? 0 : 9;
}
C
gcc -O2 -fPIC -shared lib.c -o libsix.so
gcc -O2 -pthread main.c -L. -lsix -Wl,-rpath,"$PWD" -o shared
./shared
gcc -O2 -c lib.c -o lib.o
ar rcs libstatic.a lib.o
gcc -O2 -pthread -static main.c lib.o -o static
./static
gcc -O2 -flto -pthread main.c lib.c -o lto
./lto
# AddressSanitizer, in the environment that sandboxes give it.
export ASAN_OPTIONS=detect_leaks=0
cat > sane.c <<'C'
#include <stdlib.h>
int main(int count, char **arguments) {
    char *text = malloc(8);
    text[0] = (char)count;
    if (count > 1) free(text);
    return text[0] == count ? 0 : 1;
}
C
gcc -g -fsanitize=address sane.c -o sane
./sane
if ./sane freed 2> said; then exit 1; fi
grep -q heap-use-after-free said
