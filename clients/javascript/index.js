// Clusters for tests: a whole Kubernetes control plane in a process of its own, with simulated nodes and a clock that
// the test holds. Types and documentation are in index.d.ts. Nothing but Node.js is needed.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, readFileSync, statSync } from 'node:fs';
import { delimiter, join, resolve, sep } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { Controls, StatusError } from './controls.js';

const BINARY_VARIABLE = 'PINTLE';
const KEPT_OUTPUT = 256 * 1024;
const STOP_TIMEOUT_MS = 30_000;

export { StatusError };

export class Cluster extends Controls {
  #child;
  #ended;
  #output = '';
  #status;

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
    super();
    // the server ends when its standard input is closed, by stop() or by the death of this process
    this.#child = spawn(findBinary(options.binary), argumentsOf(options), { stdio: ['pipe', 'pipe', 'pipe'] });
    // listened for from the start: an end is noticed whenever it comes
    this.#ended = new Promise((done) => {
      this.#child.once('error', (error) => done((this.#status = error.message)));
      this.#child.once('close', (status, signal) => done((this.#status = signal ?? status)));
    });
    // a server that has ended does not read any more
    this.#child.stdin.on('error', () => {});
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        this.#output += text;
        if (this.#output.length > 2 * KEPT_OUTPUT) this.#output = this.#output.slice(-KEPT_OUTPUT);
      });
    }
  }

  // Waits for the greeting, the service account without which pods are refused, and the nodes.
  async #untilReady({ nodes = 0, components, startTimeoutMs = 60_000 }) {
    const deadline = Date.now() + startTimeoutMs;
    const until = async (problem, holds) => {
      while (!(await holds())) {
        if (this._hasEnded) throw new Error(`it ended: ${this.#status}`);
        if (Date.now() > deadline) throw new Error(`not in time: ${problem}`);
        await sleep(5);
      }
    };
    const export_ = /export KUBECONFIG=(.*)\n/;
    await until('it is not ready', () => export_.test(this.#output));
    const path = unquote(export_.exec(this.#output)[1]);
    this._connect(path, readFileSync(path, 'utf8'));
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

  get _hasEnded() {
    return this.#status !== undefined;
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
}

function argumentsOf({ nodes, profile, manualClock, seed, components, faults = [], args = [] }) {
  const words = ['up', '--ephemeral', '--secure-port', '0', '--exit-on-stdin-close'];
  words.push('--faults', JSON.stringify({ rules: faults }));
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
