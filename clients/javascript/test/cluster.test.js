import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Cluster, StatusError } from '../index.js';

const MODULE = new URL('../index.js', import.meta.url);
const MAPS = '/api/v1/namespaces/default/configmaps';
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

test('requests meet the faults of rules', async () => {
  const faults = [{ verbs: ['list'], resources: ['secrets'], status: 500 }];
  const cluster = await Cluster.start({ components: ['apiserver'], faults });
  await assert.rejects(cluster.request('GET', '/api/v1/secrets'), { code: 500 });
  await cluster.faults.set([{ verbs: ['create'], resources: ['configmaps'], status: 409, times: 1 }], { seed: 7 });
  await assert.rejects(cluster.request('POST', MAPS, { metadata: { name: 'a' } }), { code: 409 });
  await cluster.request('POST', MAPS, { metadata: { name: 'a' } });
  assert.deepEqual(await cluster.faults.counts(), [{ matched: 2, injected: 1 }]);
  await assert.rejects(cluster.faults.set([{ status: 200 }]), /400: .*status/);
  await cluster.faults.clear();
  assert.deepEqual(await cluster.faults.counts(), []);
  await cluster.stop();
});

test('forks have the objects and go their own way', async () => {
  const cluster = await Cluster.start({ components: ['apiserver'] });
  await cluster.request('POST', MAPS, { metadata: { name: 'prepared' } });
  const [fork, other] = [await cluster.fork(), await cluster.fork()];
  await fork.request('POST', MAPS, { metadata: { name: 'own' } });
  await fork.request('GET', `${MAPS}/prepared`);
  for (const parallel of [cluster, other]) {
    await assert.rejects(parallel.request('GET', `${MAPS}/own`), { code: 404 });
  }
  assert.ok(existsSync(fork.kubeconfigPath) && fork.url !== cluster.url);
  await fork.stop();
  assert.ok(!existsSync(fork.kubeconfigPath));
  await assert.rejects(fork.request('GET', MAPS));
  await cluster.stop();
  // a fork stops with its parent
  await other.stop();
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
