// Clusters for tests: a whole Kubernetes control plane in a process of its own, with simulated nodes and a clock that
// the test holds. Types and documentation are in index.d.ts. Nothing but Node.js is needed.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, readFileSync, statSync } from 'node:fs';
import { request as httpsRequest } from 'node:https';
import { delimiter, join, resolve, sep } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const BINARY_VARIABLE = 'PINTLE';
const KEPT_OUTPUT = 256 * 1024;
const STOP_TIMEOUT_MS = 30_000;
const CLOCK_PATH = '/simulation/clock';

export class StatusError extends Error {
  constructor(code, body) {
    let message = body;
    try {
      message = JSON.parse(body).message ?? body;
    } catch {
      // not every response is an object
    }
    super(`${code}: ${message}`);
    this.name = 'StatusError';
    this.code = code;
    this.body = body;
  }
}

export class Cluster {
  #child;
  #ended;
  #output = '';
  #authority;
  #token;

  static async start(options = {}) {
    const cluster = new Cluster(options);
    try {
      await cluster.#untilReady(options);
    } catch (error) {
      await cluster.#end();
      throw new Error(`the cluster did not start: ${error.message}; its output:\n${cluster.log}`, { cause: error });
    }
    // a test that forgets to stop its cluster ends all the same, and the cluster with it
    for (const handle of [cluster.#child, ...cluster.#child.stdio]) handle.unref();
    return cluster;
  }

  constructor(options) {
    // the server ends when its standard input is closed, by stop() or by the death of this process
    this.#child = spawn(findBinary(options.binary), argumentsOf(options), { stdio: ['pipe', 'pipe', 'pipe'] });
    // listened for from the start: an end is noticed whenever it comes
    this.#ended = new Promise((done) => {
      this.#child.once('error', (error) => done(error.message));
      this.#child.once('close', (status, signal) => done(signal ?? status));
    });
    // a server that has ended does not read any more
    this.#child.stdin.on('error', () => {});
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        this.#output += text;
        if (this.#output.length > 2 * KEPT_OUTPUT) this.#output = this.#output.slice(-KEPT_OUTPUT);
      });
    }
    this.clock = {
      now: async () => new Date((await this.#sendClock('GET', {})).now),
      advance: async (by, pace) => clockMove(await this.#sendClock('POST', { advance: by, ...pace })),
      settle: async ({ limit = '10m', quiet, step, pause } = {}) => {
        const state = await this.#sendClock('POST', { settle: limit, quiet, step, pause });
        if (!state.settled) throw new Error(`the cluster still changes after ${limit}`);
        return clockMove(state);
      },
    };
  }

  // Waits for the greeting, the service account without which pods are refused, and the nodes.
  async #untilReady({ nodes = 0, components, startTimeoutMs = 60_000 }) {
    const deadline = Date.now() + startTimeoutMs;
    let ended;
    this.#ended.then((status) => (ended = { status }));
    const until = async (problem, holds) => {
      while (!(await holds())) {
        if (ended) throw new Error(`it ended: ${ended.status}`);
        if (Date.now() > deadline) throw new Error(`not in time: ${problem}`);
        await sleep(5);
      }
    };
    const export_ = /export KUBECONFIG=(.*)\n/;
    await until('it is not ready', () => export_.test(this.#output));
    this.kubeconfigPath = unquote(export_.exec(this.#output)[1]);
    this.kubeconfig = readFileSync(this.kubeconfigPath, 'utf8');
    // the server writes a key per line
    const field = (name) => new RegExp(`^ *${name}: (.*)$`, 'm').exec(this.kubeconfig)[1];
    this.url = field('server');
    this.#token = field('token');
    this.#authority = Buffer.from(field('certificate-authority-data'), 'base64');
    if (!components || components.includes('controller-manager')) {
      await until('there is no default service account', () => this.#hasServiceAccount());
    }
    if (nodes > 0) await until('the nodes are not ready', async () => (await this.#readyNodes()) >= nodes);
  }

  async #hasServiceAccount() {
    try {
      await this.request('GET', '/api/v1/namespaces/default/serviceaccounts/default');
      return true;
    } catch (error) {
      if (error.code === 404) return false;
      throw error;
    }
  }

  async #readyNodes() {
    const { items } = await this.request('GET', '/api/v1/nodes');
    const conditions = items.flatMap((node) => node.status?.conditions ?? []);
    return conditions.filter(({ type, status }) => type === 'Ready' && status === 'True').length;
  }

  get log() {
    return this.#output;
  }

  async request(method, path, body) {
    const headers = { authorization: `Bearer ${this.#token}` };
    if (body !== undefined) headers['content-type'] = 'application/json';
    // one connection per request: none is left that would hold the process
    const request = httpsRequest(new URL(path, this.url), { method, headers, ca: this.#authority, agent: false });
    request.end(body === undefined ? undefined : JSON.stringify(body));
    const [response] = await once(request, 'response');
    response.setEncoding('utf8');
    let text = '';
    for await (const part of response) text += part;
    if (response.statusCode >= 400) throw new StatusError(response.statusCode, text);
    return JSON.parse(text);
  }

  async #sendClock(method, parameters) {
    const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
    const query = new URLSearchParams(given.map(([name, it]) => [name, typeof it === 'number' ? `${it}ms` : it]));
    try {
      return await this.request(method, `${CLOCK_PATH}?${query}`);
    } catch (error) {
      if (error.code !== 404) throw error;
      throw new Error('the cluster has a real clock: start it with manualClock');
    }
  }

  async stop() {
    const status = await this.#end();
    if (status !== 0) throw new Error(`the cluster ended with ${status}; its output:\n${this.log}`);
  }

  async #end() {
    for (const handle of [this.#child, ...this.#child.stdio]) handle.ref();
    this.#child.stdin.end();
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    try {
      return await this.#ended;
    } finally {
      clearTimeout(timer);
    }
  }

  async [Symbol.asyncDispose]() {
    await this.stop();
  }
}

function argumentsOf({ nodes, profile, manualClock, seed, components, args = [] }) {
  const words = ['up', '--ephemeral', '--secure-port', '0', '--exit-on-stdin-close'];
  if (nodes) words.push('--nodes', `${nodes}`);
  if (profile) words.push('--simulation-profile', profile);
  if (manualClock) words.push('--clock', 'manual');
  if (seed !== undefined) words.push('--seed', `${seed}`);
  if (components) words.push('--components', components.join(','));
  return [...words, ...args];
}

function findBinary(given) {
  const name = given || process.env[BINARY_VARIABLE] || 'pintle';
  const places = name.includes(sep)
    ? [resolve(name)]
    : (process.env.PATH ?? '').split(delimiter).map((folder) => join(folder, name));
  const found = places.find(isProgram);
  if (found) return found;
  throw new Error(
    `there is no program ${name}: build it (packaging/build), then set the variable ${BINARY_VARIABLE} to its path, ` +
      'or add it to PATH',
  );
}

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

// A word of a shell, as the server writes it.
function unquote(word) {
  return word.startsWith("'") ? word.slice(1, -1).replaceAll("'\\''", "'") : word;
}

function clockMove({ now, changes, omittedChanges = 0 }) {
  return { now: new Date(now), changes: changes.map((it) => ({ ...it, time: new Date(it.time) })), omittedChanges };
}
