/** A generic runtime that can be claimed: where it answers calls and where it is controlled (`unix:/path` or `tcp:host:port`). */
export interface RuntimeCandidate {
  id: string;
  data: string;
  control: string;
  /** It runs and is not known to be ready yet: it may be claimed, and takes no connection until it listens. */
  isStarting?: true;
}

/** The runtime pool port: child processes on a laptop, pods in a cluster. It keeps warm runtimes; who serves which kap is in PostgreSQL. */
export interface RuntimePool {
  /**
   * Runtimes that may be free; those that still start only when there are no others. One that turns out to be taken answers its claim with 409 and the next
   * is tried.
   */
  candidates(): Promise<RuntimeCandidate[]>;
  /** This runtime is not to be used any more: it is ended and, if the pool is short, replaced. */
  discard(control: string): void;
  /** This runtime has been claimed: it is no candidate any more, and the pool warms another. */
  taken(control: string): void;
}
