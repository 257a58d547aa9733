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
  /** Further arguments of `pintle up`. */
  args?: string[];
  /** How long a start may take; 60,000 by default. */
  startTimeoutMs?: number;
}

/** A running cluster. It goes with `stop`, and when this process ends. */
export class Cluster {
  private constructor();
  /** Starts a cluster, and resolves when it is ready for pods. */
  static start(options?: ClusterOptions): Promise<Cluster>;
  /** The path of the administrator's kubeconfig. The file is deleted when the cluster stops. */
  readonly kubeconfigPath: string;
  /** The administrator's kubeconfig. */
  readonly kubeconfig: string;
  /** The address of the API server. */
  readonly url: string;
  /** The end of what the server has written to its standard output and error. */
  readonly log: string;
  /** The time of a cluster with `manualClock`. */
  readonly clock: Clock;
  /**
   * Sends a request as the administrator, with an object as JSON or without one. Resolves to the object of the response.
   * A response with a code of 400 or more is a `StatusError`.
   */
  request(method: string, path: string, body?: unknown): Promise<any>;
  /** Stops the cluster, and resolves when it is gone. A second call does nothing. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
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

/** A response of the API server that reports an error. */
export class StatusError extends Error {
  readonly code: number;
  readonly body: string;
}
