// What a test does with a cluster, and copies of it.
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const CLOCK_PATH = '/simulation/clock';
const CLUSTERS_PATH = '/simulation/clusters';
const FAULTS_PATH = '/simulation/faults';

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

// What clusters and their forks have in common.
export class Controls {
  #authority;
  #token;

  constructor() {
    this.clock = {
      now: async () => new Date((await this.#sendClock('GET', {})).now),
      advance: async (by, pace) => clockMove(await this.#sendClock('POST', { advance: by, ...pace })),
      settle: async ({ limit = '10m', quiet, step, pause } = {}) => {
        const state = await this.#sendClock('POST', { settle: limit, quiet, step, pause });
        if (!state.settled) throw new Error(`the cluster still changes after ${limit}`);
        return clockMove(state);
      },
    };
    this.faults = {
      set: async (rules, { seed } = {}) => void (await this.request('PUT', FAULTS_PATH, { rules, seed })),
      clear: async () => void (await this.request('DELETE', FAULTS_PATH)),
      counts: async () => {
        const { status } = await this.request('GET', FAULTS_PATH);
        return (status?.rules ?? []).map(({ matched, injected }) => ({ matched, injected }));
      },
    };
  }

  _connect(path, kubeconfig) {
    this.kubeconfigPath = path;
    this.kubeconfig = kubeconfig;
    // the server writes a key per line
    const field = (name) => new RegExp(`^ *${name}: (.*)$`, 'm').exec(kubeconfig)[1];
    this.url = field('server');
    this.#token = field('token');
    this.#authority = Buffer.from(field('certificate-authority-data'), 'base64');
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

  async fork() {
    return new Fork(this, await this.request('POST', CLUSTERS_PATH));
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

  async [Symbol.asyncDispose]() {
    await this.stop();
  }
}

// A copy of a cluster in the same process.
export class Fork extends Controls {
  #parent;
  #name;
  #isStopped = false;

  constructor(parent, { name, kubeconfig }) {
    super();
    this.#parent = parent;
    this.#name = name;
    const path = join(mkdtempSync(join(tmpdir(), 'pintle-')), 'admin.kubeconfig');
    writeFileSync(path, kubeconfig, { mode: 0o600 });
    this._connect(path, kubeconfig);
  }

  get log() {
    return this.#parent.log;
  }

  async stop() {
    if (this.#isStopped) return;
    this.#isStopped = true;
    rmSync(dirname(this.kubeconfigPath), { recursive: true, force: true });
    try {
      await this.#parent.request('DELETE', `${CLUSTERS_PATH}/${this.#name}`);
    } catch (error) {
      // it stopped with its parent
      if (!this.#parent._hasEnded) throw error;
    }
  }

  get _hasEnded() {
    return this.#isStopped || this.#parent._hasEnded;
  }
}

function clockMove({ now, changes, omittedChanges = 0 }) {
  return { now: new Date(now), changes: changes.map((it) => ({ ...it, time: new Date(it.time) })), omittedChanges };
}
