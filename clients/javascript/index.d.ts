/** Which cluster is started. Without options it is a control plane without nodes. */
export interface ClusterOptions {
  /** The path of the program; else that of the variable PINTLE, or pintle in PATH. */
  binary?: string;
  /** The number of simulated nodes. */
  nodes?: number;
  /** The file with a SimulationProfile: shapes of nodes, and how pods behave. */
  profile?: string;
  /** The time of the cluster stands still until `clock` moves it. */
  manualClock?: boolean;
  /** Names and placements follow from the requests; with `manualClock`. */
  seed?: number | bigint;
  /** Those of `pintle up --components`. */
  components?: string[];
  /** Faults that requests meet from the start; `faults` of the cluster changes them. */
  faults?: FaultRule[];
  /** Further arguments of `pintle up`. */
  args?: string[];
  /** How long a start may take; 60,000 by default. */
  startTimeoutMs?: number;
}

/** What clusters and their forks have in common. */
export interface Controls extends AsyncDisposable {
  /** The path of the administrator's kubeconfig. The file is deleted when the cluster stops. */
  readonly kubeconfigPath: string;
  /** The administrator's kubeconfig. */
  readonly kubeconfig: string;
  /** The address of the API server. */
  readonly url: string;
  /** The end of what the server, that of all forks, has written to its standard output and error. */
  readonly log: string;
  /** The time of a cluster with `manualClock`. */
  readonly clock: Clock;
  /** The faults that requests meet. */
  readonly faults: Faults;
  /**
   * Sends a request as the administrator, with an object as JSON or without one. Resolves to the object of the response.
   * A response with a code of 400 or more is a `StatusError`.
   */
  request(method: string, path: string, body?: unknown): Promise<any>;
  /**
   * Starts a copy of the cluster in the same process: all its objects, keys and certificates, with a port, a clock and
   * faults of its own. Prepare a cluster once, and give each test a fork of it. A fork stops with its parent at the latest.
   */
  fork(): Promise<Controls>;
  /** Stops the cluster and its forks, and resolves when it is gone. A second call does nothing. */
  stop(): Promise<void>;
}

/** A running cluster. It goes with `stop`, and when this process ends. */
export interface Cluster extends Controls {}
export class Cluster {
  private constructor();
  /** Starts a cluster, and resolves when it is ready for pods. */
  static start(options?: ClusterOptions): Promise<Cluster>;
}

/** A duration: text such as `1h30m`, or milliseconds. */
export type Duration = string | number;

/** Gives programs outside of the cluster real time to react: the clock stops after each step for the pause. */
export interface Pace {
  step?: Duration;
  pause?: Duration;
}

export interface Clock {
  /** The time of the cluster. */
  now(): Promise<Date>;
  /** Moves the clock forward. Every timer in between fires at its time. */
  advance(by: Duration, pace?: Pace): Promise<ClockMove>;
  /**
   * Moves the clock forward until nothing has changed for `quiet` (10s). Fails if objects still change after `limit`
   * (10m).
   */
  settle(options?: Pace & { limit?: Duration; quiet?: Duration }): Promise<ClockMove>;
}

/** What happened while the clock moved. */
export interface ClockMove {
  now: Date;
  changes: Change[];
  omittedChanges: number;
}

/** An object that was changed while the clock moved. */
export interface Change {
  time: Date;
  type: 'ADDED' | 'MODIFIED' | 'DELETED';
  resource: string;
  namespace?: string;
  name: string;
}

export interface Faults {
  /**
   * Replaces all faults. Rules with mistakes are refused with all of them, and change nothing. The seed decides which
   * requests meet faults with a rate; without one it is drawn.
   */
  set(rules: FaultRule[], options?: { seed?: number }): Promise<void>;
  /** Removes all faults. */
  clear(): Promise<void>;
  /** How often each rule has matched and fired, in the order of the rules. */
  counts(): Promise<{ matched: number; injected: number }[]>;
}

/**
 * Selects requests, and says which fault meets them how often. What is not there selects everything. Durations are text,
 * such as `15s`. docs/testing.md describes each field.
 */
export interface FaultRule {
  name?: string;
  verbs?: string[];
  groups?: string[];
  resources?: string[];
  namespaces?: string[];
  names?: string[];
  users?: string[];
  userAgents?: string[];
  paths?: string[];
  webhooks?: string[];
  /** Whether control loops, scheduler and simulated nodes meet the fault, too. */
  components?: boolean;
  skip?: number;
  rate?: number;
  every?: number;
  times?: number;
  delay?: string;
  status?: 409 | 410 | 429 | 500 | 503 | 504;
  retryAfterSeconds?: number;
  /** Closes the connection before the request is handled, or after it was. */
  cut?: 'Request' | 'Response';
  watch?: { afterEvents?: number; after?: string; end?: 'Close' | 'Expired' | 'Cut' };
}

/** A response of the API server that reports an error. */
export class StatusError extends Error {
  readonly code: number;
  readonly body: string;
}
