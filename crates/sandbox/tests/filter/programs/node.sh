# Threads, processes, copies, sockets; a web server where there is loopback.
cat > main.js <<'J'
const fs = require('fs'), net = require('net'), http = require('http'), zlib = require('zlib'), crypto = require('crypto');
const { execFileSync, fork } = require('child_process');
const { Worker, isMainThread, parentPort } = require('worker_threads');
const assert = require('assert');
if (!isMainThread) { parentPort.postMessage(42); return; }
if (process.send) { process.send('hello'); process.disconnect(); return; }
(async () => {
    fs.writeFileSync('a', Buffer.alloc(1e6, 7));
    fs.copyFileSync('a', 'b'); await fs.promises.cp('a', 'c'); fs.mkdirSync('d/e', { recursive: true });
    fs.cpSync('d', 'f', { recursive: true }); assert.equal(fs.statSync('c').size, 1e6);
    await new Promise(done => fs.createReadStream('a').pipe(zlib.createGzip()).pipe(fs.createWriteStream('g')).on('close', done));
    const watcher = fs.watch('d'); watcher.close();
    assert.equal(await new Promise(done => new Worker(__filename).on('message', done)), 42);
    assert.equal(await new Promise(done => fork(__filename).on('message', done)), 'hello');
    assert.equal(execFileSync('echo', ['x']).toString(), 'x\n');
    await new Promise(done => crypto.pbkdf2('p', 's', 1000, 32, 'sha256', done));
    const talk = (...where) => new Promise((done, fail) => {
        const server = net.createServer(c => c.end('hi')).on('error', fail).listen(...where, () =>
            net.connect(server.address().port || where[0]).on('data', d => { assert.equal(d.toString(), 'hi'); server.close(done); }));
    });
    await talk('socket');
    if (process.env.CLASS === 'loopback') {
        await talk(0, '127.0.0.1');
        assert.ok(require('os').networkInterfaces().lo);
        const server = http.createServer((q, r) => fs.createReadStream('a').pipe(r)).listen(0, '127.0.0.1');
        await new Promise(done => server.on('listening', done));
        const answer = await fetch(`http://127.0.0.1:${server.address().port}/`);
        assert.equal((await answer.arrayBuffer()).byteLength, 1e6);
        server.closeAllConnections(); server.close();
    }
})().catch(e => { console.error(e); process.exit(1); });
J
node main.js
