/** One call of a program to the host. `run` lives as long as its run; `signal` ends with the run or its wall clock. */
export interface HostCall {
  op: string;
  text: string;
  bytes: Uint8Array;
  run: RunAccount;
  /** Names a stream of one context: the guest numbers its streams itself. */
  streamKey: (streamId: unknown) => string;
  remainingMs: number;
}

export interface HostAnswer {
  text?: string;
  bytes?: Uint8Array | undefined;
}

/** Who answers the calls of a run that is to leave nothing behind. */
export interface DryAnswers {
  answer(call: HostCall): Promise<HostAnswer>;
  /** Undoes what the run did. Settles when that is done. */
  close(account: RunAccount): Promise<void>;
}

/** What one run has used of the host. */
export interface RunAccount {
  fetches: number;
  abort: AbortController;
  /** Keys of the streams the run has opened. */
  streams: Set<string>;
  /** Of a dry run: who answers its calls instead. */
  dry: DryAnswers | null;
}

/** A refusal of the host that a program may see: name, message and code. */
export class HostRefusal extends Error {
  readonly code: string | undefined;
  constructor(name: string, message: string, code?: string) {
    super(message);
    this.name = name;
    this.code = code;
  }
}
