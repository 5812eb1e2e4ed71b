# Processes that share work, memory, locks and a manager's objects, by both ways to start them.
cat > pool.py <<'P'
import multiprocessing as mp
from multiprocessing import shared_memory

def square(n):
    return n * n

def add(total, lock, queue):
    for _ in range(100):
        with lock:
            total.value += 1
    queue.put("done")

def fill(name):
    memory = shared_memory.SharedMemory(name)
    memory.buf[:4] = b"data"
    memory.close()

def main():
    for method in ("fork", "spawn"):
        ways = mp.get_context(method)
        with ways.Pool(3) as pool:
            print(method, sum(pool.map(square, range(100))))
        total, lock, queue = ways.Value("i", 0), ways.Lock(), ways.Queue()
        workers = [ways.Process(target=add, args=(total, lock, queue)) for _ in range(3)]
        for worker in workers:
            worker.start()
        print(*(queue.get(timeout=20) for _ in workers))
        for worker in workers:
            worker.join()
        print(total.value)
        with ways.Manager() as manager:
            names = manager.list()
            names.append("managed")
            print(*names)
        memory = shared_memory.SharedMemory(create=True, size=16)
        worker = ways.Process(target=fill, args=(memory.name,))
        worker.start()
        worker.join()
        print(bytes(memory.buf[:4]).decode())
        memory.close()
        memory.unlink()

if __name__ == "__main__":
    main()
P
python3 pool.py
