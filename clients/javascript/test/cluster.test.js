import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Cluster, StatusError } from '../index.js';

const MODULE = new URL('../index.js', import.meta.url);
const POD = { metadata: { name: 'a' }, spec: { containers: [{ name: 'c', image: 'i' }] } };

// The server deletes its kubeconfig when it ends.
async function untilGone(path) {
  for (const deadline = Date.now() + 60_000; existsSync(path); await sleep(20)) {
    assert.ok(Date.now() < deadline, `the server is still there: ${path}`);
  }
}

test('clusters are ready for pods and stop', async () => {
  const cluster = await Cluster.start({ nodes: 2 });
  await cluster.request('POST', '/api/v1/namespaces/default/pods', POD);
  assert.ok(cluster.kubeconfig.includes(cluster.url) && existsSync(cluster.kubeconfigPath));
  assert.match(cluster.log, /is ready on/);
  await cluster.stop();
  assert.ok(!existsSync(cluster.kubeconfigPath));
  await cluster.stop();
});

test('the clock moves on request', async () => {
  const cluster = await Cluster.start({ nodes: 1, manualClock: true, seed: 7 });
  const before = await cluster.clock.now();
  const move = await cluster.clock.advance('5m', { step: 60_000, pause: 1 });
  assert.equal(move.now - before, 300_000);
  await cluster.clock.settle();
  await cluster.stop();
});

test('a real clock is not moved', async () => {
  const cluster = await Cluster.start({ components: ['apiserver'] });
  await assert.rejects(cluster.clock.advance('1h'), /manualClock/);
  await assert.rejects(cluster.request('GET', '/api/v1/namespaces/a'), (error) => {
    return error instanceof StatusError && error.message === '404: namespaces "a" not found';
  });
  await cluster.stop();
});

test('errors say what to do', async () => {
  await assert.rejects(Cluster.start({ binary: 'no-such-pintle' }), /set the variable PINTLE/);
  await assert.rejects(Cluster.start({ seed: 7 }), /--seed needs --clock manual/);
});

test('a cluster goes when its test is killed or forgets it', async () => {
  const start = `import { Cluster } from '${MODULE}'; const c = await Cluster.start({ components: ['apiserver'] });
    console.log(c.kubeconfigPath);`;
  for (const rest of ['setInterval(() => {}, 1000)', '']) {
    const child = spawn(process.execPath, ['--input-type=module', '-e', start + rest], { stdio: ['ignore', 'pipe', 'inherit'] });
    const closed = once(child, 'close');
    const [line] = await once(child.stdout.setEncoding('utf8'), 'data');
    if (rest) child.kill('SIGKILL');
    const [status] = await closed;
    assert.equal(status, rest ? null : 0);
    await untilGone(line.trim());
  }
});
