// Drives a server with the JavaScript client library.
//
//     node suite.mjs KUBECONFIG NAMESPACE SAMPLES KINDS
//
// Each kind of the list is created, read, listed, patched in three ways, replaced, deleted, and its events are
// watched from before its creation. What is not as it should be is told, and the run ends with status 1.

import { readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import * as k8s from '@kubernetes/client-node';

const [kubeconfig, namespace, samples, list] = process.argv.slice(2);
const prefix = 'interop-js-';
// a label of its own: another suite may run at the same time
const label = 'interop-js';
const patience = 30_000;
let checks = 0;

function check(holds, what) {
  checks += 1;
  if (!holds) throw new Error(what);
}

async function refused(code, reason, what, call) {
  try {
    await call();
  } catch (why) {
    const status = typeof why.body === 'string' ? JSON.parse(why.body) : why.body;
    check(why.code === code && status?.reason === reason, `${what}: ${code} ${reason}, but ${why}`);
    return status;
  }
  throw new Error(`${what}: should be refused with ${code} ${reason}`);
}

const sample = (name) => k8s.loadYaml(readFileSync(`${samples}/${name}.yaml`, 'utf8'));
const config = new k8s.KubeConfig();
config.loadFromFile(kubeconfig);
const as = (media) => k8s.setHeaderOptions('Content-Type', media);

/** The calls of the typed client for one kind. */
function calls(line) {
  const [api, name] = line.trim().split(/\s+/);
  const object = sample(name);
  const { kind, apiVersion } = object;
  const client = config.makeApiClient(k8s[api]);
  const namespaced = typeof client[`createNamespaced${kind}`] === 'function';
  const place = namespaced ? { namespace } : {};
  object.metadata.name = prefix + object.metadata.name;
  const call = (verb, rest, ...more) =>
    client[`${verb}${namespaced ? 'Namespaced' : ''}${kind}`]({ ...place, ...rest }, ...more);
  const one = (verb, rest, ...more) => call(verb, { name: object.metadata.name, ...rest }, ...more);
  return { kind, apiVersion, object, call, one, namespaced };
}

/** Removes an object; what protects volumes in use is the work of a controller, which need not run here. */
async function remove({ one }) {
  try {
    await one('delete');
    const left = await one('read');
    if (left.metadata.finalizers) {
      await one('patch', { body: { metadata: { finalizers: null } } }, as(k8s.PatchStrategy.MergePatch));
    }
  } catch (why) {
    if (why.code !== 404) throw why;
  }
}

/** The collection's path, from discovery. */
async function path(apiVersion, kind, namespaced) {
  const objects = k8s.KubernetesObjectApi.makeApiClient(config);
  const resource = await objects.resource(apiVersion, kind);
  const root = apiVersion.includes('/') ? 'apis' : 'api';
  return `/${root}/${apiVersion}${namespaced ? `/namespaces/${namespace}` : ''}/${resource.name}`;
}

/** Events of one object from a version on, up to its deletion. */
async function events(where, name, resourceVersion) {
  const seen = [];
  const query = { resourceVersion, fieldSelector: `metadata.name=${name}` };
  await new Promise((done, fail) => {
    const late = setTimeout(() => fail(new Error(`${where}: no deletion among ${seen}`)), patience);
    const finish = () => (clearTimeout(late), done());
    const event = (type, object) => {
      seen.push(`${type} ${object.metadata.labels?.[label]}`);
      if (type === 'DELETED') finish();
    };
    new k8s.Watch(config).watch(where, query, event, (why) => (why ? fail(why) : finish())).then(
      (request) => setTimeout(() => request.abort?.(), patience).unref(),
      fail,
    );
  });
  return seen;
}

async function typed(line) {
  const kind = calls(line);
  const { object, call, one } = kind;
  const what = `javascript ${kind.kind}`;
  const body = object;
  await remove(kind);
  const before = (await call('list')).metadata.resourceVersion;
  check((await call('create', { body, dryRun: 'All' })).metadata.uid, `${what}: a dry run answers`);
  await refused(404, 'NotFound', what, () => one('read'));
  const made = await call('create', { body, fieldValidation: 'Strict' });
  check(made.metadata.name === object.metadata.name && made.metadata.uid, `${what}: created`);
  await refused(409, 'AlreadyExists', what, () => call('create', { body }));
  check(isDeepStrictEqual(await one('read'), made), `${what}: what was made is what is read`);
  const only = await call('list', { fieldSelector: `metadata.name=${object.metadata.name}` });
  check(only.items.length === 1, `${what}: the list`);

  for (const [step, media] of [
    ['strategic', k8s.PatchStrategy.StrategicMergePatch],
    ['merge', k8s.PatchStrategy.MergePatch],
  ]) {
    const patched = await one('patch', { body: { metadata: { labels: { [label]: step } } } }, as(media));
    check(patched.metadata.labels[label] === step, `${what}: ${step} patch`);
  }
  const pointed = [{ op: 'replace', path: `/metadata/labels/${label}`, value: 'json' }];
  const patched = await one('patch', { body: pointed }, as(k8s.PatchStrategy.JsonPatch));
  check(patched.metadata.labels[label] === 'json', `${what}: JSON patch`);
  check((await call('list', { labelSelector: `${label}=json`, limit: 1 })).items.length === 1, `${what}: by label`);

  const current = await one('read');
  const stale = await one('read');
  current.metadata.labels[label] = 'put';
  check((await one('replace', { body: current })).metadata.labels[label] === 'put', `${what}: replaced`);
  stale.metadata.labels[label] = 'late';
  await refused(409, 'Conflict', what, () => one('replace', { body: stale }));
  await remove(kind);
  await refused(404, 'NotFound', what, () => one('read'));

  const where = await path(kind.apiVersion, kind.kind, kind.namespaced);
  const seen = await events(where, object.metadata.name, before);
  const steps = ['ADDED undefined', 'MODIFIED strategic', 'MODIFIED merge', 'MODIFIED json', 'MODIFIED put'];
  // a finalizer adds steps before the last
  const right = isDeepStrictEqual(seen.slice(0, 5), steps) && seen.at(-1) === 'DELETED put';
  check(right, `${what}: the events ${seen}`);
}

/** The library's way with objects of any kind, and server-side apply. */
async function untyped() {
  const objects = k8s.KubernetesObjectApi.makeApiClient(config);
  for (const name of ['core.v1.ConfigMap', 'apps.v1.Deployment', 'rbac.v1.Role']) {
    const body = sample(name);
    const what = `javascript untyped ${body.kind}`;
    Object.assign(body.metadata, { name: `${prefix}untyped`, namespace, labels: { owner: 'one' } });
    const apply = (object, manager, force) =>
      objects.patch(object, undefined, undefined, manager, force, k8s.PatchStrategy.ServerSideApply);
    const applied = await apply(body, 'one', true);
    check(applied.metadata.managedFields[0].manager === 'one', `${what}: who applied`);
    const rival = structuredClone(body);
    rival.metadata.labels.owner = 'two';
    await refused(409, 'Conflict', what, () => apply(rival, 'two', false));
    check((await objects.read(body)).metadata.labels.owner === 'one', `${what}: read`);
    await objects.delete(body);
  }
}

/** Goes on after a failure, so that one run tells all of them. */
async function attempt(failures, what, call) {
  try {
    await call();
  } catch (why) {
    failures.push(what);
    console.error(`FAILED: javascript ${what}: ${why.message ?? why}`);
  }
}

async function basics() {
  const version = await config.makeApiClient(k8s.VersionApi).getCode();
  check(version.gitVersion.startsWith('v'), `version ${JSON.stringify(version)}`);
  const core = config.makeApiClient(k8s.CoreV1Api);
  await core.createNamespace({ body: { metadata: { name: namespace } } }).catch((why) => {
    if (why.code !== 409) throw why;
  });
  const wrong = { metadata: { name: 'Not_A_Name' } };
  const status = await refused(422, 'Invalid', 'a wrong name', () =>
    core.createNamespacedConfigMap({ namespace, body: wrong }),
  );
  check(status.details.causes[0].field === 'metadata.name', `causes ${JSON.stringify(status)}`);
}

async function main() {
  const failures = [];
  await attempt(failures, 'basics', basics);
  const lines = readFileSync(list, 'utf8').split('\n').filter((line) => line.trim() && !line.startsWith('#'));
  for (const line of lines) await attempt(failures, line.trim().split(/\s+/)[1], () => typed(line));
  await attempt(failures, 'untyped objects', untyped);
  console.log(`javascript client: ${lines.length} kinds, ${checks} checks, ${failures.length} failed`);
  return failures.length ? 1 : 0;
}

main().then(
  (status) => process.exit(status),
  (why) => {
    console.error(`FAILED: ${why.stack ?? why}`);
    process.exit(1);
  },
);
