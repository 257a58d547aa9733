import assert from 'node:assert/strict';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { AppsV1Api, BatchV1Api, KubeConfig } from '@kubernetes/client-node';
import { Cluster } from 'pintle';

function client(cluster, api) {
  const config = new KubeConfig();
  config.loadFromString(cluster.kubeconfig);
  return config.makeApiClient(api);
}

test('a deployment becomes available', async (t) => {
  const cluster = await Cluster.start({ nodes: 3 });
  t.after(() => cluster.stop());
  const apps = client(cluster, AppsV1Api);
  const body = {
    metadata: { name: 'web' },
    spec: {
      replicas: 3,
      selector: { matchLabels: { app: 'web' } },
      template: {
        metadata: { labels: { app: 'web' } },
        spec: { containers: [{ name: 'web', image: 'example.com/web:1' }] },
      },
    },
  };
  await apps.createNamespacedDeployment({ namespace: 'default', body });
  const available = async () => {
    const { status } = await apps.readNamespacedDeployment({ namespace: 'default', name: 'web' });
    return status?.availableReplicas === 3;
  };
  for (const deadline = Date.now() + 60_000; !(await available()); await sleep(10)) {
    assert.ok(Date.now() < deadline, cluster.log);
  }
});

test('a finished job goes after its TTL', async (t) => {
  const cluster = await Cluster.start({ nodes: 1, manualClock: true, seed: 7 });
  t.after(() => cluster.stop());
  const batch = client(cluster, BatchV1Api);
  const containers = [{ name: 'report', image: 'example.com/report:1' }];
  const body = {
    metadata: { name: 'report' },
    spec: { ttlSecondsAfterFinished: 600, template: { spec: { restartPolicy: 'Never', containers } } },
  };
  await batch.createNamespacedJob({ namespace: 'default', body });
  await cluster.clock.settle({ limit: '5m' });
  const job = await batch.readNamespacedJob({ namespace: 'default', name: 'report' });
  assert.equal(job.status.succeeded, 1);
  const { changes } = await cluster.clock.advance('10m');
  assert.ok(changes.some((it) => it.type === 'DELETED' && it.resource === 'jobs.batch' && it.name === 'report'));
});
